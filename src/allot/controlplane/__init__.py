"""A whole control plane in one process: API server, controllers and scheduler, which meet only through the API.

The parts get clients that reach the API server without sockets; each could run elsewhere with a kubeconfig instead.
"""
