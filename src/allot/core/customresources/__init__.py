"""Custom resources: validates definitions, and objects against their schema and rules. Pure."""
