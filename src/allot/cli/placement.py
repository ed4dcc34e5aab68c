"""Places what manifests ask for on nodes, unit by unit.

A unit must be on one node: the claims of a pod, or a claim that no pod in the input uses. A unit is
tried on each node in input order and takes the first that fits; its devices then count as in use.
The allocator chooses the devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from allot.cli.errors import Unreadable
from allot.core.allocation import Allocated, AllocationError, Features, Inventory, Policy, Unallocatable, allocate
from allot.core.model import core_v1, resource_v1
from allot.core.model.meta import ObjectMeta
from allot.core.selectors import SelectorError, matches
from allot.reading.cluster import Cluster

_HOSTNAME_LABEL = "kubernetes.io/hostname"


class Unit(msgspec.Struct, frozen=True):
    """Claims that must be allocated for the same node."""

    name: str
    claims: tuple[resource_v1.ResourceClaim, ...]
    # The node of a pod with nodeName.
    node_name: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why a unit does not fit on a node: an answer of the allocator, or an error that concerns the node."""

    node: str
    answer: Unallocatable | None = None
    error: str | None = None


class Placement(msgspec.Struct, frozen=True):
    """The node and devices of a unit, or why it has none."""

    unit: Unit
    node: str | None = None
    # The claims that were allocated now, in the order of `results`.
    claims: tuple[resource_v1.ResourceClaim, ...] = ()
    results: tuple[resource_v1.AllocationResult, ...] | None = None
    error: str | None = None
    refusals: tuple[Refusal, ...] = ()


def inventory_of(cluster: Cluster, features: Features) -> Inventory:
    """Everything that is published, and everything that is in use."""
    inventory = Inventory(features=features)
    for class_ in cluster.of(resource_v1.DeviceClass):
        inventory.put_class(class_)
    for slice_ in cluster.of(resource_v1.ResourceSlice):
        inventory.put_slice(slice_)
    for rule in cluster.of(resource_v1.DeviceTaintRule):
        inventory.put_taint_rule(rule)
    for claim in cluster.of(resource_v1.ResourceClaim):
        if claim.status.allocation is not None:
            inventory.put_claim(claim)
    return inventory


# --- nodes ---


def nodes_of(cluster: Cluster, wanted: str | None) -> list[core_v1.Node]:
    """The nodes to try. Without Node objects, one is assumed for each node that a slice names."""
    nodes = cluster.of(core_v1.Node) or [_assumed(name) for name in _nodes_named_by_slices(cluster)]
    if wanted is None:
        if not nodes:
            raise Unreadable(
                "no node to allocate for: the input has no Node, and no ResourceSlice names one",
                "pass a Node manifest, or name a node with --node NAME",
            )
        return nodes
    found = [node for node in nodes if node.metadata.name == wanted]
    if found:
        return found
    if cluster.of(core_v1.Node):
        names = ", ".join(sorted(node.metadata.name for node in nodes)[:20])
        raise Unreadable(f"node {wanted!r} is not in the input: expected one of {names}")
    return [_assumed(wanted)]


def _nodes_named_by_slices(cluster: Cluster) -> list[str]:
    names: dict[str, None] = {}
    for slice_ in cluster.of(resource_v1.ResourceSlice):
        names.setdefault(slice_.spec.node_name or "")
        for device in slice_.spec.devices or ():
            names.setdefault(device.node_name or "")
    return [name for name in names if name]


def _assumed(name: str) -> core_v1.Node:
    return core_v1.Node(metadata=ObjectMeta(name=name, labels={_HOSTNAME_LABEL: name}))


# --- units ---


def units_of(cluster: Cluster, together: bool) -> list[Unit]:
    """The units: the claims of each pod, then the other claims one by one, or all of them together."""
    claims = {_key(claim): claim for claim in cluster.of(resource_v1.ResourceClaim)}
    templates = {
        (template.metadata.namespace, template.metadata.name): template
        for template in cluster.of(resource_v1.ResourceClaimTemplate)
    }
    units = [_pod_unit(pod, claims, templates) for pod in cluster.of(core_v1.Pod) if pod.spec.resource_claims]
    used = {_key(claim) for unit in units for claim in unit.claims}
    alone = [claim for key, claim in claims.items() if key not in used and claim.status.allocation is None]
    if together and alone:
        return [*units, Unit(", ".join(claim_name(claim) for claim in alone), tuple(alone))]
    return units + [Unit(claim_name(claim), (claim,)) for claim in alone]


