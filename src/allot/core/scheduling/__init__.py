"""From a view of the cluster and a unit of pods to a decision: which node, which devices, or why not.

Knows: filters, scores, claims of pods, preemption, the order in which pods wait. Does not know: how objects are read or
written, what time it is (it is told). Nothing here changes what it is asked about: a decision is put into force by
`Cluster.assume`, and taken back by `Cluster.forget`.
"""
