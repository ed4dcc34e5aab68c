"""Pod: the rules that device allocation depends on, and what every pod must have.

Knows metadata, containers with their resources and claims, pod-level claims and the scheduling group. Other parts of a
pod (volumes, probes, security, ...) are kept unchanged and not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allot.core.model.core_v1 import (
    Container,
    ContainerResourceClaim,
    Pod,
    PodResourceClaim,
    PodSchedulingGroup,
    PodSpec,
    ResourceRequirements,
)
from allot.core.validation import formats
from allot.core.validation.fields import (
    Findings,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_found,
    required,
)
from allot.core.validation.names import check_label
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update
from allot.core.validation.pod_resources import check_resources, container_resource_name, pod_resource_name

MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror"

# Upstream lists all names with every wrong reference.
_LISTED_CLAIMS_MAX = 100
_ONE_SOURCE = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
_TWO_SOURCES = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_create(pod: Pod) -> Findings:
    """A new pod."""
    found = _check_meta_and_spec(pod)
    if pod.spec.ephemeral_containers:
        found.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if pod.spec.node_name and pod.spec.scheduling_gates:
        found.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


def check_update(new: Pod, old: Pod, new_spec: Mapping[str, Any], old_spec: Mapping[str, Any]) -> Findings:
    """A changed pod; the whole specs are compared as JSON, since most of a pod is not modelled."""
    found = check_object_meta_update(new.metadata, old.metadata) + _check_meta_and_spec(new)
    for name, containers, before in (
        ("containers", new.spec.containers, old.spec.containers),
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
    ):
        if len(containers) != len(before):
            return [*found, forbidden(child("spec", name), "pod updates may not add or remove containers")]
    if _frozen_part(new_spec) != _frozen_part(old_spec):
        found.append(forbidden("spec", f"pod updates may not change fields other than {_UPDATABLE}"))
    return found


def _frozen_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec without mutable fields."""
    frozen = {
        name: value
        for name, value in spec.items()
        if name not in ("tolerations", "activeDeadlineSeconds", "schedulingGates", "nodeName")
    }
    for name in ("containers", "initContainers"):
        frozen[name] = [
            {field: value for field, value in container.items() if field != "image"}
            for container in spec.get(name) or ()
        ]
    return frozen


def _check_meta_and_spec(pod: Pod) -> Findings:
    found = check_object_meta(pod.metadata, namespaced=True)
    return found + check_pod_spec(pod.spec, pod.metadata.annotations, "spec")


def check_pod_spec(spec: PodSpec, annotations: Mapping[str, str], path: str) -> Findings:
    """The spec of a pod or of a pod template."""
    claims = frozenset(claim.name for claim in spec.resource_claims if claim.name)
    found = _check_claims(spec.resource_claims, annotations, child(path, "resourceClaims"))
    found += _check_containers(spec, claims, path)
    if spec.resources is not None:
        found += _check_pod_resources(spec.resources, claims, child(path, "resources"))
    if spec.node_name:
        for message in formats.dns_subdomain(spec.node_name):
            found.append(invalid(child(path, "nodeName"), spec.node_name, message))
    if spec.scheduling_group is not None:
        found += _check_scheduling_group(spec.scheduling_group, child(path, "schedulingGroup"))
    return found


def _check_claims(claims: Sequence[PodResourceClaim], annotations: Mapping[str, str], path: str) -> Findings:
    if claims and MIRROR_POD_ANNOTATION in annotations:
        # Upstream reports this on an empty path, which prints as [].
        return [forbidden("[]", "static pods do not support resource claims")]
    found: Findings = []
    names = set()
    for position, claim in enumerate(claims):
        where = index(path, position)
        if not claim.name:
            found.append(required(child(where, "name")))
        elif claim.name in names:
            found.append(duplicate(child(where, "name"), claim.name))
        else:
            found += check_label(claim.name, child(where, "name"))
            names.add(claim.name)
        found += _check_source(claim, where)
    return found


