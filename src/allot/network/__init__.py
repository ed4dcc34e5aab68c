"""The network of a cluster's pods on one machine: a network namespace with a bridge, names and addresses of Services.

Sockets cross the border of the namespace, bytes do not: a process inside of it (`inside`) connects, accepts and relays; others ask it over
a unix socket for connections (`client`) and give it sockets that listen on the machine.
"""
