"""Pod templates: labels and annotations, and the spec by both validators."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.model.codec import DecodeError, decode
from allot.core.model.core_v1 import PodSpec
from allot.core.quantity import Quantity, QuantityError
from allot.core.validation.builtin.pod_spec import check_spec
from allot.core.validation.builtin.values import Object, given, members
from allot.core.validation.fields import Findings, child, forbidden
from allot.core.validation.object_meta import check_annotations, check_labels
from allot.core.validation.pod import check_pod_spec


def check_template(template: Object, path: str) -> Findings:
    """A pod template in a workload."""
    spec, where = members(template, "spec"), child(path, "spec")
    labels, annotations = (_texts(template, name) for name in ("labels", "annotations"))
    found = check_labels(labels, child(path, "labels")) + check_annotations(annotations, child(path, "annotations"))
    typed = typed_spec(spec)
    if typed is not None:
        found += check_pod_spec(typed, annotations, where)
    found += check_spec(spec, where)
    if given(spec, "ephemeralContainers"):
        found.append(forbidden(child(where, "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
    return found


def _texts(template: Object, name: str) -> dict[str, str]:
    return {key: value for key, value in members(template, "metadata", name).items() if isinstance(value, str)}


def typed_spec(spec: Object) -> PodSpec | None:
    """The typed spec; None if invalid, which the schema reports."""
    try:
        return msgspec.convert(spec, PodSpec, dec_hook=_custom)
    except (msgspec.ValidationError, QuantityError):
        pass
    try:
        return decode(spec, PodSpec).object
    except DecodeError:
        return None


def _custom(type_: type, value: Any) -> Any:
    if type_ is Quantity and isinstance(value, str) and len(value) < 32:
        return Quantity.parse(value)
    raise msgspec.ValidationError(f"{value!r} needs a closer look")