def _check_source(claim: PodResourceClaim, path: str) -> Findings:
    found: Findings = []
    sources = (
        ("resourceClaimName", claim.resource_claim_name),
        ("resourceClaimTemplateName", claim.resource_claim_template_name),
    )
    given = sum(name is not None for _, name in sources)
    if given != 1:
        shown = {
            "Name": claim.name,
            "ResourceClaimName": claim.resource_claim_name,
            "ResourceClaimTemplateName": claim.resource_claim_template_name,
        }
        found.append(invalid(path, shown, _TWO_SOURCES if given else _ONE_SOURCE))
    for field, name in sources:
        if name is not None:
            found += [invalid(child(path, field), name, message) for message in formats.dns_subdomain(name)]
    return found


def _check_containers(spec: PodSpec, claims: frozenset[str], path: str) -> Findings:
    found: Findings = []
    names: set[str] = set()
    if not spec.containers:
        found.append(required(child(path, "containers")))
    groups = (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    )
    for field, containers in groups:
        for position, container in enumerate(containers):
            where = index(child(path, field), position)
            found += _check_container(container, claims, where)
            if container.name in names:
                found.append(duplicate(child(where, "name"), container.name))
            names.add(container.name)
            if field == "ephemeralContainers" and container.resources != ResourceRequirements():
                found.append(forbidden(child(where, "resources"), "cannot be set for an Ephemeral Container"))
    return found


def _check_container(container: Container, claims: frozenset[str], path: str) -> Findings:
    found: Findings = []
    if not container.name:
        found.append(required(child(path, "name")))
    else:
        found += check_label(container.name, child(path, "name"))
    if not container.image:
        found.append(required(child(path, "image")))
    elif container.image != container.image.strip():
        detail = "must not have leading or trailing whitespace"
        found.append(invalid(child(path, "image"), container.image, detail))
    found += check_resources(container.resources, child(path, "resources"), container_resource_name)
    return found + _check_claim_references(container.resources.claims, claims, child(path, "resources", "claims"))


def _check_pod_resources(resources: ResourceRequirements, claims: frozenset[str], path: str) -> Findings:
    found: Findings = []
    if resources.claims:
        found.append(forbidden(child(path, "claims"), "claims may not be set for Resources at pod-level"))
    found += check_resources(resources, path, pod_resource_name)
    return found + _check_claim_references(resources.claims, claims, child(path, "claims"))


def _check_claim_references(
    references: Sequence[ContainerResourceClaim], claims: frozenset[str], path: str
) -> Findings:
    """Claims that a container uses: each either once as a whole, or by request, but not both."""
    found: Findings = []
    whole: set[str] = set()
    requests: dict[str, set[str]] = {}
    known = _listed(claims)
    for position, reference in enumerate(references):
        where = index(path, position)
        if not reference.name:
            found.append(required(where))
            continue
        used = requests.setdefault(reference.name, set())
        if reference.name in whole:
            found.append(duplicate(where, reference.name))
        elif reference.request:
            found += check_label(reference.request, child(where, "request"))
            if reference.request in used:
                found.append(duplicate(where, f"{reference.name}/{reference.request}"))
            used.add(reference.request)
        else:
            found += [duplicate(where, reference.name) for _ in used]
            whole.add(reference.name)
        if reference.name not in claims:
            detail = f"must be one of the names in pod.spec.resourceClaims{known}"
            found.append(not_found(where, reference.name, detail))
    return found


def _listed(claims: frozenset[str]) -> str:
    if not claims:
        return " which is empty"
    names = sorted(claims)
    shown = ", ".join(names[:_LISTED_CLAIMS_MAX])
    return f": {shown}, ..." if len(names) > _LISTED_CLAIMS_MAX else f": {shown}"


def _check_scheduling_group(group: PodSchedulingGroup, path: str) -> Findings:
    where = child(path, "podGroupName")
    if group.pod_group_name is None:
        return [invalid(where, None, "must specify one of: `podGroupName`")]
    return [invalid(where, group.pod_group_name, message) for message in formats.dns_subdomain(group.pod_group_name)]
