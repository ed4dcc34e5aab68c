"""One reconciliation of an autoscaler: the replicas of its target, its status and events.

`questions` lists what must be looked up first, `decide` makes the decision, and `concluded` gives the status once the write to
the target has succeeded or failed. Autoscalers and scales are JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import NORMAL, WARNING
from allot.core.lifecycle.times import time_of
from allot.core.model.core_v1 import Pod
from allot.core.quantity import Quantity
from allot.core.selectors import Requirements, SelectorError, parse_label_selector
from allot.core.workloads.autoscaling.metrics import (
    EXTERNAL,
    OBJECT,
    Computed,
    MetricAnswers,
    Question,
    Situation,
    compute,
    failure_reason,
    outer_error,
    question_of,
)
from allot.core.workloads.autoscaling.proposals import MetricUnavailable, Settings, Tolerances
from allot.core.workloads.autoscaling.stabilization import Bounds, History

JSON = Mapping[str, Any]
Object = dict[str, Any]

TOLERANCE = 0.1
SYNC_PERIOD_S = 15.0
_ABLE, _ACTIVE, _LIMITED, _ZERO = "AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"
_GOT_SCALE = "the HPA controller was able to get the target's current scale"
_NO_SCALE = "the HPA controller was unable to get the target's current scale"


class Event(msgspec.Struct, frozen=True):
    """An event about an autoscaler."""

    type: str
    reason: str
    note: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do. replicas: the new number for the target; None to leave it unchanged. status: assumes that nothing is written."""

    current: int
    replicas: int | None = None
    reason: str = ""
    status: JSON = {}
    events: tuple[Event, ...] = ()


class _Conditions:
    """The conditions of an autoscaler, changed one at a time."""

    def __init__(self, status: JSON, now: float) -> None:
        self._now = time_of(now)
        self._found: list[Object] = [dict(each) for each in status.get("conditions") or ()]

    def set(self, type_: str, status: bool, reason: str, message: str) -> None:
        said = "True" if status else "False"
        found = next((each for each in self._found if each["type"] == type_), None)
        if found is None:
            found = {"type": type_}
            self._found.append(found)
        if found.get("status") != said:
            found["lastTransitionTime"] = self._now
        found |= {"status": said, "reason": reason, "message": message}

    def all(self) -> list[Object]:
        return self._found


def selector_of(scale: JSON) -> str:
    """The selector of the target's pods, from its scale."""
    return str((scale.get("status") or {}).get("selector") or "")


def requirements_of(selector: str) -> Requirements | None:
    """A usable selector; None if it is empty or invalid."""
    try:
        return parse_label_selector(selector) if selector else None
    except SelectorError:
        return None


def questions(hpa: JSON, scale: JSON) -> tuple[Question, ...]:
    """What to look up before deciding; empty if the number of replicas alone decides."""
    selector = selector_of(scale)
    if not _asks_metrics(hpa, _replicas(scale)) or requirements_of(selector) is None:
        return ()
    namespace = hpa["metadata"]["namespace"]
    asked = (question_of(metric, namespace, selector) for metric in hpa["spec"].get("metrics") or ())
    return tuple(dict.fromkeys(question for question in asked if question is not None))


def without_scale(hpa: JSON, error: str, now: float) -> Decision:
    """The target's scale was not available."""
    conditions = _Conditions(hpa.get("status") or {}, now)
    conditions.set(_ABLE, False, "FailedGetScale", f"{_NO_SCALE}: {error}")
    status = {**(hpa.get("status") or {}), "conditions": conditions.all()}
    status.setdefault("desiredReplicas", 0)
    return Decision(current=0, status=status, events=(Event(WARNING, "FailedGetScale", error),))


