"""The annotation in which client-side apply remembers what it applied, for those who move on to server-side apply."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.patching.comparison import all_changes, configured_fields
from allot.core.patching.fieldset import LEAF, Tree, difference
from allot.core.patching.typed import type_problem
from allot.core.schema import Schema

Object = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# All annotations of an object together, in bytes.
_ANNOTATIONS_BYTES_MAX = 256 * 1024


def allowed_by_last_applied(live: Object, schema: Schema, api_version: str) -> Tree:
    """The fields that client-side apply set and that are still as it set them."""
    text = _annotations(live).get(LAST_APPLIED)
    if not isinstance(text, str) or not text:
        return LEAF
    try:
        config = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return LEAF
    if not isinstance(config, dict) or config.get("apiVersion") != api_version or type_problem(config, schema):
        return LEAF
    return difference(configured_fields(config, schema), all_changes(config, live, schema))


def with_last_applied(object_: Object, applied: Object) -> Object:
    """The object with the annotation brought up to date, if it has one."""
    annotations = _annotations(object_)
    if not annotations.get(LAST_APPLIED):
        return object_
    config = applied
    if LAST_APPLIED in _annotations(applied):
        left = {name: value for name, value in _annotations(applied).items() if name != LAST_APPLIED}
        config = {**applied, "metadata": {**applied["metadata"], "annotations": left}}
    text = msgspec.json.encode(config, order="sorted").decode() + "\n"
    new = {**annotations, LAST_APPLIED: text}
    if sum(len(str(name).encode()) + len(str(value).encode()) for name, value in new.items()) > _ANNOTATIONS_BYTES_MAX:
        del new[LAST_APPLIED]
    return {**object_, "metadata": {**object_["metadata"], "annotations": new}}


def _annotations(object_: Object) -> dict[str, Any]:
    metadata = object_.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}
