"""Pods that are scheduled together: enough of them at once, or none.

`decision` is the door. `passes` tries pods one after the other, as kube-scheduler does; where that fails, `joint` searches for
all of them at once and finds a placement, or proves that there is none; `domains` does both where nodes must share a label.
"""
