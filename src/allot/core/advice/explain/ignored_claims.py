"""Karpenter that makes no nodes for pods with claims: it ignores such pods unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.causes.driver_pods import speaks_of_devices
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.node_supply import is_new_node
from allot.core.advice.explain.program_settings import containers_in, setting
from allot.core.advice.explain.remedies.nodes import own_terms
from allot.core.advice.explain.report import Change, Explanation, Reason
from allot.core.advice.explain.wording import named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import Deployment
from allot.core.model.node_pools import POOL_LABEL, NodePool
from allot.core.selectors import tolerates

_VARIABLE, _FLAG = "IGNORE_DRA_REQUESTS", "--ignore-dra-requests"
_NAME = "karpenter"
_OFF = ("false", "f", "0")
# What Karpenter says of a pod that it ignores.
_SAID = "Dynamic Resource Allocation requirements"
# Every machine has labels of these domains, whatever its pool says.
_GIVEN = ("kubernetes.io", "k8s.io", "karpenter")
_OTHER_WAYS = "with a managed node group, or as a static NodePool (spec.replicas)"
# No node could take the pod if it were empty.
_NOWHERE = (Reason.NO_DRIVER, Reason.NO_DEVICES, Reason.AFFINITY, Reason.NO_NODES)
_BLOCKING = ("NoSchedule", "NoExecute")


class _Ignored(NamedTuple):
    """Pools whose nodes a pod could use, and that get none for it. why: phrased to follow a colon."""

    pools: str
    why: str

    @property
    def obey(self) -> Change:
        """Karpenter takes account of claims."""
        known = f"its version and its cloud provider know the devices of {self.pools}"
        return Change(text=f"set {_VARIABLE}=false in Karpenter's Deployment, if {known}")


def none_made(what_if: WhatIfCluster, pod: core_v1.Pod, found: Explanation) -> Explanation:
    """The answer for a pod whose nodes do not exist, if Karpenter does not make them because the pod has claims."""
    if found.reason not in _NOWHERE or not pod.spec.resource_claims or not _has_no_node(what_if, pod, found):
        return found
    ignored = _ignored(what_if, pod)
    if ignored is None:
        return found
    lacking = f"no node matches {own_terms(pod)}" if _has_terms(pod) else "no node has such devices"
    cause = f"{full_name(pod)} is pending because {lacking}, and Karpenter makes none of {ignored.pools} for it: {ignored.why}"
    labels = [f"{key}={value}" for key, value in pod.spec.node_selector.items()]
    like = f" with {named('label', labels)}" if labels else f" like those of {ignored.pools}"
    add = Change(text=f"add a node{like} in a way that does not depend on the pod: {_OTHER_WAYS}")
    tried = (each for each in found.changes if each.verified)
    return replace(found, reason=Reason.NO_DRIVER, cause=cause, changes=(add, ignored.obey, *tried))


def none_added(what_if: WhatIfCluster, pod: core_v1.Pod, found: Explanation) -> Explanation | None:
    """The answer for a pod that one more node would help, if Karpenter adds none because the pod has claims; None if that is not so."""
    helps = any(is_new_node(patch) for change in found.changes for patch in change.patches)
    ignored = _ignored(what_if, pod) if helps and pod.spec.resource_claims else None
    if ignored is None:
        return None
    cause = f"{found.cause}; and Karpenter adds no node of {ignored.pools} for it: {ignored.why}"
    return replace(found, cause=cause, changes=(*found.changes, ignored.obey))


def _ignored(what_if: WhatIfCluster, pod: core_v1.Pod) -> _Ignored | None:
    pools = [each.metadata.name for each in _pools_for(what_if, pod)]
    where = _told_to_ignore(what_if) if pools else ""
    if not where and not any(_SAID in each.message for each in events_of(what_if, pod, "FailedScheduling")):
        return None
    why = f"it ignores pods with claims{f' ({where})' if where else ''}"
    return _Ignored(named("NodePool", pools), why) if pools else None


def _told_to_ignore(what_if: WhatIfCluster) -> str:
    """What tells Karpenter to ignore claims, and where; empty if it does not, or if there is no Karpenter."""
    for each in what_if.all(Deployment):
        for container in containers_in(each.spec.template):
            if _NAME not in f"{each.metadata.name} {container.get('image', '')}":
                continue
            value = setting(container, _FLAG, _VARIABLE)
            if value is not None and value.lower() not in _OFF:
                given = f"{_VARIABLE}={value}" if value else f"the default, {_VARIABLE}=true,"
                return f"{given} in Deployment {full_name(each)}"
    return ""


# --- which pools would have the devices ---


def _pools_for(what_if: WhatIfCluster, pod: core_v1.Pod) -> list[NodePool]:
    """The pools whose nodes a pod could use, and that are made for it, or for devices."""
    terms = dict(_terms(pod))
    return [
        pool
        for pool in what_if.all(NodePool)
        if all(_allows(pool, key, values) for key, values in terms.items())
        and all(any(tolerates(each, taint) for each in pod.spec.tolerations) for taint in _taints(pool))
        and (any(_names(pool, key) for key in terms) or _is_for_devices(pool))
    ]


def _terms(pod: core_v1.Pod) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The labels that a pod needs of its node, each with the values that will do."""
    for key, value in pod.spec.node_selector.items():
        yield key, (value,)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    # Of several terms, any may be the one.
    for each in terms[0].match_expressions if len(terms) == 1 else ():
        if each.operator == "In":
            yield each.key, each.values


def _has_terms(pod: core_v1.Pod) -> bool:
    return next(_terms(pod), None) is not None


def _names(pool: NodePool, key: str) -> bool:
    template = pool.spec.template
    return key in template.metadata.labels or any(each.key == key for each in template.spec.requirements)


def _allows(pool: NodePool, key: str, values: Sequence[str]) -> bool:
    """Whether a pool's nodes may have a label with one of some values."""
    template = pool.spec.template
    if key == POOL_LABEL:
        return pool.metadata.name in values
    if key in template.metadata.labels:
        return template.metadata.labels[key] in values
    required = [each for each in template.spec.requirements if each.key == key]
    if not required:
        return any(domain in key for domain in _GIVEN)
    return all(each.operator != "In" or set(each.values) & set(values) for each in required)


def _taints(pool: NodePool) -> list[core_v1.Taint]:
    return [each for each in pool.spec.template.spec.taints if each.effect in _BLOCKING]


def _is_for_devices(pool: NodePool) -> bool:
    keys = (*pool.spec.template.metadata.labels, *pool.spec.limits, *(each.key for each in _taints(pool)))
    return any(map(speaks_of_devices, (pool.metadata.name, *keys)))


def _has_no_node(what_if: WhatIfCluster, pod: core_v1.Pod, found: Explanation) -> bool:
    """Whether no node is there that a pod could use if it were empty."""
    if not _has_terms(pod):
        return found.reason is Reason.NO_DRIVER
    terms = list(_terms(pod))
    return not any(
        all(info.labels.get(key) in values for key, values in terms) for info in what_if.cluster.nodes.values()
    )
