"""One module for each plugin of kube-scheduler that refuses or scores nodes, with its name and its words.

Knows: one pod (its profile) and one node, or the counts over nodes that it needs. Does not know: caches, heaps, queues.
"""
