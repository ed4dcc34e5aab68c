"""Pod status: what the claim controller, the scheduler and kubelets report about devices."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.model.core_v1 import (
    Container,
    ContainerStatus,
    NodeAllocatableResourceClaimStatus,
    Pod,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    ResourceHealth,
)
from allot.core.validation import formats
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from allot.core.validation.names import check_label
from allot.core.validation.node_allocatable import (
    MUST_BE_NODE_ALLOCATABLE,
    check_overhead_amounts,
    is_node_allocatable,
)
from allot.core.validation.object_meta import check_object_meta_update

HEALTH_MESSAGE_LENGTH_MAX = 1024
HEALTH_VALUES = ("Healthy", "Unhealthy", "Unknown")

_CLAIM_PREFIX = "claim:"
_MUST_MATCH_CLAIM = "must match the name of an entry in `spec.resourceClaims`"
_MUST_MATCH_CONTAINER = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
_MUST_MATCH_RESOURCE = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests "
    "or spec.containers.resources.requests"
)
_MUST_MATCH_CONTAINER_CLAIM = (
    "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when "
    "container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
)
_MUST_MATCH_REQUEST = "must match one of the container's resource requests"


def check_status_update(new: Pod, old: Pod) -> Findings:
    """A write to the status subresource."""
    status, spec = new.status, new.spec
    found = check_object_meta_update(new.metadata, old.metadata)
    found += check_claim_statuses(
        status.resource_claim_statuses, spec.resource_claims, "status.resourceClaimStatuses", unique=True
    )
    extended = status.extended_resource_claim_status
    if extended is not None:
        found += _check_extended(extended, spec, "status.extendedResourceClaimStatus")
    known = frozenset(claim.resource_claim_name for claim in spec.resource_claims)
    known |= {recorded.resource_claim_name for recorded in status.resource_claim_statuses}
    for position, entry in enumerate(status.node_allocatable_resource_claim_statuses):
        found += _check_allocatable(entry, known, index("status.nodeAllocatableResourceClaimStatuses", position))
    for name, statuses, containers in (
        ("containerStatuses", status.container_statuses, spec.containers),
        ("initContainerStatuses", status.init_container_statuses, spec.init_containers),
    ):
        found += _check_health(statuses, containers, extended, child("status", name))
    for position, container in enumerate(status.ephemeral_container_statuses):
        if container.allocated_resources_status:
            where = child(index("status.ephemeralContainerStatuses", position), "allocatedResourcesStatus")
            found.append(forbidden(where, "must not be specified in container status"))
    return found


def check_claim_statuses(
    statuses: Sequence[PodResourceClaimStatus], claims: Sequence[PodResourceClaim], path: str, *, unique: bool
) -> Findings:
    """Claims recorded for entries of the spec."""
    known = frozenset(claim.name for claim in claims)
    found: Findings = []
    names = set()
    for position, status in enumerate(statuses):
        where = index(path, position)
        if status.name not in known:
            found.append(invalid(child(where, "name"), status.name, _MUST_MATCH_CLAIM))
        if unique and status.name in names:
            found.append(duplicate(child(where, "name"), status.name))
        names.add(status.name)
        if status.resource_claim_name is not None:
            for message in formats.dns_subdomain(status.resource_claim_name):
                found.append(invalid(child(where, "resourceClaimName"), status.resource_claim_name, message))
    return found


def _check_extended(status: PodExtendedResourceClaimStatus, spec: PodSpec, path: str) -> Findings:
    found: Findings = []
    mappings_path = child(path, "requestMappings")
    if not status.request_mappings:
        found.append(required(mappings_path, "at least one request mapping is required"))
    containers = {container.name: container for container in (*spec.init_containers, *spec.containers)}
    seen = set()
    for position, mapping in enumerate(status.request_mappings):
        where = index(mappings_path, position)
        container = containers.get(mapping.container_name)
        if container is None:
            found.append(invalid(child(where, "containerName"), mapping.container_name, _MUST_MATCH_CONTAINER))
        elif mapping.resource_name not in container.resources.requests:
            found.append(invalid(child(where, "resourceName"), mapping.resource_name, _MUST_MATCH_RESOURCE))
        # Upstream's path lacks the mapping's index, too.
        found += check_label(mapping.request_name, child(path, "requestName"))
        if mapping in seen:
            found.append(duplicate(child(where, "containerName"), mapping.container_name))
            found.append(duplicate(child(where, "resourceName"), mapping.resource_name))
            found.append(duplicate(child(where, "requestName"), mapping.request_name))
        seen.add(mapping)
    if not status.resource_claim_name:
        found.append(required(child(path, "resourceClaimName")))
    for message in formats.dns_subdomain(status.resource_claim_name) if status.resource_claim_name else ():
        found.append(invalid(child(path, "resourceClaimName"), status.resource_claim_name, message))
    return found


def _check_allocatable(entry: NodeAllocatableResourceClaimStatus, known: frozenset[str | None], path: str) -> Findings:
    if not entry.resource_claim_name:
        return []
    found: Findings = []
    if entry.resource_claim_name not in known:
        where = child(path, "resourceClaimName")
        found.append(invalid(where, entry.resource_claim_name, "no mapping found in pod reference"))
    for position, mapping in enumerate(entry.mapping):
        where = index(child(path, "mapping"), position)
        if not is_node_allocatable(mapping.name):
            found.append(invalid(child(where, "name"), mapping.name, MUST_BE_NODE_ALLOCATABLE))
        if mapping.quantity is not None and mapping.quantity.sign() < 0:
            found.append(invalid(child(where, "quantity"), mapping.quantity, "must be non-negative"))
    for position, overhead in enumerate(entry.overhead):
        where = index(child(path, "overhead"), position)
        if not is_node_allocatable(overhead.name):
            found.append(invalid(child(where, "name"), overhead.name, MUST_BE_NODE_ALLOCATABLE))
        found += check_overhead_amounts(overhead.per_pod, overhead.per_container, where)
    return found


def _check_health(
    statuses: Sequence[ContainerStatus], containers: Sequence[Container],
    extended: PodExtendedResourceClaimStatus | None, path: str,
) -> Findings:  # fmt: skip
    expected: dict[str, frozenset[str]] = {}
    for container in containers:
        if container.name not in expected:
            expected[container.name] = _resource_names(container, extended)
    found: Findings = []
    for position, status in enumerate(statuses):
        for number, resource in enumerate(status.allocated_resources_status):
            where = index(child(index(path, position), "allocatedResourcesStatus"), number)
            if status.name in expected and resource.name not in expected[status.name]:
                claimed = resource.name.startswith(_CLAIM_PREFIX)
                detail = _MUST_MATCH_CONTAINER_CLAIM if claimed else _MUST_MATCH_REQUEST
                found.append(invalid(child(where, "name"), resource.name, detail))
            found += _check_device_health(resource.resources, child(where, "resources"))
    return found


def _resource_names(container: Container, extended: PodExtendedResourceClaimStatus | None) -> frozenset[str]:
    """The names under which a container's devices may be reported: by claim, by extended resource claim, by requested resource."""
    names = {name for name in container.resources.requests if not name.startswith(_CLAIM_PREFIX)}
    for claim in container.resources.claims:
        names.add(f"{_CLAIM_PREFIX}{claim.name}" + (f"/{claim.request}" if claim.request else ""))
    for mapping in extended.request_mappings if extended is not None else ():
        requested = bool(container.resources.requests.get(mapping.resource_name))
        if extended is not None and mapping.container_name == container.name and mapping.request_name and requested:
            names.add(f"{_CLAIM_PREFIX}{extended.resource_claim_name}/{mapping.request_name}")
    return frozenset(names)


def _check_device_health(devices: Sequence[ResourceHealth], path: str) -> Findings:
    found: Findings = []
    seen = set()
    for position, device in enumerate(devices):
        where = index(path, position)
        if device.health not in HEALTH_VALUES:
            found.append(not_supported(child(where, "health"), device.health, HEALTH_VALUES))
        if device.message == "":
            found.append(required(child(where, "message"), "must be non-empty if specified"))
        elif device.message is not None and byte_length(device.message) > HEALTH_MESSAGE_LENGTH_MAX:
            found.append(too_long(child(where, "message"), HEALTH_MESSAGE_LENGTH_MAX))
        if device.resource_id in seen:
            found.append(duplicate(child(where, "resourceID"), device.resource_id))
        seen.add(device.resource_id)
    return found
