"""Nodes: what each of them answers to a pod, and in which order they are tried."""
