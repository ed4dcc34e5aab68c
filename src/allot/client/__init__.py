"""Access to a Kubernetes API server, ours or another: kubeconfig, requests, informers, leader election."""
