"""What an unquoted YAML scalar means to Kubernetes.

Kubernetes turns YAML into JSON with sigs.k8s.io/yaml, which resolves scalars by YAML 1.1 as its go-yaml v2 fork does:
`yes`, `on` and `y` are true, a leading zero is octal, underscores in numbers are ignored, sexagesimal numbers do not
exist and a date stays text. PyYAML's own resolver differs in the last two and in `y`/`n`, so its rules are not used.

Knows only single scalars, not documents, anchors or keys.
"""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
# Not a number and infinity have no JSON form; Kubernetes refuses the document, and so do we (NotJSON).
_NOT_JSON = frozenset(
    sign + word for word in (".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF") for sign in ("", "+", "-")
) - {"+.nan", "+.NaN", "+.NAN", "-.nan", "-.NaN", "-.NAN"}
_MAY_NOT_BE_TEXT = frozenset("+-.0123456789yYnNtTfFoO~")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_RADIX_OF_GROUP = ((2, 16), (3, 2), (4, 8), (5, 10))
# A longer run of digits stays text: nothing in the API accepts such a number, and a quantity is read from text anyway.
NUMBER_CHARACTERS_MAX = 400


class NotJSON(ValueError):
    """A YAML scalar without a JSON form."""


def resolve_plain(text: str) -> Scalar:
    """The JSON value of an unquoted, untagged scalar."""
    if not text:
        return None
    if text[0] not in _MAY_NOT_BE_TEXT:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-.0123456789":
        return _number(text)
    return text


def _number(text: str) -> Scalar:
    if text in _NOT_JSON:
        raise NotJSON(f"{text} is not a JSON value: expected a finite number, or quotes around text")
    if len(text) > NUMBER_CHARACTERS_MAX:
        return text
    # With a leading dot, underscores are kept, so it is not a number, as in go-yaml.
    digits = text if text[0] == "." else text.replace("_", "")
    integer = _INTEGER.fullmatch(digits)
    if integer is not None:
        return _integer(integer)
    if _FLOAT.fullmatch(digits) is None:
        return text
    value = float(digits)
    # Out of a float's range (1e999): go-yaml leaves it as text, so that a quantity can still be read from it.
    if math.isinf(value):
        return text
    # Kubernetes passes the value on as JSON, where Go writes a whole float without a fraction: 1e1 is an integer.
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def _integer(match: re.Match[str]) -> int:
    sign = -1 if match.group(1) == "-" else 1
    for group, radix in _RADIX_OF_GROUP:
        digits = match.group(group)
        if digits is not None:
            return sign * int(digits, radix)
    raise AssertionError(f"integer pattern matched {match.group()!r} without digits")


def resolve_tagged(tag: str, text: str) -> Scalar:
    """The JSON value of a scalar with an explicit tag; ValueError if the text does not fit the tag."""
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind in ("str", "!"):
        return text
    value = resolve_plain(text)
    suits = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "null": value is None,
    }
    if kind not in suits:
        raise ValueError(f"tag {tag!r} is not supported: expected one of !!str, !!int, !!float, !!bool, !!null")
    if not suits[kind]:
        raise ValueError(f"{text!r} is not a value of type !!{kind}")
    return float(value) if kind == "float" and value is not None else value


def key_text(value: Scalar) -> str:
    """A mapping key as Kubernetes' JSON string; ValueError for null."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.9g}"
    raise ValueError("null cannot be a key: expected a string")
