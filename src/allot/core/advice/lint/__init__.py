"""Lint: what is wrong with manifests before they reach a cluster, and how to put it right.

Start with `linter.lint` (texts in, findings out) and `rules.RULES` (what is looked for). A rule belongs to a topic: a module
that looks at one side of the manifests and reports by the rule's name. What is known of the cluster comes in as
`knowledge.Knowledge`, what the API server says as `server.Server`. Reads no files and no YAML; whether a claim can be satisfied
is asked of `core.allocation`. What old API versions said is known to `core.advice.convert`.
"""
