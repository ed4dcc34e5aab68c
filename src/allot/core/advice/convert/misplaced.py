"""Common mistakes in any object: names beside `metadata`, and strings in typographic quotes."""

from __future__ import annotations

from typing import Any

from allot.core.advice.convert.changes import Confidence
from allot.core.advice.convert.objects import Object, mapping
from allot.core.advice.places import Path
from allot.core.advice.typography import is_quoted_in_print, with_plain_quotes

_METADATA = ("name", "generateName", "namespace", "labels", "annotations")
# Groups whose kinds have only these fields beside metadata; other kinds may have a `name` there.
_GROUPS = frozenset(("", "apps", "batch", "resource.k8s.io", "scheduling.k8s.io"))


def move_names(found: Object) -> None:
    """`name:` at the top level belongs in metadata."""
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
    """Strings entirely in typographic quotes, which YAML treats as part of the string."""
    found.value = _mended(found.present, (), found)


def _mended(value: Any, path: Path, found: Object) -> Any:
    if isinstance(value, dict):
        return {key: _mended(item, (*path, key), found) for key, item in value.items()}
    if isinstance(value, list):
        return [_mended(item, (*path, index), found) for index, item in enumerate(value)]
    if not isinstance(value, str) or not is_quoted_in_print(value):
        return value
    # Inner quotes stay unless they are typographic too, as in a quoted expression.
    new = with_plain_quotes(value)[1:-1]
    why = "typographic quotes are part of the text in YAML"
    found.book.change(path, value, new, why, rule="typographic-quotes", confidence=Confidence.LIKELY)
    return new
