"""metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io: metrics of nodes and pods from agents."""
