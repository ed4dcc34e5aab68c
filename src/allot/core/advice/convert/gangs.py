"""Pod groups: earlier versions of scheduling.k8s.io, and the dialects of other schedulers.

A group of another scheduler works where that scheduler runs, so it is converted only on request. Fields without an
equivalent are reported when they are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from allot.core.advice.convert.changes import Confidence, shown
from allot.core.advice.convert.objects import Object, at, mapping, put, text, without
from allot.core.advice.places import Path
from allot.core.advice.pod_templates import pod_spec_paths

RULE = "pod-group"
GROUP = "scheduling.k8s.io"
_PRIORITY = "priorityClassName"
API_VERSION = "scheduling.k8s.io/v1beta1"
_OLD_VERSIONS = frozenset((f"{GROUP}/v1alpha1", f"{GROUP}/v1alpha2", f"{GROUP}/v1alpha3"))
_DISRUPTION: dict[str, dict[str, Any]] = {"Pod": {"single": {}}, "PodGroup": {"all": {}}}


class _Dialect(msgspec.Struct, frozen=True):
    """The pod groups of another scheduler."""

    scheduler: str
    # How pods name their group: a map of their metadata, and the key in it.
    marks: tuple[tuple[str, str], ...]
    scheduler_names: tuple[str, ...]


_DIALECTS = {
    "scheduling.x-k8s.io": _Dialect(
        "scheduler-plugins (coscheduling), not of KAI, whose group is scheduling.run.ai/v2alpha2",
        (("labels", "scheduling.x-k8s.io/pod-group"), ("labels", "pod-group.scheduling.sigs.k8s.io")),
        ("scheduler-plugins-scheduler",),
    ),
    "scheduling.volcano.sh": _Dialect(
        "Volcano",
        (("annotations", "scheduling.k8s.io/group-name"), ("annotations", "scheduling.volcano.sh/group-name")),
        ("volcano",),
    ),
    "scheduling.run.ai": _Dialect("KAI", (("annotations", "pod-group-name"),), ("kai-scheduler",)),
}


# --- earlier versions of scheduling.k8s.io ---


def convert_groups(found: Object) -> None:
    """PodGroup and Workload of the alpha versions to v1beta1."""
    if found.api_version not in _OLD_VERSIONS or found.kind not in ("PodGroup", "Workload"):
        return
    why = "v1beta1 is the version to use"
    found.book.change(("apiVersion",), found.api_version, API_VERSION, why, rule="old-api-version")
    value = {**found.present, "apiVersion": API_VERSION}
    spec = value.get("spec")
    if isinstance(spec, dict):
        value["spec"] = (
            _pod_group_spec(spec, ("spec",), found) if found.kind == "PodGroup" else _workload_spec(spec, found)
        )
    found.value = value


def _pod_group_spec(spec: dict[str, Any], path: Path, found: Object) -> dict[str, Any]:
    reference = mapping(at(spec, ("podGroupTemplateRef", "workload")))
    if reference:
        renamed = {"workloadName": reference.get("workloadName"), "templateName": reference.get("podGroupTemplateName")}
        why = "renamed in Kubernetes 1.37"
        found.book.change((*path, "podGroupTemplateRef"), reference, {"workloadRef": renamed}, why, rule=RULE)
        spec = {**without(spec, "podGroupTemplateRef"), "workloadRef": renamed}
    return _with_disruption(_with_policy(spec, path, found), path, found)


def _workload_spec(spec: dict[str, Any], found: Object) -> dict[str, Any]:
    path: Path = ("spec",)
    if "podGroups" in spec and "podGroupTemplates" not in spec:
        why = "renamed after Kubernetes 1.35"
        found.book.change((*path, "podGroups"), "podGroups", "podGroupTemplates", why, rule=RULE)
        spec = {"podGroupTemplates" if key == "podGroups" else key: item for key, item in spec.items()}
    templates = spec.get("podGroupTemplates")
    if isinstance(templates, list):
        changed = [
            _with_disruption(_with_policy(item, (*path, "podGroups", index), found), (*path, "podGroups", index), found)
            if isinstance(item, dict)
            else item
            for index, item in enumerate(templates)
        ]
        spec = {**spec, "podGroupTemplates": changed}
    return spec


def _with_policy(spec: dict[str, Any], path: Path, found: Object) -> dict[str, Any]:
    if "policy" not in spec or "schedulingPolicy" in spec:
        return spec
    found.book.change((*path, "policy"), "policy", "schedulingPolicy", "renamed after Kubernetes 1.35", rule=RULE)
    return {"schedulingPolicy" if key == "policy" else key: item for key, item in spec.items()}


def _with_disruption(spec: dict[str, Any], path: Path, found: Object) -> dict[str, Any]:
    mode = spec.get("disruptionMode")
    if not isinstance(mode, str):
        return spec
    if mode not in _DISRUPTION:
        message = f"disruptionMode is {mode}: expected {' or '.join(_DISRUPTION)}"
        found.book.error((*path, "disruptionMode"), message, rule=RULE)
        return spec
    new = _DISRUPTION[mode]
    found.book.change((*path, "disruptionMode"), mode, new, "an object since Kubernetes 1.37", rule=RULE)
    return {**spec, "disruptionMode": new}


# --- other schedulers ---


def convert_gangs(objects: Sequence[Object], *, wanted: bool) -> None:
    """Other schedulers' groups to scheduling.k8s.io, with the pods that name them; just a warning if not requested."""
    groups = [
        found for found in objects if found.kind == "PodGroup" and found.group in _DIALECTS and found.value is not None
    ]
    for found in groups:
        dialect = _DIALECTS[found.group]
        if wanted:
            _convert_group(found, dialect)
        else:
            found.book.warning(
                ("apiVersion",),
                f"{found.api_version} PodGroup is a group of {dialect.scheduler}, and needs its CRD and its scheduler",
                rule=RULE,
                hint="--gangs converts it to a PodGroup of scheduling.k8s.io, which Kubernetes' own scheduler and allot's support",
            )
    if wanted:
        for found in objects:
            if found.value is not None:
                _convert_members(found)
        for group in groups:
            _share_priority(group, objects)


