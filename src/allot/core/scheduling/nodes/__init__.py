"""Nodes: the filter results of each for a pod, and the order in which they are tried."""
