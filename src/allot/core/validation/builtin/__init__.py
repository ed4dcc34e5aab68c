"""Defaults and rules of built-in kinds other than those of device allocation: `rules_for` in `registry` returns those of a kind.

Works on JSON values whose types were checked against the schema before; values of an unexpected type are treated as
absent and never raise. Each module says at the top which parts of upstream's validation it omits.
"""
