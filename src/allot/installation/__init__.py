"""Installs allot on any cluster: the Helm chart, plain manifests from it, and applying and removing them without Helm."""
