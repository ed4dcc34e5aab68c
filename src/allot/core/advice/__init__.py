"""Advice for users about their cluster and their manifests.

Turns findings of the scheduler, the allocator and validation into causes, changes and numbers that a user can
act on. Decides nothing itself: `core.scheduling` and `core.allocation` decide whether something fits. Reads no
files, no YAML and no clusters; it receives objects (`snapshot.Snapshot`) or JSON values.
"""
