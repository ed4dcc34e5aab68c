"""Watches the cluster, asks `core.scheduling` which pod goes where, and writes the answers.

Knows: informers, the order of writes, conflicts, events, metrics. Does not know: what makes a node or device fit; if an `if` is
about that, it belongs in core.
"""
