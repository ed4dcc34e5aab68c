"""Small objects of the built-in kinds, and what their rules say about them."""

from __future__ import annotations

from typing import Any

from allot.core.validation.builtin.registry import rules_for
from allot.core.validation.builtin.values import copied

Object = dict[str, Any]


def with_defaults(group: str, kind: str, object_: Object) -> Object:
    """The object as a server would read it."""
    value: Object = copied({"kind": kind, **object_})
    rules_for(group, kind).defaults(value)
    return value


def created(group: str, kind: str, object_: Object) -> Object:
    """The object as a server would store it."""
    value = with_defaults(group, kind, object_)
    rules = rules_for(group, kind)
    if rules.initial_status is not None:
        value["status"] = rules.initial_status(value)
    rules.prepare_create(value)
    return value


def errors(group: str, kind: str, object_: Object) -> list[str]:
    """What is wrong with a new object."""
    return [str(finding.error) for finding in rules_for(group, kind).check(created(group, kind, object_))]


def update_errors(group: str, kind: str, old: Object, new: Object, subresource: str = "") -> list[str]:
    """What is wrong with a change."""
    rules = rules_for(group, kind)
    before, after = created(group, kind, old), created(group, kind, new)
    if "status" in old:
        before["status"] = {**before.get("status", {}), **old["status"]}
    if subresource == "status":
        after["status"] = new.get("status", {})
    rules.prepare_update(after, before, subresource)
    return [str(finding.error) for finding in rules.check_update(after, before, subresource)]


def pod_spec(**more: Any) -> Object:
    """A spec with one container, of which members can be given with the prefix `c_`."""
    container = {"name": "c", "image": "i:1"} | {name[2:]: more.pop(name) for name in list(more) if name[:2] == "c_"}
    return {"containers": [container], **more}


def pod(**more: Any) -> Object:
    """A pod with such a spec."""
    return {"metadata": {"name": "p", "namespace": "d"}, "spec": pod_spec(**more)}


def workload(**spec: Any) -> Object:
    """A workload whose selector selects its template."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()}
    return {
        "metadata": {"name": "w", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template} | spec,
    }
