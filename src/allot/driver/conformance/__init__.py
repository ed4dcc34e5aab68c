"""Does a driver do what the kubelet expects of it? Checks that run a driver as it is shipped, in a process of its own.

Knows: the plugin protocol from the kubelet's side, claims as the scheduler leaves them. Does not know: the driver's code. The
API server is the caller's; it is reached by a client here and by a kubeconfig from the driver.
"""
