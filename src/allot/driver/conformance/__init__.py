"""Conformance checks: whether a driver, run unmodified in its own process, does what the kubelet expects.

Knows: the plugin protocol from the kubelet's side, claims as allocated by the scheduler. Does not know: the driver's code. The
API server is the caller's; it is reached by a client here and by a kubeconfig from the driver.
"""
