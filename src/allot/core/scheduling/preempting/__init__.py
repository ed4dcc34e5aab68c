"""Preemption: whose going makes room."""
