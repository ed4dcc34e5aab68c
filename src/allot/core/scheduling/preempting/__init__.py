"""Preemption: which pods to evict to make room."""
