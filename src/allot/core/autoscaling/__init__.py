"""Autoscaling of nodes: which to add so that pods can run, and which to remove because they are unneeded.

Knows pools and their node templates (`templates`, `pools`), and lets the scheduler's machine place pods on the
cluster plus such nodes (`trying`). `scale_up` adds nodes: exactly for few choices (`exhaustive`), by filling
nodes for many (`filling`), with a lower bound on the cost (`bounds`). `scale_down` proves that a node can be removed.
Does not know providers, time or randomness: the caller passes in whether a pool can be used now.
"""
