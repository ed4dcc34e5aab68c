"""A control plane in one process: API server, controllers and scheduler, which interact only through the API.

The components get in-process clients; each could run elsewhere with a kubeconfig instead.
"""
