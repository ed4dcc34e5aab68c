"""The binary operators of CEL and the functions that they call."""

from __future__ import annotations

RELATION_FUNCTIONS = {
    "==": "_==_",
    "!=": "_!=_",
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "in": "@in",
}
SUM_FUNCTIONS = {"+": "_+_", "-": "_-_"}
PRODUCT_FUNCTIONS = {"*": "_*_", "/": "_/_", "%": "_%_"}
BINARY_FUNCTIONS = {**RELATION_FUNCTIONS, **SUM_FUNCTIONS, **PRODUCT_FUNCTIONS}
