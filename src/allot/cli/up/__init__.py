"""A cluster as a group of processes on this machine, for `allot up`, `down`, `status` and `reset`.

Knows processes, folders and kubeconfigs. What the processes do is in `controlplane`, `node` and `devices`.
"""