def _convert_group(found: Object, dialect: _Dialect) -> None:
    spec = mapping(found.present.get("spec"))
    count = spec.get("minMember", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        found.book.error(("spec", "minMember"), f"minMember is {shown(count)}: expected a number from 1", rule=RULE)
        return
    made: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": count}}}
    why = f"a group of {dialect.scheduler}; in scheduling.k8s.io a gang of {count}"
    found.book.change(("spec", "minMember"), f"minMember: {count}", made, why, rule=RULE, confidence=Confidence.LIKELY)
    for key, value in spec.items():
        if key == "priorityClassName":
            made[key] = value
        elif key != "minMember":
            message = f"{key}: {shown(value)} has no equivalent in a PodGroup of scheduling.k8s.io and was left out"
            found.book.warning(("spec", key), message, rule=RULE)
    found.book.change(("apiVersion",), found.api_version, API_VERSION, why, rule=RULE, confidence=Confidence.LIKELY)
    kept = {key: item for key, item in found.present.items() if key == "metadata"}
    found.value = {"apiVersion": API_VERSION, "kind": "PodGroup", **kept, "spec": made}


def _share_priority(group: Object, objects: Sequence[Object]) -> None:
    """Align the priorities of a group and its pods: scheduling.k8s.io refuses a group if they differ."""
    if group.api_version == API_VERSION or group.present.get("apiVersion") != API_VERSION:
        return
    pods = [
        (found, path)
        for found in objects
        if found.value is not None and found.namespace == group.namespace
        for path in pod_spec_paths(found.present)
        if at(found.present, (*path, "schedulingGroup", "podGroupName")) == group.name
    ]
    everyone: list[tuple[Object, Path]] = [(group, ("spec",)), *pods]
    named = sorted({text(at(found.present, (*path, _PRIORITY))) for found, path in everyone} - {""})
    if len(named) > 1:
        message = f"the group and its pods have different priority classes: {', '.join(named)}"
        group.book.error(("spec", _PRIORITY), message, rule=RULE, hint="set the same priorityClassName on all of them")
        return
    why = "a group and its pods must have the same priority"
    for found, path in everyone if named and pods else ():
        if _PRIORITY not in at(found.present, path):
            found.value = put(found.present, (*path, _PRIORITY), named[0])
            added = {_PRIORITY: named[0]}
            found.book.change(path, None, added, why, rule=RULE, confidence=Confidence.LIKELY)


def _convert_members(found: Object) -> None:
    """Pods that name their group in a label or annotation now name it in their spec."""
    for path in pod_spec_paths(found.present):
        if path[-1:] != ("spec",):
            continue
        metadata = mapping(at(found.present, (*path[:-1], "metadata")))
        for dialect in _DIALECTS.values():
            for map_name, key in dialect.marks:
                name = mapping(metadata.get(map_name)).get(key)
                if isinstance(name, str) and name:
                    _name_group(found, path, dialect, map_name, key, name)


def _name_group(found: Object, path: Path, dialect: _Dialect, map_name: str, key: str, name: str) -> None:
    spec = at(found.present, path)
    if mapping(spec.get("schedulingGroup")).get("podGroupName", name) != name:
        message = f"{key}: {name} is another group than the one in spec.schedulingGroup"
        found.book.error((*path[:-1], "metadata", map_name, key), message, rule=RULE)
        return
    changed = {**spec, "schedulingGroup": {"podGroupName": name}}
    if spec.get("schedulerName") in dialect.scheduler_names:
        why = "the group is for Kubernetes' own scheduler now"
        scheduler = spec["schedulerName"]
        del changed["schedulerName"]
        where = (*path, "schedulerName")
        found.book.change(where, scheduler, None, why, rule=RULE, confidence=Confidence.LIKELY)
    value = put(found.present, path, changed)
    marks = without(at(value, (*path[:-1], "metadata", map_name)), key)
    metadata = at(value, (*path[:-1], "metadata"))
    metadata = {**metadata, map_name: marks} if marks else without(metadata, map_name)
    found.value = put(value, (*path[:-1], "metadata"), metadata)
    found.book.change(
        (*path[:-1], "metadata", map_name, key),
        f"{key}: {name}",
        f"schedulingGroup.podGroupName: {name}",
        "pods refer to their group in their spec",
        rule=RULE,
        confidence=Confidence.LIKELY,
    )
