"""Pods that are scheduled together: enough of them at once, or none.

Start with `decision`. `passes` tries pods one by one, as kube-scheduler does; if that fails, `joint` searches for
all of them at once and finds a placement, or proves that there is none; `domains` does both where nodes must share a label.
"""
