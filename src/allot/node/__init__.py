"""The agent of a node: makes the pods that were bound to it run, with the devices that their claims hold.

Knows: the API (through a client), the kubelet's plugin protocol, CDI, container runtimes behind one port. Does not know:
how a driver prepares a device, or who decided that a pod runs here.
"""
