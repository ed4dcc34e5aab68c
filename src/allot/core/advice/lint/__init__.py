"""Lint: finds what is wrong with manifests before they reach a cluster, and how to fix it.

Start with `linter.lint` (texts in, findings out) and `rules.RULES`. A rule belongs to a topic: a module
that checks one aspect of the manifests and reports under the rule's name. Knowledge about the cluster comes in as
`knowledge.Knowledge`, the API server's answers as `server.Server`. Reads no files and no YAML; `core.allocation` decides
whether a claim can be satisfied, and `core.advice.convert` knows old API versions.
"""
