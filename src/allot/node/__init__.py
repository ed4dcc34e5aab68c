"""The node agent: runs the pods that are bound to its node, with the devices of their claims.

Knows: the API (through a client), the kubelet's plugin protocol, CDI, container runtimes behind one port. Does not know:
how a driver prepares a device, or why a pod was scheduled here.
"""
