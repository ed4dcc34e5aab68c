"""Advice: what to tell people about their cluster and their manifests.

Knows how to turn the scheduler's, the allocator's and validation's findings into causes, changes and numbers that a person can
act on. Decides nothing itself: whether something fits is always asked of `core.scheduling` and `core.allocation`. Reads no
files, no YAML and no clusters; it is given objects (`snapshot.Snapshot`) or JSON values.
"""
