"""The decision: a node and devices for every pod of a unit, or why not.

A single pod is a unit of one. Nothing is changed: attempts for a group are reverted before the answer. The caller
applies placements with `Cluster.assume`.
"""

from __future__ import annotations

from allot.core.model import core_v1
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.groups.decision import decide_group, decide_tree
from allot.core.scheduling.messages import explanation, refusal_text, refusing_plugins
from allot.core.scheduling.plan import CleanUp, Decision, GroupOutcome, Placement, Refusal, Unit
from allot.core.scheduling.preempting.preemption import Preempted, preempt
from allot.core.scheduling.settings import DEFAULT_SETTINGS, Settings
from allot.core.scheduling.status import Verdict


def decide(cluster: Cluster, unit: Unit, settings: Settings = DEFAULT_SETTINGS, now: float = 0.0) -> Decision:
    """Where the pods of a unit go. now: seconds since 1970."""
    filter_caches = cluster.filter_caches
    evaluations, fits = filter_caches.evaluations, filter_caches.device_fits
    steps = cluster.devices.search_steps if cluster.devices is not None else 0
    placements: tuple[Placement, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    outcome = None
    below: tuple[GroupOutcome, ...] = ()
    if unit.tree is not None:
        placements, refusals, (outcome, *others) = decide_tree(cluster, unit, unit.tree, settings, now)
        below = tuple(each for each in others if each is not None)
    elif unit.group is not None:
        placements, refusals, outcome = decide_group(cluster, unit, unit.group, settings, now)
    else:
        for pod in unit.pods:
            found = attempt(cluster, pod, None, settings, now)
            if isinstance(found, Placement):
                placements += (found,)
            else:
                refusals += (refusal_of(cluster, pod, found, settings, now),)
    return Decision(
        placements=placements,
        refusals=refusals,
        group=outcome,
        groups_below=below,
        nodes_evaluated=max(filter_caches.evaluations - evaluations, filter_caches.device_fits - fits),
        search_steps=cluster.devices.search_steps - steps if cluster.devices is not None else 0,
    )


def refusal_of(cluster: Cluster, pod: core_v1.Pod, failure: Failure, settings: Settings, now: float) -> Refusal:
    """The refusal of a single pod and its actions: devices are released first, then preemption is tried."""
    nodes = len(cluster.nodes)
    status = failure.status
    if status is not None and status.verdict is Verdict.ERROR:
        return Refusal(
            pod=pod,
            verdict=Verdict.ERROR,
            message=refusal_text(nodes, failure),
            plugins=refusing_plugins(failure),
        )
    if not nodes:
        return Refusal(pod=pod, verdict=Verdict.UNRESOLVABLE, message=refusal_text(nodes, failure))
    clean_ups: tuple[CleanUp, ...] = ()
    said = ""
    if failure.fit is not None:
        clean_ups, said = failure.fit.clean_ups(failure.refusals)
    preempted = preempt(cluster, pod, failure, settings, now) if settings.preempts else Preempted()
    explained = explanation(cluster, cluster.profiles.of(pod), failure)
    after = ", ".join(text for text in (said, preempted.message) if text)
    return Refusal(
        pod=pod,
        verdict=Verdict.UNRESOLVABLE if status is not None else Verdict.UNSCHEDULABLE,
        message=refusal_text(nodes, failure, after),
        explanation=". ".join(text for text in (explained, preempted.explanation) if text),
        plugins=refusing_plugins(failure),
        clean_ups=clean_ups,
        nominated_node=preempted.node,
        victims=preempted.victims,
    )
