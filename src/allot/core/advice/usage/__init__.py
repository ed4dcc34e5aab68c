"""Usage: how much of the cluster's devices there is, is in use and by whom, and could still be had.

`published` knows what is there now and in which state; `devices`, `partitions`, `claims` and `nodes` count it, each for one
question of `allot top`. Everything is read from a `WhatIfCluster`; nothing is changed.
"""
