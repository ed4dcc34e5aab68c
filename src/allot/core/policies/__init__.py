"""Admission policies: which requests one means, and what its expressions say about them. Pure."""
