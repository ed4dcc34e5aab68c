"""The scheduler's shell: watches pods, nodes, claims and devices, asks `allot.core.scheduling`, writes what it decides.

Invariant: nothing here compares devices or nodes. Works against any Kubernetes API server.
"""
