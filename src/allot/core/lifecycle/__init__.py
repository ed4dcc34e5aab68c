"""Reconcilers: from the objects that are there to the actions that make them what they should be.

Each is a function of its arguments, the time included. Knows: owners, templates, reservations, leases, taints, quotas.
Does not know: how an action is carried out, or what to do when that fails (`allot.controllers`).
"""
