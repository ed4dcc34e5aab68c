"""Reads files, streams and clusters: YAML and JSON with places, manifests, and snapshots of clusters, once or after
every change.

For everything that shows or checks clusters, such as the command line and the dashboard. Knows texts, the client and where values
are; `core` knows what they mean, and the caller shows failures, notes and progress (`errors`,
`listener`).
"""
