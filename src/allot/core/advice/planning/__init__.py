"""Planning: how many more copies of a manifest fit, what blocks the next one, and how that changes with another cluster.

`manifest` and `copies` define a copy, `changes` builds the other cluster, `filling` places copies as the scheduler would,
`maximum` finds the upper limit: exactly from `node_capacity` if nodes are independent (`connections`), otherwise by
`bounds` and `domains`. `quotas` says how many are allowed, `reach` which
devices the pods can reach. `outcome` combines the results, `reasons` has the cause if nothing fits. Whether something fits is always
decided by `core.scheduling` and `core.allocation`.
"""
