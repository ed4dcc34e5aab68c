"""allot on somebody's cluster: the Helm chart, the same as plain manifests, and applying and removing them without Helm."""
