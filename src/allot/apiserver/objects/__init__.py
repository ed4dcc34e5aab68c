"""Common processing of objects of all kinds: bodies, fields, metadata, field ownership, selection."""
