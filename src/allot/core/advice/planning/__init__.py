"""Planning: how many more copies of a manifest fit, what blocks the next one, and what if the cluster were another.

`manifest` reads what a copy consists of, `changes` makes the other cluster, `filling` places copies as the scheduler would,
`rooms` and `maximum` say how many there could be at most, `outcome` puts it together. Whether something fits is always asked
of `core.scheduling` and `core.allocation`.
"""
