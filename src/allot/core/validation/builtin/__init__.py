"""Defaults and rules of the built-in kinds besides device allocation: `rules_for` in `registry` gives those of a kind.

Works on JSON values whose types were checked against the schema before; what still has an unexpected type is treated as
absent, never an exception. Each module says at its top what of upstream's validation it leaves out.
"""
