"""Guided demonstrations: real clusters, real commands, and what they mean.

A demonstration is data (catalogue.yaml): nodes, manifests and steps. `stage` plays it: says what happens, runs the commands as a user
would type them, and waits for what has to come true. Nothing here knows how a cluster works; all of it is done by `allot` and kubectl.
"""
