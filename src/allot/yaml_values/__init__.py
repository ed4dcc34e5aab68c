"""YAML as Kubernetes reads and writes it: the only reader and the only writer of YAML values.

Knows texts and JSON values. Request bodies, manifests and lint use it differently, but read YAML in the same way.
"""
