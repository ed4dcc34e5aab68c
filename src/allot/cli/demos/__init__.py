"""Guided demonstrations: real clusters, real commands, and what they mean.

A demonstration is data (catalogue.yaml): nodes, manifests and steps. `stage` plays it: announces each step, runs the commands as a user
would type them, and waits for conditions. Nothing here knows how a cluster works; `allot` and kubectl do everything.
"""
