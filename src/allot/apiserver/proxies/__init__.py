"""Proxied requests: to node agents, pods and Services."""
