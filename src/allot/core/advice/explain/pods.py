"""Pods: those that wait for a node, those that wait on one, and those that run."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.aftermath import settle
from allot.core.advice.explain.causes.containers import ended, ended_advice, unused_claims, use_advice
from allot.core.advice.explain.causes.early import before_scheduling
from allot.core.advice.explain.causes.late import after_scheduling, devices_of, resizing, terminating, trouble
from allot.core.advice.explain.causes.outdated import with_outdated_claims
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.probes import being_killed, not_serving
from allot.core.advice.explain.causes.queues import queue_cause, with_note
from allot.core.advice.explain.causes.refused import failed_before, refused
from allot.core.advice.explain.causes.starting import incomplete
from allot.core.advice.explain.causes.tainted import evicted_before
from allot.core.advice.explain.causes.unread import is_unfounded, undecided
from allot.core.advice.explain.causes.waiting import (
    binding_failed,
    fits,
    missing_gate,
    not_ready,
    room_is_made,
    scheduler_down,
)
from allot.core.advice.explain.changes import helpful
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank
from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.moving import unplaced
from allot.core.advice.explain.remedies.templates import in_template
from allot.core.advice.explain.report import Change, Explanation, NodeGroup, Reason, State
from allot.core.advice.explain.trial import pod_subject, try_out, would_help
from allot.core.advice.explain.wording import named
from allot.core.advice.outlook import outlook_of
from allot.core.advice.what_if import CannotChange, Journal, WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import ClaimFit, Failure

_STUCK = ("BackOff", "Error")
_SMALL_NODES_MAX = 100
# For each of two changes that are tried together.
_TOGETHER_MAX = 6
_AS_GOOD = "would fit as well"


def explain_pod(what_if: WhatIfCluster, pod: core_v1.Pod, *, briefly: bool) -> Explanation:
    """Why a pod waits, runs or ended. briefly: only the cause."""
    if pod.status.phase in FINISHED and not _is_kept(pod):
        advice = (Change(text=text) for text in ended_advice(what_if, pod))
        over = said("Pod", pod, State.ENDED, Reason.ENDED, f"{full_name(pod)} {ended(what_if, pod)}")
        return replace(over, changes=in_template(what_if, pod, advice))
    if not pod.spec.node_name:
        return _pending(what_if, pod, briefly)
    if pod.metadata.deletion_timestamp is not None:
        return _leaving(what_if, pod)
    if pod.status.phase != "Running" or is_stuck(pod):
        return _starting(what_if, pod)
    return _placed(what_if, pod, briefly)


def _is_kept(pod: core_v1.Pod) -> bool:
    """Whether a pod that was deleted on its node is still there because of its finalizers."""
    return bool(pod.metadata.deletion_timestamp and pod.metadata.finalizers and pod.spec.node_name)


def is_stuck(pod: core_v1.Pod) -> bool:
    """Whether a container of a running pod waits for anything but its turn."""
    return any(
        status.state is not None and status.state.waiting is not None and status.state.waiting.reason.endswith(_STUCK)
        for status in pod.status.container_statuses
    )


def said(kind: str, object_: core_v1.Pod | api.ResourceClaim, state: State, reason: Reason, cause: str) -> Explanation:
    """An explanation reduced to its first line."""
    metadata = object_.metadata
    return Explanation(
        kind=kind, namespace=metadata.namespace, name=metadata.name, state=state, reason=reason, cause=cause
    )


class Diagnosed(NamedTuple):
    """Why a pod waits, and the findings about all nodes if they were considered."""

    diagnosis: Diagnosis
    placing: Placing | None = None


def diagnose(what_if: WhatIfCluster, pod: core_v1.Pod, *, briefly: bool) -> Diagnosed:
    """Why a pod without a node waits. briefly: skip expensive questions."""
    subject = pod_subject(pod)
    early = before_scheduling(what_if, pod)
    if early is not None and not is_unfounded(what_if, early):
        return Diagnosed(early)
    unread = undecided(what_if, pod, fits=False)
    if unread is not None:
        return Diagnosed(unread)
    outlook = outlook_of(what_if, pod)
    by_queue = queue_cause(what_if, subject, outlook) if outlook is not None else None
    if by_queue is not None and by_queue.reason is not Reason.QUEUE_SHARE:
        return Diagnosed(by_queue)
    outcome = try_out(what_if, subject)
    # Devices that are not ready matter only for a pod that otherwise fits.
    waits = not_ready(what_if, pod) if outcome.placements else None
    if waits is not None:
        return Diagnosed(waits)
    unread = undecided(what_if, pod, fits=outcome.schedulable)
    if unread is not None:
        return Diagnosed(unread)
    if outcome.schedulable:
        ended_before = failed_before(what_if, pod, _scheduler_said(pod))
        not_bound = ended_before or binding_failed(what_if, pod, _scheduler_said(pod))
        if not_bound is not None:
            return Diagnosed(not_bound)
        node = outcome.node_of(subject)
        idle = scheduler_down(what_if, pod, node)
        if idle is not None:
            return Diagnosed(idle)
        refused_before = bool(_scheduler_said(pod)) and not briefly
        return Diagnosed(
            (missing_gate(what_if, subject, node) if refused_before else None) or fits(full_name(pod), node)
        )
    leaving = room_is_made(what_if, pod) or evicted_before(what_if, pod)
    if leaving is not None:
        return Diagnosed(leaving)
    if outcome.failure is None:
        # The question is about its gang, of which too few pods fit.
        return Diagnosed(Diagnosis(reason=Reason.GANG, text="the pods that it starts with cannot all be placed"))
    diagnosis, placing = refused(what_if, pod, outcome.failure)
    diagnosis = with_outdated_claims(what_if, pod, diagnosis)
    if by_queue is not None:
        return Diagnosed(replace(by_queue, candidates=(*by_queue.candidates, *diagnosis.candidates)), placing)
    return Diagnosed(with_note(what_if, diagnosis, outlook), placing)


def _pending(what_if: WhatIfCluster, pod: core_v1.Pod, briefly: bool) -> Explanation:
    subject = pod_subject(pod)
    diagnosis, placing = diagnose(what_if, pod, briefly=briefly)
    text = f"{full_name(pod)} is pending because {diagnosis.text}"
    if diagnosis.reason is Reason.FITS:
        text = diagnosis.text
    elif diagnosis.reason is Reason.WAITS_FOR_ROOM:
        text = f"{full_name(pod)} {diagnosis.text}"
    elif diagnosis.reason is Reason.UNREAD:
        text = f"{full_name(pod)} is pending: {diagnosis.text}"
    first = said("Pod", pod, State.PENDING, diagnosis.reason, text)
    if briefly:
        return first
    changes = helpful(what_if, subject, diagnosis, placing.near if placing is not None else ())
    if not any(change.verified for change in changes):
        pair = _two_changes(what_if, pod, diagnosis)
        if pair is not None:
            change, second = pair
            first = replace(first, cause=f"{first.cause}; and then because {second}")
            changes = (change, *changes)
    return replace(
        first,
        details=diagnosis.details,
        changes=in_template(what_if, pod, changes),
        requests=placing.requests() if placing is not None else (),
        nodes=placing.groups() if placing is not None else (),
        node_count=len(what_if.cluster.nodes),
        nearest=placing.miss() if placing is not None else None,
        scheduler_said=_scheduler_said(pod),
    )


def _two_changes(what_if: WhatIfCluster, pod: core_v1.Pod, diagnosis: Diagnosis) -> tuple[Change, str] | None:
    """Two problems may exist, and no change alone helps: after the first change, why does the pod still wait? Only for small
    clusters."""
    if len(what_if.cluster.nodes) > _SMALL_NODES_MAX or what_if.cluster.membership.of(pod) is not None:
        return None
    subject = pod_subject(pod)

    def after(changed: WhatIfCluster, journal: Journal) -> None:
        settle(changed, journal, list(subject.pods))

    for one in _firsts(diagnosis):
        try:
            with what_if.changed(one.patches, after) as changed:
                still = changed.get(core_v1.Pod, pod.metadata.name, pod.metadata.namespace)
                if still is None or changed.group_of(still) is not None:
                    continue
                then = diagnose(changed, still, briefly=True).diagnosis
                for other in _firsts(then) if then.text != diagnosis.text else ():
                    outcome = would_help(changed, subject, other.patches)
                    if outcome is not None and outcome.schedulable:
                        return (
                            Change(
                                text=f"{one.text}, and {other.text}",
                                verified=True,
                                node=outcome.node_of(subject),
                                patches=(*one.patches, *other.patches),
                            ),
                            then.text,
                        )
        except CannotChange:
            continue
    return None


def _firsts(diagnosis: Diagnosis) -> list[Candidate]:
    ranked = sorted(diagnosis.candidates, key=lambda each: each.rank)
    return [each for each in ranked if each.rank < Rank.ADD_NODE][:_TOGETHER_MAX]


def _scheduler_said(pod: core_v1.Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def _starting(what_if: WhatIfCluster, pod: core_v1.Pod) -> Explanation:
    diagnosis = after_scheduling(what_if, pod)
    state = "not running" if pod.status.phase == "Running" else "pending"
    cause = f"{full_name(pod)} is {state} because {diagnosis.text}"
    if diagnosis.reason is Reason.PROGRESSING:
        cause = f"{full_name(pod)} is starting on node {pod.spec.node_name}: {diagnosis.text}"
    return replace(
        said("Pod", pod, State.STARTING, diagnosis.reason, cause),
        details=diagnosis.details,
        changes=in_template(what_if, pod, (Change(text=text) for text in diagnosis.advice)),
        node=pod.spec.node_name,
        devices=devices_of(what_if, pod),
    )


def _leaving(what_if: WhatIfCluster, pod: core_v1.Pod) -> Explanation:
    """A terminating pod that has a node, and what keeps it."""
    found = terminating(what_if, pod)
    cause = f"{full_name(pod)} on node {pod.spec.node_name} {found.text}"
    return replace(
        said("Pod", pod, State.STARTING, found.reason, cause),
        changes=tuple(Change(text=text) for text in found.advice),
        node=pod.spec.node_name,
        devices=devices_of(what_if, pod),
    )


def _placed(what_if: WhatIfCluster, pod: core_v1.Pod, briefly: bool) -> Explanation:
    """A running pod, and why it is not elsewhere, as far as other nodes can still tell."""
    devices = devices_of(what_if, pod)
    has = f" with {named('device', [each.device for each in devices])}" if devices else ""
    wrong = trouble(what_if, pod) or resizing(pod)
    but = f", but {wrong.text}" if wrong is not None else ""
    advice = wrong.advice if wrong is not None else ()
    unused = unused_claims(pod)
    over = incomplete(pod) if wrong is None else None
    unready = not_serving(what_if, pod) if wrong is None and over is None else None
    reason = wrong.reason if wrong is not None else Reason.PLACED
    killed = being_killed(what_if, pod) if wrong is None and over is None and unready is None else None
    if over is not None:
        has += f", but {over.text}"
        advice, reason = over.advice, over.reason
    elif unready is not None:
        has += f", but is not ready: {unready.text}"
        advice, reason = unready.advice, unready.reason
    elif killed is not None:
        has += f", but {killed.text}"
        advice, reason = killed.advice, killed.reason
    if unused and not but:
        has += f", but no container uses its {named('claim', unused)}"
        advice = (use_advice(pod, unused),)
    cause = f"{full_name(pod)} runs on node {pod.spec.node_name}{but or has}"
    return replace(
        said("Pod", pod, State.PLACED, reason, cause),
        changes=in_template(what_if, pod, (Change(text=text) for text in advice)),
        nodes=() if briefly else _elsewhere(what_if, pod),
        node_count=len(what_if.cluster.nodes),
        node=pod.spec.node_name,
        devices=devices,
    )


def _elsewhere(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[NodeGroup, ...]:
    """What other nodes would say to a pod like this one whose claims have no devices yet."""
    with what_if.changed((), unplaced(pod)):
        fit = what_if.claims.fit(pod, None, what_if.now)
        placing = Placing(what_if, pod, Failure(fit=fit if isinstance(fit, ClaimFit) else None))
        return placing.groups(without=pod.spec.node_name, nothing_wrong=_AS_GOOD)
