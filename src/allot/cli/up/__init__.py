"""A cluster as a group of processes on this machine, for `allot up`, `down`, `status` and `reset`.

Knows processes, directories and kubeconfigs. `controlplane`, `node` and `devices` contain what the processes do.
"""
