"""The controllers' shell: watches, asks a reconciler of `allot.core.lifecycle`, carries its actions out.

Invariant: nothing here decides what an object should be. Works against any Kubernetes API server.
"""
