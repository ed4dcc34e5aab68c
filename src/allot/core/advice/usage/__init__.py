"""Usage: how many devices the cluster has, which are in use and by whom, and which are available.

`published` knows the current devices and their states; `devices`, `partitions`, `claims` and `nodes` count them, each for one
question of `allot top`. Everything comes from a `WhatIfCluster`, which stays unchanged.
"""
