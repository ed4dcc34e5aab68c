"""The relations of a pod, claim, node or device as a tree (`allot tree`).

Only what the API knows: CDI ids exist on the node only, so they are shown if the driver's naming scheme is known, and
otherwise shown as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from allot.core.advice.nearest import listed
from allot.core.advice.usage.claims import nodes_of
from allot.core.advice.usage.devices import users_of
from allot.core.advice.usage.published import (
    PublishedPool,
    State,
    attributes_of,
    device_state,
    keeping_off,
    model_of,
    node_name,
    published_pools,
)
from allot.core.advice.usage.reach import closed_because
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import ClaimID, DeviceEntry, DeviceID
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

# Attributes that distinguish a device from its neighbours, in display order.
_TELLING = ("uuid", "profile", "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode", "ifName", "numa")
# How drivers name the CDI devices that they prepare: kind=name. Others are unknown.
_CDI_NAMES = {"gpu.nvidia.com": "k8s.gpu.nvidia.com/claim={uid}-{device}"}
UNKNOWN = "unknown"
_ENDED = ("Succeeded", "Failed")


class Branch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object, its facts and problem, and its related objects."""

    kind: str
    name: str
    facts: Mapping[str, str] = {}
    problem: str = ""
    children: tuple[Branch, ...] = ()


# --- pods ---


def pod_tree(what_if: WhatIfCluster, pod: core_v1.Pod) -> Branch:
    """Containers, their claims, the requests in these, the devices for them."""
    entries = {entry.name: entry for entry in pod.spec.resource_claims}
    told: set[str] = set()
    containers = [
        _container(what_if, pod, container, entries, told)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    ]
    unused = [_entry(what_if, pod, entry, "", told) for name, entry in entries.items() if name not in told]
    facts = {"phase": pod.status.phase or "Pending", "node": pod.spec.node_name or "none yet"}
    return Branch(
        kind="pod",
        name=f"{pod.metadata.namespace}/{pod.metadata.name}",
        facts=facts,
        problem=_pending_because(pod),
        children=(*containers, *_extended(what_if, pod), *unused),
    )


