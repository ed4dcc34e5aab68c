"""PodGroup, CompositePodGroup and Workload: handwritten rules; most rules of these kinds are declarative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allot.core.model.scheduling_v1 import (
    TEMPLATE_DEPTH_MAX,
    CompositePodGroup,
    CompositePodGroupTemplate,
    PodGroup,
    PodGroupTemplate,
    Workload,
    WorkloadSpec,
)
from allot.core.validation.fields import Findings, GoValue, child, duplicate, go_json, index, invalid, required
from allot.core.validation.item_text import item_text
from allot.core.validation.object_meta import check_conditions, check_object_meta, check_object_meta_update

_MUST_MATCH_CLAIM = "must match the name of an entry in `spec.resourceClaims`"
_NO_CHILD = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
_MIXED_TEMPLATES = "detected multiple priority configurations"
_MIXED_TREE = "all priority and priorityClassName values must be identical, detected multiple values"


def check_create(group: PodGroup) -> Findings:
    """A new pod group."""
    found = check_object_meta(group.metadata, namespaced=True)
    if group.spec.parent_composite_pod_group_name is not None and group.spec.workload_ref is None:
        found.append(required("spec.workloadRef", "must be set when parentCompositePodGroupName is set"))
    return found


def check_update(new: PodGroup | CompositePodGroup, old: PodGroup | CompositePodGroup) -> Findings:
    """A changed group."""
    return check_object_meta_update(new.metadata, old.metadata)


def check_status_update(new: PodGroup, old: PodGroup) -> Findings:
    """A write to a pod group's status."""
    found = check_object_meta_update(new.metadata, old.metadata)
    found += check_conditions(new.status.conditions, "status.conditions")
    known = {claim.name for claim in new.spec.resource_claims}
    for position, status in enumerate(new.status.resource_claim_statuses):
        if status.name not in known:
            where = child(index("status.resourceClaimStatuses", position), "name")
            found.append(invalid(where, status.name, _MUST_MATCH_CLAIM))
    return found


def check_composite_create(group: CompositePodGroup) -> Findings:
    """A new composite group."""
    return check_object_meta(group.metadata, namespaced=True)


def check_composite_status_update(new: CompositePodGroup, old: CompositePodGroup) -> Findings:
    """A write to a composite group's status."""
    found = check_object_meta_update(new.metadata, old.metadata)
    return found + check_conditions(new.status.conditions, "status.conditions")


# --- Workload ---


def check_workload_create(workload: Workload) -> Findings:
    """A new workload."""
    return check_object_meta(workload.metadata, namespaced=True) + _check_workload_spec(workload.spec)


def check_workload_update(new: Workload, old: Workload) -> Findings:
    """A changed workload."""
    return check_object_meta_update(new.metadata, old.metadata) + _check_workload_spec(new.spec)


def _check_workload_spec(spec: WorkloadSpec, path: str = "spec") -> Findings:
    names = {template.name for template in spec.pod_group_templates}
    found = _check_composite_names(spec.composite_pod_group_templates, path, names)
    composites_path = child(path, "compositePodGroupTemplates")
    for position, template in enumerate(spec.composite_pod_group_templates):
        if _depth(template) >= TEMPLATE_DEPTH_MAX:
            shown = GoValue(go_json(item_text(template.composite_pod_group_templates)))
            detail = f"maximum template hierarchy depth is {TEMPLATE_DEPTH_MAX}"
            found.append(invalid(index(composites_path, position), shown, detail))
    found += _check_priorities(spec, path)
    for position, template in enumerate(spec.composite_pod_group_templates):
        found += _check_children(template, index(composites_path, position))
    return found


def _check_composite_names(templates: Sequence[CompositePodGroupTemplate], path: str, names: set[str]) -> Findings:
    """Names are unique over the whole tree; within one list that is a declarative rule."""
    found: Findings = []
    composites_path = child(path, "compositePodGroupTemplates")
    for position, template in enumerate(templates):
        if template.name in names:
            found.append(duplicate(child(index(composites_path, position), "name"), template.name))
    names.update(template.name for template in templates)
    for position, template in enumerate(templates):
        where = index(composites_path, position)
        for number, leaf in enumerate(template.pod_group_templates):
            if leaf.name in names:
                found.append(duplicate(child(index(child(where, "podGroupTemplates"), number), "name"), leaf.name))
        names.update(leaf.name for leaf in template.pod_group_templates)
        found += _check_composite_names(template.composite_pod_group_templates, where, names)
    return found


def _depth(template: CompositePodGroupTemplate) -> int:
    return 1 + max((_depth(below) for below in template.composite_pod_group_templates), default=0)


def _members(template: CompositePodGroupTemplate) -> Iterator[CompositePodGroupTemplate | PodGroupTemplate]:
    yield template
    for below in template.composite_pod_group_templates:
        yield from _members(below)
    yield from template.pod_group_templates


def _check_priorities(spec: WorkloadSpec, path: str) -> Findings:
    priorities = {(template.priority_class_name, template.priority) for template in spec.pod_group_templates}
    if len(priorities) > 1:
        return [invalid(path, None, _MIXED_TEMPLATES)]
    for template in spec.composite_pod_group_templates:
        priorities |= {(member.priority_class_name, member.priority) for member in _members(template)}
        if len(priorities) > 1:
            return [invalid(path, None, _MIXED_TREE)]
    return []


def _check_children(template: CompositePodGroupTemplate, path: str) -> Findings:
    found: Findings = []
    if not template.pod_group_templates and not template.composite_pod_group_templates:
        found.append(invalid(path, template.name, _NO_CHILD))
    for position, below in enumerate(template.composite_pod_group_templates):
        found += _check_children(below, index(child(path, "compositePodGroupTemplates"), position))
    return found
