"""From files, streams and clusters to values: YAML and JSON with places, manifests, and snapshots of clusters, once or again after
every change.

For everything that shows or judges clusters: the command line today, a dashboard as well. Knows texts, the client and where things
stand; what they mean is the business of `core`, and how failures, notes and progress are shown that of the caller (`errors`,
`listener`).
"""
