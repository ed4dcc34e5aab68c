"""Workloads that measure a control plane end to end, and what they report (`allot bench`)."""
