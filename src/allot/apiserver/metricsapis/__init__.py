"""metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io: what agents tell about nodes and pods."""
