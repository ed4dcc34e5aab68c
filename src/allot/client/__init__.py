"""What components use to reach an API server, ours or kube-apiserver: kubeconfig, transports, access to kinds, informers,
work queues, leader election, events.

Knows the REST API as a client sees it. Knows neither the store nor the API server: components in its process get an
`InProcessTransport` from whoever composes the process, and behave as if they were far away.
"""
