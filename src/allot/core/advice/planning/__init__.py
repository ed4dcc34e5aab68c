"""Planning: how many more copies of a manifest fit, what blocks the next one, and what if the cluster were another.

`manifest` and `copies` say what a copy consists of, `changes` makes the other cluster, `filling` places copies as the scheduler would,
`maximum` says how many there could be at most: exactly from `node_capacity`, as far as nodes are not connected (`connections`), otherwise by
`bounds` and `domains`. `quotas` says how many are allowed, `reach` which
devices the pods can get at. `outcome` puts it together, `reasons` has the cause where nothing fits. Whether something fits is always
asked of `core.scheduling` and `core.allocation`.
"""
