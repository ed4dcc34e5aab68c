"""Causes that lie with nodes: devices could be had, or none are needed, but the nodes are out of reach."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.devices import nodes_of, users_of
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis
from allot.core.advice.explain.nodes import Check, Shortage, shortages
from allot.core.advice.explain.remedies import holders, nodes, selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.what_if import full_name
from allot.core.model import resource_v1 as api
from allot.core.scheduling import Held, NodeInfo

_VERBS = {"is": "are", "has": "have", "does": "do"}


def no_nodes(placing: Placing) -> Diagnosis:
    """There is nothing to be placed on."""
    text = "the cluster has no nodes"
    classes = _class_names(placing)
    if classes:
        text += f", so that there are no devices of {named('class', classes)} either"
    return Diagnosis(reason=Reason.NO_NODES, text=text, advice=("add a node",))


def _class_names(placing: Placing) -> list[str]:
    names = []
    for namespace, name in placing.what_if.claims.claims_of(placing.pod):
        claim = placing.what_if.get(api.ResourceClaim, name, namespace)
        for request in claim.spec.devices.requests if claim is not None else ():
            leaves = [request.exactly, *request.first_available]
            names += [leaf.device_class_name for leaf in leaves if leaf is not None]
    return list(dict.fromkeys(names))


def node_cause(placing: Placing, checks: Sequence[Check]) -> Diagnosis:
    """The nodes that come closest are out of reach for reasons of their own."""
    unknown = _unknown_resource(placing)
    if unknown is not None:
        return unknown
    info = placing.nearest[0]
    names = [each.name for each in placing.nearest]
    reasons = {check.reason for check in checks}
    text = f"{_which(placing, names)} {joined(_phrases(placing, info, checks, len(names)))}"
    candidates = nodes.for_node(placing.what_if, placing.pod, info, checks)
    candidates += nodes.another_node(placing.what_if, info)
    reason = next(iter(reasons)) if len(reasons) == 1 else Reason.SEVERAL
    return Diagnosis(reason=reason, text=text, candidates=tuple(candidates))


def _which(placing: Placing, names: Sequence[str]) -> str:
    """The nodes, and why just these."""
    total = len(placing.what_if.cluster.nodes)
    if placing.wanted:
        what = f"free devices of {named('class', [each.class_name for each in placing.wanted])}"
        if len(names) == 1:
            return f"node {names[0]}, {'the only node' if total == 1 else 'the only one'} with {what},"
        return f"{named('node', names)}, the ones with {what},"
    pinned = [held.claim for held in placing.fit.held if nodes_of(held.claim)] if placing.fit is not None else []
    if pinned:
        return f"claim {full_name(pinned[0])} is allocated on node {listed(nodes_of(pinned[0]))}, and that node"
    if len(names) == total:
        return f"node {names[0]}, the only one," if total == 1 else f"each of the {total} nodes"
    return f"{named('node', names)}, nearest of {total} nodes,"


def _phrases(placing: Placing, info: NodeInfo, checks: Sequence[Check], number: int) -> list[str]:
    phrases = []
    for check in checks:
        text = check.text
        if check.reason is Reason.AFFINITY:
            text = f"does not match {nodes.node_terms(placing.pod, info)}"
        elif check.reason is Reason.RESOURCES:
            lacking = shortages(placing.node_checks.profile, info)
            text = joined([_shortage(info, each) for each in lacking]) or text
        verb, _, rest = text.partition(" ")
        phrases.append(f"{_VERBS.get(verb, verb)} {rest}" if number > 1 else text)
    return phrases


def _shortage(info: NodeInfo, lacking: Shortage) -> str:
    total = f" (of {lacking.allocatable})" if lacking.never else ""
    text = f"has {lacking.free} of {lacking.resource} free{total}, but the pod needs {lacking.wanted}"
    if "/" not in lacking.resource or lacking.never:
        return text
    users = [each.key for each in info.pods.values() if lacking.resource in each.scalars]
    return f"{text} (a device plugin offers {lacking.allocatable}, in use by {named('pod', users)})"


def _unknown_resource(placing: Placing) -> Diagnosis | None:
    """An extended resource that nobody offers."""
    cluster = placing.what_if.cluster
    for resource in placing.node_checks.profile.scalars:
        offered = any(info.allocatable_scalars.get(resource) for info in cluster.nodes.values())
        if "/" not in resource or offered or placing.what_if.claims.backs(resource):
            continue
        text = (
            f"nobody offers {resource}: no node has it (no device plugin does), and no DeviceClass has extendedResourceName "
            f"{resource}"
        )
        candidates = tuple(selectors.extended_resource(placing.what_if, resource))
        advice = (f"install the device plugin that offers {resource}",)
        return Diagnosis(reason=Reason.RESOURCE_UNKNOWN, text=text, candidates=candidates, advice=advice)
    return None


# --- claims that have their devices ---


def pinned(placing: Placing, here: Diagnosis | None) -> Diagnosis:
    """Claims have their devices where the pod cannot be. here: why not where they are, if that lies with devices."""
    assert placing.fit is not None
    parts: list[str] = []
    candidates: list[Candidate] = []
    for held in placing.fit.held:
        claim = held.claim
        users = [
            full_name(pod) for pod in users_of(placing.what_if, claim) if pod.metadata.uid != placing.pod.metadata.uid
        ]
        used = f" for {named('pod', users)}" if users else ""
        if held.unavailable:
            parts.append(f"the devices of claim {full_name(claim)} did not become ready in time (binding conditions)")
        else:
            homes = _homes(placing, held)
            parts.append(f"claim {full_name(claim)} is allocated{used} and can only be used on {named('node', homes)}")
            for name in homes:
                parts += _at_home(placing, name, candidates)
        candidates += holders.released(placing.what_if, placing.pod, claim)
    if here is not None:
        parts.append(here.text)
        candidates += here.candidates
    text = "; ".join(dict.fromkeys(parts))
    return Diagnosis(reason=Reason.PINNED, text=text, candidates=tuple(candidates))


def _homes(placing: Placing, held: Held) -> list[str]:
    named_nodes = nodes_of(held.claim)
    if named_nodes:
        return list(named_nodes)
    return [info.name for info in placing.what_if.cluster.nodes.values() if held.is_on(info.node)]


def _at_home(placing: Placing, name: str, candidates: list[Candidate]) -> list[str]:
    """What is wrong with a node where a claim has its devices."""
    info = placing.what_if.cluster.nodes.get(name)
    if info is None:
        return [f"node {name} does not exist any more"]
    own = [check for check in placing.checks[name] if check.reason not in (Reason.PINNED, Reason.NO_DEVICES)]
    if not own:
        return []
    candidates += nodes.for_node(placing.what_if, placing.pod, info, own)
    return [f"node {name} {joined(_phrases(placing, info, own, 1))}"]