def _pending_because(pod: core_v1.Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def _container(
    what_if: WhatIfCluster,
    pod: core_v1.Pod,
    container: core_v1.Container,
    entries: Mapping[str, core_v1.PodResourceClaim],
    told: set[str],
) -> Branch:
    children = []
    for used in container.resources.claims:
        entry = entries.get(used.name)
        if entry is None:
            children.append(Branch(kind="claim", name=used.name, problem="the pod has no claim of that name"))
        elif entry.name in told and not used.request:
            children.append(Branch(kind="claim", name=used.name, facts={"shared": "see above"}))
        else:
            children.append(_entry(what_if, pod, entry, used.request or "", told))
    return Branch(kind="container", name=container.name, problem=_sick(pod, container.name), children=tuple(children))


def _sick(pod: core_v1.Pod, container: str) -> str:
    """What the node says against the devices of a container."""
    said = [
        f"{health.resource_id} is {health.health.lower()}{f': {health.message}' if health.message else ''}"
        for status in pod.status.container_statuses
        if status.name == container
        for resource in status.allocated_resources_status
        for health in resource.resources
        if health.health not in ("", "Healthy")
    ]
    return "; ".join(said)


def _entry(
    what_if: WhatIfCluster, pod: core_v1.Pod, entry: core_v1.PodResourceClaim, request: str, told: set[str]
) -> Branch:
    """The claim behind an entry; request: the only one that counts."""
    told.add(entry.name)
    source = f"template {entry.resource_claim_template_name}" if entry.resource_claim_template_name else ""
    name = entry.resource_claim_name or next(
        (s.resource_claim_name or "" for s in pod.status.resource_claim_statuses if s.name == entry.name), ""
    )
    facts = {"entry": entry.name, **({"from": source} if source else {})}
    if not name:
        return Branch(kind="claim", name="", facts=facts, problem="the claim has not been created yet")
    claim = what_if.claims.claim(pod.metadata.namespace, name)
    if claim is None and source and pod.status.phase in _ENDED:
        return Branch(kind="claim", name=name, facts={**facts, "state": "deleted, as the pod has ended"})
    if claim is None and api.ResourceClaim in what_if.unread:
        return Branch(kind="claim", name=name, facts={**facts, "state": "unknown: resourceclaims may not be listed"})
    if claim is None:
        return Branch(kind="claim", name=name, facts=facts, problem="the claim does not exist")
    tree = claim_tree(what_if, claim, request)
    return msgspec.structs.replace(tree, facts={**facts, **tree.facts})


def _extended(what_if: WhatIfCluster, pod: core_v1.Pod) -> Iterator[Branch]:
    """The claim that stands for extended resources."""
    claim = what_if.claims.special_claim_of(pod)
    if claim is not None:
        tree = claim_tree(what_if, claim)
        yield msgspec.structs.replace(tree, facts={"from": "extended resources", **tree.facts})


# --- claims ---


def claim_tree(what_if: WhatIfCluster, claim: api.ResourceClaim, only: str = "") -> Branch:
    """Requests and their devices. only: the one relevant request."""
    allocation = claim.status.allocation
    facts = {"state": "allocated" if allocation is not None else "not allocated"}
    users = users_of(claim)
    if users:
        facts["used by"] = ", ".join(users)
    nodes = nodes_of(allocation)
    if nodes:
        facts["node"] = ", ".join(nodes)
    children = [
        _request(what_if, claim, request)
        for request in claim.spec.devices.requests
        if not only or request.name == only.partition("/")[0]
    ]
    return Branch(
        kind="claim",
        name=f"{claim.metadata.namespace}/{claim.metadata.name}",
        facts=facts,
        children=(*children, *_constraints(claim), *_configurations(claim)),
    )


def _request(what_if: WhatIfCluster, claim: api.ResourceClaim, request: api.DeviceRequest) -> Branch:
    allocation = claim.status.allocation
    results = [
        result
        for result in (allocation.devices.results if allocation is not None else ())
        if result.request.partition("/")[0] == request.name
    ]
    facts = {"asks for": " or ".join(asks_of(request))}
    chosen = {result.request.partition("/")[2] for result in results} - {""}
    if chosen:
        facts["chosen"] = ", ".join(sorted(chosen))
    return Branch(
        kind="request",
        name=request.name,
        facts=facts,
        problem="" if results or allocation is None else "no devices in the allocation",
        children=tuple(_result(what_if, claim, result) for result in results),
    )


def asks_of(request: api.DeviceRequest) -> Iterator[str]:
    """What a request asks for, one text for each alternative."""
    alternatives: Iterable[api.ExactDeviceRequest | api.DeviceSubRequest] = request.first_available
    if request.exactly is not None:
        alternatives = (request.exactly,)
    for asked in alternatives:
        count = "all" if asked.allocation_mode == api.ALL else str(asked.count or 1)
        text = f"{count} of {asked.device_class_name}"
        if asked.selectors:
            text += f" with {len(asked.selectors)} selector{'s' if len(asked.selectors) > 1 else ''}"
        yield text


def _result(what_if: WhatIfCluster, claim: api.ResourceClaim, result: api.DeviceRequestAllocationResult) -> Branch:
    id_ = DeviceID(result.driver, result.pool, result.device)
    entries = what_if.claims.inventory.devices_named(id_)
    facts: dict[str, str] = {}
    if result.admin_access:
        facts["access"] = "admin"
    if result.consumed_capacity:
        facts["takes"] = ", ".join(f"{name} {amount}" for name, amount in sorted(result.consumed_capacity.items()))
    if entries:
        facts |= _device_facts(entries[0])
    known = _CDI_NAMES.get(result.driver)
    uid = claim.metadata.uid
    facts["cdi"] = known.format(uid=uid, device=result.device) if known and uid and not result.share_id else UNKNOWN
    if not entries and api.ResourceSlice in what_if.unread:
        facts["details"] = "resourceslices may not be listed"
    gone = not entries and api.ResourceSlice not in what_if.unread
    problem = "the device is no longer published" if gone else ""
    return Branch(kind="device", name=str(id_), facts=facts, problem=problem or reported_of(claim, result))


def reported_of(claim: api.ResourceClaim, result: api.DeviceRequestAllocationResult) -> str:
    """The driver's complaint about the device."""
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == (result.driver, result.pool, result.device):
            for condition in status.conditions:
                if condition.type == "Ready" and condition.status != "True":
                    return f"not ready: {condition.message or condition.reason}"
    return ""


def _constraints(claim: api.ResourceClaim) -> Iterator[Branch]:
    for constraint in claim.spec.devices.constraints:
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        rule = "the same" if constraint.match_attribute else "different"
        scope = ", ".join(constraint.requests) or "all requests"
        yield Branch(kind="constraint", name=name, facts={"must be": rule, "for": scope})


def _configurations(claim: api.ResourceClaim) -> Iterator[Branch]:
    if claim.status.allocation is None:
        return
    for config in claim.status.allocation.devices.config:
        if config.opaque is not None:
            where = "class" if config.source == "FromClass" else "claim"
            facts = {"from": where, "for": ", ".join(config.requests) or "all requests"}
            if config.opaque.parameters is not None:
                facts["parameters"] = config.opaque.parameters.data.decode()
            yield Branch(kind="config", name=config.opaque.driver, facts=facts)


# --- devices and nodes ---


def _device_facts(entry: DeviceEntry) -> dict[str, str]:
    attributes = attributes_of(entry)
    facts = {"model": model_of(entry)}
    for name in _TELLING:
        value = attributes.get(name, attributes.get(f"{entry.id.driver}/{name}"))
        if value is not None:
            facts[name.rpartition("/")[2]] = str(value)
    for name, capacity in sorted(entry.capacity.items()):
        facts[name.rpartition("/")[2]] = str(capacity.value)
    taints = [f"{taint.key}:{taint.effect}" for taint in keeping_off(entry)]
    if taints:
        facts["tainted"] = ", ".join(taints)
    return facts


def device_tree(what_if: WhatIfCluster, pool: PublishedPool, entry: DeviceEntry) -> Branch:
    """Who holds a device and who monitors it; for a free one, whether it is available."""
    state = entry.state
    facts = {"state": _state(pool, entry), "node": node_name(entry) or "several", **_device_facts(entry)}
    children = [_holder(what_if, claim, {"holds": "all of it"}) for claim in state.claims]
    children += [_holder(what_if, share.claim, {"holds": "a share"}) for share in state.shares]
    children += [_holder(what_if, claim, {"access": "admin"}) for claim in _watchers(what_if, entry.id)]
    return Branch(kind="device", name=str(entry.id), facts=facts, children=tuple(children))


def _state(pool: PublishedPool, entry: DeviceEntry) -> str:
    """What is available of a device; for a blocked one, which others block it."""
    state = device_state(pool, entry)
    if state is not State.BLOCKED:
        return state.value
    sets = {consumed.counter_set for consumed in entry.device.consumes_counters}
    holders = [
        other.id.device
        for other in pool.entries
        if other.state.allocated and any(each.counter_set in sets for each in other.device.consumes_counters)
    ]
    return f"blocked by {listed(holders)}" if holders else "blocked: its counters do not suffice"


def _watchers(what_if: WhatIfCluster, id_: DeviceID) -> Iterator[ClaimID]:
    for claim in what_if.claims.claims():
        results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
        if any(r.admin_access and (r.driver, r.pool, r.device) == tuple(id_) for r in results):
            yield ClaimID(claim.metadata.namespace, claim.metadata.name)


def _holder(what_if: WhatIfCluster, id_: ClaimID, facts: Mapping[str, str]) -> Branch:
    claim = what_if.claims.claim(id_.namespace, id_.name)
    users = users_of(claim) if claim is not None else ()
    pods = tuple(Branch(kind="pod", name=f"{id_.namespace}/{name}") for name in users)
    return Branch(kind="claim", name=str(id_), facts=facts, children=pods)


def node_tree(what_if: WhatIfCluster, name: str) -> Branch:
    """The devices of a node with their holders, and its pods that use none of them."""
    devices = [
        device_tree(what_if, pool, entry)
        for pool in published_pools(what_if)
        for entry in pool.entries
        if node_name(entry) == name
    ]
    info = what_if.cluster.nodes.get(name)
    closed = closed_because(info) if info is not None else ""
    others = [
        Branch(kind="pod", name=f"{pod.pod.metadata.namespace}/{pod.pod.metadata.name}")
        for pod in (info.pods.values() if info is not None else ())
        if not what_if.claims.claims_of(pod.pod)
    ]
    problem = f"accepts no pods: {closed}" if closed else ""
    return Branch(kind="node", name=name, problem=problem, children=(*devices, *others))
