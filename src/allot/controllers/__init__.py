"""The controllers' shell: watches, calls a reconciler of `allot.core`, executes its actions.

Invariant: nothing here decides what an object should be. Works against any Kubernetes API server.
"""
