"""The agent's part of dynamic resource allocation: registers drivers, prepares and unprepares claims, watches health.

Knows: the kubelet's gRPC protocols, its files and its texts. Does not know how containers are run, nor what a driver does with
a claim. `core.lifecycle.preparation` and `core.lifecycle.device_health` decide.
"""
