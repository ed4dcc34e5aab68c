"""Nodes that come and go: which to buy so that pods can run, and which can go because nobody needs them.

Knows pools and what a node of each would be (`templates`, `pools`), and asks the scheduler's machine what becomes of pods on the
cluster as it is plus such nodes (`trying`). `scale_up` buys: exactly where there is little to choose (`exhaustive`), by filling
nodes where there is much (`filling`), with a bound on what the best could cost (`bounds`). `scale_down` proves that a node can go.
Does not know providers, time or dice: what is written, and whether a pool can be asked now, is told.
"""