def _key(claim: resource_v1.ResourceClaim) -> tuple[str, str]:
    return claim.metadata.namespace, claim.metadata.name


def claim_name(claim: resource_v1.ResourceClaim) -> str:
    """`namespace/name`, or only the name."""
    metadata = claim.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _pod_unit(
    pod: core_v1.Pod,
    claims: dict[tuple[str, str], resource_v1.ResourceClaim],
    templates: dict[tuple[str, str], resource_v1.ResourceClaimTemplate],
) -> Unit:
    namespace, pod_name = pod.metadata.namespace, pod.metadata.name or pod.metadata.generate_name
    label = f"pod {namespace}/{pod_name}" if namespace else f"pod {pod_name}"
    found: list[resource_v1.ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name is not None:
            claim = claims.get((namespace, entry.resource_claim_name))
            missing = f"ResourceClaim {entry.resource_claim_name!r}"
        else:
            template = templates.get((namespace, entry.resource_claim_template_name or ""))
            claim = _claim_from(template, f"{pod_name}-{entry.name}") if template is not None else None
            missing = f"ResourceClaimTemplate {entry.resource_claim_template_name!r}"
        if claim is None:
            place = f" of namespace {namespace!r}" if namespace else ""
            raise Unreadable(f"{label}: resource claim {entry.name!r}: {missing}{place} is not in the input")
        found.append(claim)
    return Unit(label, tuple(found), pod.spec.node_name)


def _claim_from(template: resource_v1.ResourceClaimTemplate, name: str) -> resource_v1.ResourceClaim:
    metadata = msgspec.structs.replace(template.spec.metadata, name=name, namespace=template.metadata.namespace)
    return resource_v1.ResourceClaim(metadata=metadata, spec=template.spec.spec)


# --- placing ---


def place(
    inventory: Inventory,
    nodes: Sequence[core_v1.Node],
    units: Sequence[Unit],
    policy: Policy,
) -> Iterator[Placement]:
    """Each unit's placement, in order; what one unit takes, the next cannot have."""
    taken: dict[tuple[str, str], resource_v1.ResourceClaim] = {}
    for unit in units:
        # A claim that two pods share is allocated once, for the first of them.
        claims = tuple(taken.get(_key(claim), claim) for claim in unit.claims)
        placement = _place_unit(inventory, nodes, msgspec.structs.replace(unit, claims=claims), policy)
        for claim, allocation in zip(placement.claims, placement.results or (), strict=True):
            status = msgspec.structs.replace(claim.status, allocation=allocation)
            held = msgspec.structs.replace(claim, status=status)
            inventory.put_claim(held)
            taken[_key(claim)] = held
        yield placement


def _place_unit(
    inventory: Inventory,
    nodes: Sequence[core_v1.Node],
    unit: Unit,
    policy: Policy,
) -> Placement:
    waiting = tuple(claim for claim in unit.claims if claim.status.allocation is None)
    refusals: list[Refusal] = []
    for node in nodes:
        name = node.metadata.name
        elsewhere = _bound_elsewhere(unit, node)
        if elsewhere is not None:
            refusals.append(Refusal(name, error=elsewhere))
            continue
        try:
            answer = allocate(inventory, node, waiting, policy)
        except AllocationError as error:
            if not error.per_node:
                return Placement(unit, error=error.message)
            refusals.append(Refusal(name, error=error.message))
            continue
        if isinstance(answer, Allocated):
            return Placement(unit, node=name, claims=waiting, results=answer.results)
        refusals.append(Refusal(name, answer=answer))
    return Placement(unit, refusals=tuple(refusals))


def _bound_elsewhere(unit: Unit, node: core_v1.Node) -> str | None:
    """Why the unit cannot be on the node even if it were empty: the pod or one of its claims is bound to others."""
    if unit.node_name and unit.node_name != node.metadata.name:
        return f"the pod is on node {unit.node_name}"
    for claim in unit.claims:
        allocation = claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            continue
        try:
            reachable = matches(allocation.node_selector, node)
        except SelectorError as error:
            return f"claim {claim_name(claim)}: {error}"
        if not reachable:
            return f"claim {claim_name(claim)} is allocated for other nodes"
    return None
