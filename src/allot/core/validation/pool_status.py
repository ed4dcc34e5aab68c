"""ResourcePoolStatusRequest: handwritten rules; nearly everything about this kind is declarative."""

from __future__ import annotations

from allot.core.model.resource_v1 import ResourcePoolStatusRequest
from allot.core.validation.fields import Findings, GoValue, go_json, invalid
from allot.core.validation.item_text import item_text
from allot.core.validation.object_meta import (
    IMMUTABLE_TEXT,
    check_conditions,
    check_object_meta,
    check_object_meta_update,
)


def check_create(request: ResourcePoolStatusRequest) -> Findings:
    """A new request."""
    return check_object_meta(request.metadata, namespaced=False)


def check_update(new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> Findings:
    """A changed request; a declarative rule keeps the spec immutable."""
    return check_object_meta_update(new.metadata, old.metadata)


def check_status_update(new: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest) -> Findings:
    """The status is written once; then it cannot be changed or cleared."""
    found = check_object_meta_update(new.metadata, old.metadata)
    if old.status is not None:
        if new.status != old.status:
            found.append(invalid("status", GoValue(go_json(item_text(new.status))), IMMUTABLE_TEXT))
        return found
    return found if new.status is None else found + check_conditions(new.status.conditions, "status.conditions")
