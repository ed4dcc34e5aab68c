"""The agent's side of dynamic resource allocation: drivers register, claims are prepared and unprepared, health is listened to.

Knows: the kubelet's gRPC protocols, its files and its texts. Does not know how containers are run, nor what a driver does with
a claim. What has to happen is decided in `core.lifecycle.preparation` and `core.lifecycle.device_health`.
"""
