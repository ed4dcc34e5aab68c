"""The network of a cluster's pods on one machine: a network namespace with a bridge, names and addresses of Services.

Sockets cross the border of the namespace, bytes do not: a process inside it (`inside`) connects, accepts and relays; others ask it over
a Unix socket for connections (`client`) and pass it listening sockets of the machine.
"""
