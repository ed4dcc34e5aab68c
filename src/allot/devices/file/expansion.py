"""Expands entries to several devices: `{index}` in any of their texts is the number of the device, `{node}` the node.

    /dev/fpga{index}   card-{index//2}   0000:{index*16+5:02x}:00.0

Numbers are computed from left to right, with `+`, `-`, `*`, `//` and `%`; a format follows the colon, as in Python.
"""

from __future__ import annotations

import re
from typing import Any

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][^{}]*)\}")
_INDEX = re.compile(r"index((?:(?://|[-+*%])[0-9]{1,6})*)(?::(0?[0-9]{0,2}[dxX]))?")
_STEP = re.compile(r"(//|[-+*%])([0-9]+)")


class ExpansionError(ValueError):
    """An invalid placeholder."""


def expand(value: Any, index: int, node: str) -> Any:
    """A plain value with all its strings expanded, including keys of mappings; ExpansionError."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _filled(match, index, node), value) if "{" in value else value
    if isinstance(value, dict):
        return {expand(key, index, node): expand(item, index, node) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expand(item, index, node) for item in value]
    return value


def _filled(match: re.Match[str], index: int, node: str) -> str:
    if match[1] == "node":
        return node
    number = _INDEX.fullmatch(match[1])
    if number is None:
        raise ExpansionError(f"{match[0]}: expected {{node}}, {{index}} or a number of it such as {{index*8+5:02x}}")
    result = index
    for step in _STEP.finditer(number[1]):
        result = _stepped(result, step[1], int(step[2]), match[0])
    return format(result, number[2] or "d")


def _stepped(number: int, operator: str, operand: int, text: str) -> int:
    match operator:
        case "+":
            return number + operand
        case "-":
            return number - operand
        case "*":
            return number * operand
    if operand == 0:
        raise ExpansionError(f"{text}: divides by zero")
    return number // operand if operator == "//" else number % operand
