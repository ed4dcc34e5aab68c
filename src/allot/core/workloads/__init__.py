"""Reconcilers of workloads: Deployments, Jobs and the rest. Objects and the time go in, actions come out."""