def decide(
    hpa: JSON,
    scale: JSON,
    answers: MetricAnswers,
    pods: Sequence[Pod],
    rivals: Sequence[str],
    history: History,
    now: float,
    ticks: float,
    settings: Settings = Settings(),  # noqa: B008 - a value
) -> Decision:
    """How many replicas there should be. pods: those of the target. rivals: the keys of autoscalers that select some of them,
    including this one. ticks: a monotonic clock in seconds, used for the history; now is the time of day.
    """
    spec, current = hpa["spec"], _replicas(scale)
    conditions = _Conditions(hpa.get("status") or {}, now)
    conditions.set(_ABLE, True, "SucceededGetScale", _GOT_SCALE)
    least, most = _least(hpa), int(spec["maxReplicas"])
    if not _asks_metrics(hpa, current):
        if current == 0:
            text = "scaling is disabled since the replica count of the target is zero"
            conditions.set(_ACTIVE, False, "ScalingDisabled", text)
            return _decision(hpa, conditions, current, None, "", (), ())
        above = current > most
        reason = "Current number of replicas above Spec.MaxReplicas" if above else _BELOW
        return _decision(hpa, conditions, current, most if above else least, reason, (), ())
    computed, statuses, events, error = _computed(hpa, scale, answers, pods, rivals, conditions, now, settings)
    if computed is None:
        told = (*events, Event(WARNING, "FailedComputeMetricsReplicas", error))
        return _decision(hpa, conditions, current, None, "", statuses, told, keeps_desired=True)
    desired = max(computed.replicas, 0)
    reason = ""
    if desired > current:
        reason = f"{computed.name} above target"
    elif desired < current:
        reason = "All metrics below target"
    normal = history.normalize(spec.get("behavior"), current, desired, Bounds(least, most), ticks)
    conditions.set(_ABLE, True, *normal.able)
    conditions.set(_LIMITED, normal.limited, *normal.limit)
    replicas = normal.replicas
    if current == 0 and least and replicas < least:
        replicas, reason = least, reason or _BELOW
    return _decision(hpa, conditions, current, replicas if replicas != current else None, reason, statuses, events)


_BELOW = "Current number of replicas below Spec.MinReplicas"


