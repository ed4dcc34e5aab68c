"""Reconcilers: from existing objects to the actions that bring them to the desired state.

Each is a function of its arguments, including the time. Knows: owners, templates, reservations, leases, taints, quotas.
Does not know how an action is executed, or what to do if that fails (`allot.controllers`).
"""
