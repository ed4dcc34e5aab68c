"""YAML as Kubernetes reads and writes it: the only reader and the only writer of YAML values.

Knows texts and JSON values. Request bodies, manifests and lint differ in what they ask of it, not in how YAML is read.
"""