def concluded(
    hpa: JSON,
    decision: Decision,
    history: History,
    now: float,
    ticks: float,
    error: str | None = None,
) -> Decision:
    """The status after the write to the target; error: why it failed. now and ticks as in `decide`."""
    if decision.replicas is None:
        return decision
    conditions = _Conditions(decision.status, now)
    size = f"New size: {decision.replicas}; reason: {decision.reason}"
    if error is not None:
        conditions.set(
            _ABLE, False, "FailedUpdateScale", f"the HPA controller was unable to update the target scale: {error}"
        )
        desired = (hpa.get("status") or {}).get("desiredReplicas", 0)
        status = {**decision.status, "desiredReplicas": desired, "conditions": conditions.all()}
        failed = Event(WARNING, "FailedRescale", f"{size}; error: {error}")
        return msgspec.structs.replace(decision, status=status, events=(*decision.events, failed))
    text = f"the HPA controller was able to update the target scale to {decision.replicas}"
    conditions.set(_ABLE, True, "SucceededRescale", text)
    if decision.current > 0 and decision.replicas == 0 and _least(hpa) == 0 and _scales_from_zero(hpa):
        conditions.set(_ZERO, True, "ScaledToZero", "the HPA controller scaled the workload to zero")
    else:
        conditions.set(_ZERO, False, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
    history.scaled(hpa["spec"].get("behavior"), decision.current, decision.replicas, ticks)
    status = {
        **decision.status,
        "desiredReplicas": decision.replicas,
        "lastScaleTime": time_of(now),
        "conditions": conditions.all(),
    }
    done = Event(NORMAL, "SuccessfulRescale", size)
    return msgspec.structs.replace(decision, status=status, events=(*decision.events, done))


# --- parts ---


def _replicas(scale: JSON) -> int:
    return int((scale.get("spec") or {}).get("replicas") or 0)


def _least(hpa: JSON) -> int:
    least = hpa["spec"].get("minReplicas")
    return 1 if least is None else int(least)


def _scales_from_zero(hpa: JSON) -> bool:
    return any(metric["type"] in (OBJECT, EXTERNAL) for metric in hpa["spec"].get("metrics") or ())


def _asks_metrics(hpa: JSON, current: int) -> bool:
    if current == 0:
        was_scaled = any(
            each.get("type") == _ZERO and each.get("status") == "True"
            for each in (hpa.get("status") or {}).get("conditions") or ()
        )
        return was_scaled and (_least(hpa) != 0 or _scales_from_zero(hpa))
    return _least(hpa) <= current <= int(hpa["spec"]["maxReplicas"])


def _tolerances(hpa: JSON) -> Tolerances:
    behavior = hpa["spec"].get("behavior") or {}

    def of(direction: str) -> float:
        given = (behavior.get(direction) or {}).get("tolerance")
        return TOLERANCE if given is None else Quantity.parse(str(given)).nano / 1e9

    return Tolerances(of("scaleDown"), of("scaleUp"))


def _computed(
    hpa: JSON,
    scale: JSON,
    answers: MetricAnswers,
    pods: Sequence[Pod],
    rivals: Sequence[str],
    conditions: _Conditions,
    now: float,
    settings: Settings,
) -> tuple[Computed | None, list[JSON], tuple[Event, ...], str]:
    """The metric with the highest proposal, the status of all metrics, events, and the errors of those that are unavailable."""
    selector = selector_of(scale)
    problem = _selector_problem(selector, rivals)
    if problem is not None:
        reason, told, message = problem
        conditions.set(_ACTIVE, False, reason if reason != "SelectorRequired" else "InvalidSelector", message)
        return None, [], (Event(WARNING, reason, told),), told
    on = Situation(
        namespace=hpa["metadata"]["namespace"],
        selector=selector,
        spec_replicas=_replicas(scale),
        status_replicas=int((scale.get("status") or {}).get("replicas") or 0),
        pods=pods,
        tolerances=_tolerances(hpa),
        settings=settings,
        now=now,
    )
    best: Computed | None = None
    statuses: list[JSON] = []
    events: list[Event] = []
    failures: list[tuple[str, str, str]] = []
    metrics = hpa["spec"].get("metrics") or ()
    for metric in metrics:
        try:
            found = compute(metric, answers, on)
        except MetricUnavailable as failure:
            reason, text = failure_reason(metric), str(failure)
            events.append(Event(WARNING, reason, text))
            failures.append((reason, text, outer_error(metric, text)))
            statuses.append({"type": ""})
            continue
        statuses.append(found.status)
        if best is None or found.replicas > best.replicas:
            best = found
    error = ""
    if failures:
        error = f"invalid metrics ({len(failures)} invalid out of {len(metrics)}), first error is: {failures[0][2]}"
    if best is None or (failures and best.replicas < on.spec_replicas):
        reason, text, _ = failures[0] if failures else ("FailedGetResourceMetric", "no metrics", "")
        conditions.set(_ACTIVE, False, reason, f"the HPA was unable to compute the replica count: {text}")
        return None, statuses, tuple(events), error
    text = f"the HPA was able to successfully calculate a replica count from {best.name}"
    conditions.set(_ACTIVE, True, "ValidMetricFound", text)
    return best, statuses, tuple(events), error


def _selector_problem(selector: str, rivals: Sequence[str]) -> tuple[str, str, str] | None:
    """The reason, the event message, and the condition message."""
    if not selector:
        return "SelectorRequired", "selector is required", "the HPA target's scale is missing a selector"
    try:
        parse_label_selector(selector)
    except SelectorError as error:
        text = f"couldn't convert selector into a corresponding internal selector object: {error}"
        return "InvalidSelector", text, text
    if len(rivals) > 1:
        named = " ".join(f"{{{name} {namespace}}}" for namespace, _, name in (key.partition("/") for key in rivals[:2]))
        text = f"pods by selector {selector} are controlled by more than one HPA (e.g. [{named}])"
        return "AmbiguousSelector", text, text
    return None


def _decision(
    hpa: JSON,
    conditions: _Conditions,
    current: int,
    replicas: int | None,
    reason: str,
    statuses: Sequence[JSON],
    events: Sequence[Event],
    *,
    keeps_desired: bool = False,
) -> Decision:
    old = hpa.get("status") or {}
    status: Object = {
        # kube-apiserver drops a zero here, and a status that differs from what was written would be written again and again.
        **({"currentReplicas": current} if current else {}),
        "desiredReplicas": old.get("desiredReplicas", 0) if keeps_desired else current,
        "conditions": conditions.all(),
    }
    if statuses:
        status["currentMetrics"] = list(statuses)
    if old.get("lastScaleTime"):
        status["lastScaleTime"] = old["lastScaleTime"]
    generation = hpa["metadata"].get("generation")
    if generation is not None:
        status["observedGeneration"] = generation
    return Decision(current=current, replicas=replicas, reason=reason, status=status, events=tuple(events))
