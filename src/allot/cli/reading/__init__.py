"""From files, streams and clusters to values: YAML and JSON with places, manifests, snapshots, files of nodes.

Knows texts and where things stand in them; what they mean is the business of `core`.
"""
