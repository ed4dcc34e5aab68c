"""The scheduler's shell: watches the cluster, lets `core.scheduling` decide, and writes the decisions.

Knows: informers, the order of writes, conflicts, events, metrics. Does not know what makes a node or device fit: an `if`
about that belongs in core.
"""
