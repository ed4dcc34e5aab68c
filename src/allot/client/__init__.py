"""The client library for API servers, ours or kube-apiserver: kubeconfig, transports, access to kinds, informers,
work queues, leader election, events.

Knows the REST API as a client sees it. Knows neither the store nor the API server: components in the same process get an
`InProcessTransport` from the composition root, and behave like remote clients.
"""
