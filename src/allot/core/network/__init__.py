"""Decisions about the pod network: addresses, endpoints of Services, DNS names."""
