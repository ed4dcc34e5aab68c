"""Slips that can happen in any object: names beside `metadata`, and texts in the quotes of print."""

from __future__ import annotations

from typing import Any

from allot.core.advice.convert.changes import Confidence
from allot.core.advice.convert.objects import Object, mapping
from allot.core.advice.places import Path
from allot.core.advice.typography import is_quoted_in_print, with_plain_quotes

_METADATA = ("name", "generateName", "namespace", "labels", "annotations")
# Groups of kinds that have nothing but these beside metadata; other kinds may have a name of their own there.
_GROUPS = frozenset(("", "apps", "batch", "resource.k8s.io", "scheduling.k8s.io"))


def move_names(found: Object) -> None:
    """`name:` at the top belongs into metadata."""
    if found.group not in _GROUPS:
        return
    value = dict(found.present)
    metadata = dict(mapping(value.get("metadata")))
    for key in _METADATA:
        if key in value and key not in metadata:
            metadata[key] = value.pop(key)
            why = f"top-level {key}: looks like metadata.{key}"
            found.book.change((key,), key, f"metadata.{key}", why, rule="misplaced-name")
            head: dict[str, Any] = {
                name: value.pop(name) for name in ("apiVersion", "kind", "metadata") if name in value
            }
            value = {**head, "metadata": metadata, **value}
    found.value = value


def mend_quotes(found: Object) -> None:
    """Texts that stand in quotes of print as a whole, which YAML takes for part of the text."""
    found.value = _mended(found.present, (), found)


def _mended(value: Any, path: Path, found: Object) -> Any:
    if isinstance(value, dict):
        return {key: _mended(item, (*path, key), found) for key, item in value.items()}
    if isinstance(value, list):
        return [_mended(item, (*path, index), found) for index, item in enumerate(value)]
    if not isinstance(value, str) or not is_quoted_in_print(value):
        return value
    # Quotes inside stay as they are unless they are of print too, as in a quoted expression.
    new = with_plain_quotes(value)[1:-1]
    why = "typographic quotes are part of the text in YAML"
    found.book.change(path, value, new, why, rule="typographic-quotes", confidence=Confidence.LIKELY)
    return new
