"""What connects the nodes of a plan: why the capacity of one node depends on others, and which pods must be together."""

from __future__ import annotations

from allot.core.advice.planning.copies import Copy
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation import ClaimID, claim_id
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import HOSTNAME, Claims


def what_connects_nodes(what_if: WhatIfCluster, copy: Copy) -> str:
    """Why a node's limit depends on other nodes; empty if it does not."""
    claims = what_if.claims
    if claims.node_allocatable:
        return "devices provide CPU or memory of their nodes"
    for pod in copy.pods:
        reason = _of_pod(what_if, pod)
        if reason:
            return reason
    alone = {claim_id(claim) for claim in copy.claims} if meets_on_one_node(claims, copy) else own_claims(claims, copy)
    for id_ in {id_ for pod in copy.pods for id_ in claims.claims_of(pod)}:
        claim = claims.claim(*id_)
        if claim is None or claim.status.allocation is not None:
            continue
        if id_ not in alone:
            return f"pods share the claim {id_.name}"
        if _reaches_shared_devices(claims, claim):
            return "several nodes can use the same devices"
    return ""


def _of_pod(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    profile = what_if.cluster.profiles.of(pod)
    if profile.affinity_terms or profile.hard_spreads or what_if.settings.default_hard_spreads:
        return "the pods depend on pods of other nodes (affinity or topology spread)"
    if any(term.topology_key != HOSTNAME for term in profile.anti_affinity_terms):
        return "the pods keep away from pods of other nodes (anti-affinity)"
    if profile.volume_claims:
        return "the pods use volume claims"
    if what_if.claims.inventory.has_shared_devices and what_if.claims.extended.wanted(pod) is not None:
        return "several nodes can use the same devices"
    return ""


def own_claims(claims: Claims, copy: Copy) -> set[ClaimID]:
    """Claims that belong to a single pod of a copy."""
    users = [id_ for pod in copy.pods for id_ in claims.claims_of(pod)]
    return {claim_id(claim) for claim in copy.claims if users.count(claim_id(claim)) == 1}


def meets_on_one_node(claims: Claims, copy: Copy) -> bool:
    """Whether the pods of a copy must be on one node because they share a claim for devices of one node."""
    own = {claim_id(claim) for claim in copy.claims}
    return len(copy.pods) > 1 and any(_is_of_one_node(claims, id_) for id_ in _named_by_all(claims, copy) & own)


def all_meet_on_one_node(claims: Claims, copy: Copy) -> bool:
    """Whether the pods of all copies must be on one node because they share a claim for devices of one node."""
    own = {claim_id(claim) for claim in copy.claims}
    return any(_is_of_one_node(claims, id_) for id_ in _named_by_all(claims, copy) - own)


def _named_by_all(claims: Claims, copy: Copy) -> set[ClaimID]:
    return set.intersection(*({*claims.claims_of(pod)} for pod in copy.pods))


def _is_of_one_node(claims: Claims, id_: ClaimID) -> bool:
    """Whether an unallocated claim will get devices of one node, so that its pods must run there."""
    claim = claims.claim(*id_)
    return claim is not None and claim.status.allocation is None and not _reaches_shared_devices(claims, claim)


def _reaches_shared_devices(claims: Claims, claim: api.ResourceClaim) -> bool:
    if not claims.inventory.has_shared_devices:
        return False
    leaves = (leaf for request in claims.inventory.plan(claim.spec).requests for leaf in request.leaves)
    return any(leaf.signature is None or claims.inventory.index(leaf.signature).shared for leaf in leaves)
