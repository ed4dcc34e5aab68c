"""Defaulting and validation of API objects, as in the Kubernetes 1.37 API server.

Knows: which fields are filled in, dropped or refused, and the exact field paths, error types and texts. Does not know
storage, HTTP, users or clocks: the time, the feature gates and the namespace's labels are arguments.

Start with `validate` (the entry points). `declarative` and the `rules_*` tables are the generated half of upstream's
validation, the modules named after kinds the handwritten half; `outcome` merges the two.
"""
