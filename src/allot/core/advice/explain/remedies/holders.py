"""Devices that others have: who would have to let go, and claims that could be shared or made anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allot.core.advice.explain.devices import TAKEN, Wanted, find_claim, users_of
from allot.core.advice.explain.diagnosis import Candidate, Rank, claim_object, delete_of, patch_of, place_of_claim
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json, full_name
from allot.core.explain import Obstacle
from allot.core.lifecycle.claim_owners import claim_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

_OPTIONS_MAX = 8
_NODES_MAX = 64


def freed(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> Iterator[Candidate]:
    """Others who hold devices that the request could use let go: on each node as few as are enough, else all of them."""
    # Counters and shares do not add up as devices do: there any of the holders may be enough.
    adds_up = all(tally.reason.obstacle is Obstacle.IN_USE for tally in wanted.found.of(*TAKEN))
    options: set[tuple[int, str, tuple[str, ...]]] = set()
    for node, claims in _held_by_node(what_if, wanted).items():
        found = wanted.found.nodes.get(node)
        free = found.free if found is not None else 0
        needed = found.in_class if wanted.leaf.all_devices and found is not None else wanted.leaf.count
        enough = _enough(claims, max(1, needed - free))
        options.add((len(enough), node, tuple(enough)))
        if not adds_up:
            options.update((1, node, (claim,)) for claim in claims)
            options.add((len(claims), node, tuple(sorted(claims))))
    for _, node, chosen in sorted(options)[:_OPTIONS_MAX]:
        yield from _let_go(what_if, pod, node, chosen)


def _held_by_node(what_if: WhatIfCluster, wanted: Wanted) -> dict[str, dict[str, int]]:
    """By node: claims that hold devices there, and how many."""
    by_node: dict[str, dict[str, int]] = {}
    for tally in wanted.found.of(*TAKEN):
        for name, number in tally.claims.items():
            claim = find_claim(what_if, name)
            allocation = claim.status.allocation if claim is not None else None
            pools = {result.pool for result in allocation.devices.results} if allocation is not None else set()
            # Most drivers name a node's pool after the node.
            node = next((pool for pool in pools if pool in tally.nodes), next(iter(tally.nodes)))
            if node in by_node or len(by_node) < _NODES_MAX:
                by_node.setdefault(node, {})[name] = number
    return by_node


def _enough(claims: dict[str, int], lacking: int) -> list[str]:
    chosen = []
    for name, number in sorted(claims.items(), key=lambda item: (-item[1], item[0])):
        if lacking <= 0:
            break
        chosen.append(name)
        lacking -= number
    return chosen


def _let_go(what_if: WhatIfCluster, pod: core_v1.Pod, node: str, names: Sequence[str]) -> Iterator[Candidate]:
    patches: dict[str, Patch] = {}
    for name in names:
        claim = find_claim(what_if, name)
        if claim is None:
            return
        users = users_of(what_if, claim)
        if any(user.metadata.uid == pod.metadata.uid for user in users):
            return
        for user in users:
            patches[f"pod {full_name(user)}"] = delete_of("Pod", user.metadata.name, user.metadata.namespace)
        if not users:
            delete = delete_of("ResourceClaim", claim.metadata.name, claim.metadata.namespace)
            patches[f"claim {name}, which no pod uses"] = delete
    idle = all(patch.kind == "ResourceClaim" for patch in patches.values())
    verb = "delete" if idle else "wait for or delete"
    yield Candidate(
        rank=Rank.NODE if idle else Rank.OTHERS + min(len(patches) - 1, 1),
        text=f"{verb} {listed(patches, 4)} on node {node}",
        patches=tuple(patches.values()),
    )


def released(what_if: WhatIfCluster, pod: core_v1.Pod, claim: api.ResourceClaim) -> Iterator[Candidate]:
    """A claim that has its devices in the wrong place gives them back, or the pod gets another claim like it."""
    users = [user for user in users_of(what_if, claim) if user.metadata.uid != pod.metadata.uid]
    name = full_name(claim)
    if users:
        yield from second_claim(pod, claim)
        yield Candidate(
            rank=Rank.OTHERS,
            text=f"wait for or delete {named('pod', map(full_name, users))}, so that claim {name} gives its devices back",
            patches=tuple(delete_of("Pod", user.metadata.name, user.metadata.namespace) for user in users),
        )
        return
    status = {"op": "remove", "path": "/status/allocation"}
    operations = [status, *([{"op": "remove", "path": "/status/reservedFor"}] if claim.status.reserved_for else [])]
    yield Candidate(
        rank=Rank.NODE,
        text=f"take its devices from claim {name}, which nobody else uses, so that it gets others",
        patches=(patch_of("ResourceClaim", claim.metadata.name, *operations, namespace=claim.metadata.namespace),),
    )


def second_claim(pod: core_v1.Pod, claim: api.ResourceClaim) -> Iterator[Candidate]:
    """Another claim that asks for the same, for this pod."""
    namespace, name = claim.metadata.namespace, f"{claim.metadata.name}-2"
    spec = as_json(claim).get("spec", {})
    for index, entry in enumerate(pod.spec.resource_claims):
        if entry.resource_claim_name == claim.metadata.name:
            rename = {"op": "replace", "path": f"/spec/resourceClaims/{index}/resourceClaimName", "value": name}
            point = patch_of("Pod", pod.metadata.name, rename, namespace=namespace, recreate=True)
            yield Candidate(
                rank=Rank.CREATE,
                text=f"create a second claim, {namespace}/{name}, and name that one in the pod",
                patches=(Patch(action="create", object=claim_object(namespace, name, spec)), point),
            )


# --- templates that were meant to share ---


def sharing_strategy(claim: api.ResourceClaim) -> str:
    """How the configuration of a claim says that its devices are to be shared; empty if it does not."""
    for config in claim.spec.devices.config:
        parameters = (
            config.opaque.parameters.value() if config.opaque is not None and config.opaque.parameters else None
        )
        sharing = parameters.get("sharing") if isinstance(parameters, dict) else None
        if isinstance(sharing, dict) and isinstance(sharing.get("strategy"), str):
            return str(sharing["strategy"])
    return ""


def shared_claim(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> Iterator[Candidate]:
    """One claim for all pods that have claims from the same template."""
    place = place_of_claim(what_if, pod, wanted.claim)
    if place is None or place.kind != "ResourceClaimTemplate":
        return
    namespace, name = place.namespace, place.name
    index = next(i for i, entry in enumerate(pod.spec.resource_claims) if entry.resource_claim_template_name == name)
    path = f"/spec/resourceClaims/{index}"
    operations = (
        {"op": "remove", "path": f"{path}/resourceClaimTemplateName"},
        {"op": "add", "path": f"{path}/resourceClaimName", "value": name},
    )
    others = [
        other
        for tally in wanted.found.of(*TAKEN)
        for held in tally.claims
        if (claim := find_claim(what_if, held)) is not None
        for other in users_of(what_if, claim)
        if any(claim_name(other, entry) == claim.metadata.name for entry in other.spec.resource_claims)
        and any(entry.resource_claim_template_name == name for entry in other.spec.resource_claims)
    ]
    if not others:
        return
    other = others[0]
    yield Candidate(
        rank=Rank.CREATE,
        text=(
            f"create ResourceClaim {namespace}/{name} with what the template says, and name it as resourceClaimName in this pod "
            f"and in {full_name(other)}, which has to be made anew"
        ),
        patches=(
            Patch(action="create", object=claim_object(namespace, name, as_json(wanted.claim).get("spec", {}))),
            patch_of("Pod", pod.metadata.name, *operations, namespace=namespace, recreate=True),
            delete_of("Pod", other.metadata.name, other.metadata.namespace),
        ),
    )
