"""Pods in any object: how they name claims, and node requirements that used to be in claims and classes."""

from __future__ import annotations

from typing import Any

from allot.core.advice.convert.changes import Confidence, shown
from allot.core.advice.convert.objects import RESOURCE_GROUP, Object, at, mapping, members, put, text, without
from allot.core.advice.convert.surroundings import NodeRequirement, Surroundings, classes_of
from allot.core.advice.places import Path
from allot.core.advice.pod_templates import CONTAINERS, pod_spec_paths

RULE = "pod-claims"
# The field's name, and what authors write.
_REFERENCES = {
    "resourceClaimName": "resourceClaimName",
    "resourceClaimTemplateName": "resourceClaimTemplateName",
    "resourceClaimTemplate": "resourceClaimTemplateName",
    "templateName": "resourceClaimTemplateName",
    "resourceClaim": "resourceClaimName",
    "claimName": "resourceClaimName",
}
# Former wrappers around the reference, and the version that removed them.
_WRAPPERS = {"source": "1.31", "claim": "1.26"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY: Path = ("affinity", "nodeAffinity", _REQUIRED)


def convert_pods(found: Object) -> None:
    """How the pods of an object name their claims."""
    for path in pod_spec_paths(found.present):
        spec = at(found.present, path)
        changed = _with_claims(spec, path, found)
        if changed != spec:
            found.value = put(found.present, path, changed)


def _with_claims(spec: dict[str, Any], path: Path, found: Object) -> dict[str, Any]:
    claims = spec.get("resourceClaims")
    if isinstance(claims, list):
        entries = [
            _entry(entry, (*path, "resourceClaims", index), found) if isinstance(entry, dict) else entry
            for index, entry in enumerate(claims)
        ]
        spec = {**spec, "resourceClaims": entries}
    for key in CONTAINERS:
        containers = spec.get(key)
        if isinstance(containers, list):
            changed = [
                _container(container, (*path, key, index), found) if isinstance(container, dict) else container
                for index, container in enumerate(containers)
            ]
            spec = {**spec, key: changed}
    if "workloadRef" in spec:
        found.book.error(
            (*path, "workloadRef"),
            f"workloadRef: {shown(spec['workloadRef'])} was replaced in 1.36 by schedulingGroup, which names a PodGroup",
            rule=RULE,
            hint="create a PodGroup with workloadRef and templateName, and refer to it in spec.schedulingGroup.podGroupName",
        )
    return spec


def _entry(entry: dict[str, Any], path: Path, found: Object) -> dict[str, Any]:
    """One of the pod's claims: without the `source` wrapper, and with the right field name."""
    result = entry
    for wrapper in _WRAPPERS:
        if wrapper not in entry:
            continue
        inner = mapping(entry[wrapper])
        if not inner or set(inner) & set(entry):
            message = f"{wrapper} is {shown(entry[wrapper])}: expected a claim or a template"
            found.book.error((*path, wrapper), message, rule=RULE)
            return entry
        why = f"{wrapper} was removed in Kubernetes {_WRAPPERS[wrapper]}"
        found.book.change((*path, wrapper), {wrapper: entry[wrapper]}, inner, why, rule="claim-source")
        path = (*path, wrapper)
        result = {**without(entry, wrapper), **inner}
    if "template" in result:
        found.book.error(
            (*path, "template"),
            "template: a pod refers to a ResourceClaimTemplate, and cannot contain one",
            rule=RULE,
            hint="make it a ResourceClaimTemplate, and refer to it in resourceClaimTemplateName",
        )
    for written, right in _REFERENCES.items():
        if written == right or written not in result:
            continue
        if right in result or not isinstance(result[written], str):
            hint = "refer to a ResourceClaimTemplate in resourceClaimTemplateName"
            message = f"{written} is {shown(result[written])}: expected a name"
            found.book.error((*path, written), message, rule=RULE, hint=hint)
            continue
        why = f"the field is called {right}"
        found.book.change((*path, written), written, right, why, rule="misspelt-claim", confidence=Confidence.LIKELY)
        result = {right if key == written else key: item for key, item in result.items()}
    return result


def _container(container: dict[str, Any], path: Path, found: Object) -> dict[str, Any]:
    resources = mapping(container.get("resources"))
    claims = resources.get("claims")
    if not isinstance(claims, list) or not any(isinstance(claim, str) for claim in claims):
        return container
    named = [{"name": claim} if isinstance(claim, str) else claim for claim in claims]
    why = "a container refers to a claim with an object that has its name"
    where = (*path, "resources", "claims")
    found.book.change(where, claims, named, why, rule=RULE, confidence=Confidence.LIKELY)
    return {**container, "resources": {**resources, "claims": named}}


# --- nodes ---


def require_nodes(around: Surroundings) -> None:
    """Move node requirements of claims and classes to their pods."""
    for requirement in around.requirements:
        users = [
            (found, path)
            for found in around.objects
            if found.value is not None
            for path in pod_spec_paths(found.present)
            if _uses(requirement, found, path, around)
        ]
        field = requirement.path[-1]
        asked = shown(requirement.labels if requirement.labels is not None else requirement.terms)
        if not users:
            requirement.owner.book.error(
                requirement.path,
                f"{field}: {asked} restricts nodes, which only pods can do, but no pod of the input uses {requirement.owner}",
                rule="node-restriction",
                hint="add the file with the pods, or put a nodeSelector or affinity into them and remove it here",
            )
            continue
        whose = ", ".join(f"{found}" for found, _ in users)
        requirement.owner.book.change(
            requirement.path,
            {field: requirement.labels or requirement.terms},
            f"nodes of {whose}",
            "claims and classes no longer choose nodes; their pods do",
            rule="node-restriction",
            confidence=Confidence.LIKELY,
        )
        for found, path in users:
            _require(requirement, found, path)


def _uses(requirement: NodeRequirement, found: Object, path: Path, around: Surroundings) -> bool:
    claims = [mapping(entry) for entry in members(at(found.present, (*path, "resourceClaims")))]
    if requirement.kind == "DeviceClass":
        return any(requirement.name in classes_of(_claim_spec(entry, found.namespace, around)) for entry in claims)
    field = "resourceClaimTemplateName" if requirement.kind == "ResourceClaimTemplate" else "resourceClaimName"
    return found.namespace == requirement.namespace and any(entry.get(field) == requirement.name for entry in claims)


def _claim_spec(entry: dict[str, Any], namespace: str, around: Surroundings) -> Any:
    """The spec of the claim or template that a pod's entry names, as converted."""
    for field, kind, path in (
        ("resourceClaimName", "ResourceClaim", ("spec",)),
        ("resourceClaimTemplateName", "ResourceClaimTemplate", ("spec", "spec")),
    ):
        name = text(entry.get(field))
        for found in around.objects:
            if (
                name
                and found.group == RESOURCE_GROUP
                and (found.kind, found.namespace, found.name) == (kind, namespace, name)
            ):
                return at(found.value, path)
    return None


def _require(requirement: NodeRequirement, found: Object, path: Path) -> None:
    spec = at(found.present, path)
    made = (
        _with_labels(requirement, found, spec)
        if requirement.labels is not None
        else _with_terms(requirement, found, spec)
    )
    if made is not None and made != {key: spec[key] for key in made if key in spec}:
        found.value = put(found.present, path, {**spec, **made})
        why = f"{requirement.owner} asked for these nodes"
        found.book.change(path, None, made, why, rule="node-restriction", confidence=Confidence.LIKELY)


def _with_labels(requirement: NodeRequirement, found: Object, spec: dict[str, Any]) -> dict[str, Any] | None:
    """The pod's node selector with the labels; None, with an error, if they conflict."""
    labels, selector = requirement.labels or {}, mapping(spec.get("nodeSelector"))
    for key, label in labels.items():
        if selector.get(key, label) != label:
            requirement.owner.book.error(
                (*requirement.path, key),
                f"{key}: {label} contradicts {found}, which asks for nodes with {key}: {shown(selector[key])}",
                rule="node-restriction",
            )
            return None
    return {"nodeSelector": {**selector, **labels}}


def _with_terms(requirement: NodeRequirement, found: Object, spec: dict[str, Any]) -> dict[str, Any] | None:
    """The pod's affinity with the terms; None, with an error, if it already has terms."""
    required = {"nodeSelectorTerms": requirement.terms}
    if at(spec, _AFFINITY) not in (None, required):
        requirement.owner.book.error(
            requirement.path,
            f"{found} has its own node affinity in addition to {requirement.path[-1]}: {shown(requirement.terms)}",
            rule="node-restriction",
            hint="combine both in the terms of the pod, and remove them here",
        )
        return None
    affinity = mapping(spec.get("affinity"))
    return {"affinity": {**affinity, "nodeAffinity": {**mapping(affinity.get("nodeAffinity")), _REQUIRED: required}}}
