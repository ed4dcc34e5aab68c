"""One look at an autoscaler: conditions, events, messages and status, as Kubernetes writes them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from allot.core.lifecycle.times import time_of
from allot.core.model.core_v1 import Pod
from allot.core.selectors import parse_label_selector
from allot.core.workloads.autoscaling.decision import Decision, concluded, decide, questions, without_scale
from allot.core.workloads.autoscaling.metrics import Failure, Question, selector_text, selector_words
from allot.core.workloads.autoscaling.selector_store import SelectorStore
from allot.core.workloads.autoscaling.stabilization import History
from core.workloads.autoscaling.test_proposals import NOW, pods

Object = dict[str, Any]

# What history is kept in: not the time of day.
TICKS = 5000.0


def resource(percent: int = 50, name: str = "cpu") -> Object:
    return {
        "type": "Resource",
        "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": percent}},
    }


def external(value: str = "10", selector: Object | None = None, kind: str = "value") -> Object:
    metric: Object = {"name": "queue"}
    if selector is not None:
        metric["selector"] = selector
    target = {"type": "Value" if kind == "value" else "AverageValue", kind: value}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def hpa(*metrics: Object, status: Object | None = None, **spec: Any) -> Object:
    spec = {"minReplicas": 1, "maxReplicas": 10, "metrics": list(metrics) or [resource()], **spec}
    metadata = {"name": "h", "namespace": "ns", "generation": 3}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def scale(replicas: int, selector: str = "app=x") -> Object:
    return {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": selector}}


def used(*milli: int) -> Object:
    """metrics.k8s.io."""
    return {
        "items": [
            {
                "metadata": {"name": f"p{number}"},
                "timestamp": time_of(NOW),
                "window": "30s",
                "containers": [{"name": "c", "usage": {"cpu": f"{value}m", "memory": "512Mi"}}],
            }
            for number, value in enumerate(milli)
        ]
    }


def values(*numbers: str) -> Object:
    """external.metrics.k8s.io."""
    return {"items": [{"metricName": "queue", "timestamp": time_of(NOW), "value": number} for number in numbers]}


def look(
    object_: Object,
    replicas: int,
    *answers: Object | Failure,
    these: list[Pod] | None = None,
    selector: str = "app=x",
    rivals: tuple[str, ...] = ("ns/h",),
    history: History | None = None,
) -> Decision:
    current = scale(replicas, selector)
    asked = questions(object_, current)
    assert len(asked) == len(answers)
    known = dict(zip(asked, answers, strict=True))
    found = these if these is not None else pods(replicas)
    return decide(object_, current, known, found, rivals, history or History(0, TICKS - 1000), NOW, TICKS)


def said(decision: Decision, type_: str) -> tuple[str, str, str]:
    (found,) = [each for each in decision.status["conditions"] if each["type"] == type_]
    return found["status"], found["reason"], found["message"]


def test_a_rescale_in_all_its_words() -> None:
    object_ = hpa()
    decision = look(object_, 4, used(900, 900, 900, 900))
    assert (decision.replicas, decision.reason) == (8, "cpu resource utilization (percentage of request) above target")
    history = History(4, TICKS)
    done = concluded(object_, decision, history, NOW, TICKS)
    (event,) = done.events
    assert (event.type, event.reason) == ("Normal", "SuccessfulRescale")
    assert event.note == "New size: 8; reason: cpu resource utilization (percentage of request) above target"
    assert done.status["currentReplicas"] == 4 and done.status["desiredReplicas"] == 8
    assert done.status["lastScaleTime"] == time_of(NOW) and done.status["observedGeneration"] == 3
    assert done.status["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 90, "averageValue": "900m"}}}
    ]
    assert said(done, "AbleToScale") == (
        "True",
        "SucceededRescale",
        "the HPA controller was able to update the target scale to 8",
    )
    assert said(done, "ScalingActive") == (
        "True",
        "ValidMetricFound",
        "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)",
    )
    assert said(done, "ScalingLimited") == (
        "False",
        "DesiredWithinRange",
        "the desired count is within the acceptable range",
    )
    assert said(done, "ScaledToZero")[:2] == ("False", "NotScaledToZero")


def test_a_rescale_that_the_server_refuses() -> None:
    object_ = hpa(status={"desiredReplicas": 4})
    failed = concluded(object_, look(object_, 4, used(*[900] * 4)), History(4, TICKS), NOW, TICKS, "no")
    assert failed.events[-1].reason == "FailedRescale"
    assert failed.events[-1].note.endswith("above target; error: no")
    assert said(failed, "AbleToScale") == (
        "False",
        "FailedUpdateScale",
        "the HPA controller was unable to update the target scale: no",
    )
    assert failed.status["desiredReplicas"] == 4 and "lastScaleTime" not in failed.status


@pytest.mark.parametrize(
    ("replicas", "spec", "expected", "reason"),
    [
        (12, {}, 10, "Current number of replicas above Spec.MaxReplicas"),
        (1, {"minReplicas": 3}, 3, "Current number of replicas below Spec.MinReplicas"),
    ],
)
def test_bounds_need_no_metrics(replicas: int, spec: Object, expected: int, reason: str) -> None:
    decision = look(hpa(**spec), replicas)
    assert (decision.replicas, decision.reason) == (expected, reason)


def test_zero_by_hand_stays_zero() -> None:
    decision = look(hpa(external(), minReplicas=0), 0)
    assert decision.replicas is None and "currentReplicas" not in decision.status
    assert said(decision, "ScalingActive") == (
        "False",
        "ScalingDisabled",
        "scaling is disabled since the replica count of the target is zero",
    )


def test_to_zero_and_back() -> None:
    object_ = hpa(external(), minReplicas=0)
    down = look(object_, 1, values("0"), history=History(0, TICKS - 1000))
    assert down.replicas == 0 and down.reason == "All metrics below target"
    done = concluded(object_, down, History(0, TICKS), NOW, TICKS)
    assert said(done, "ScaledToZero") == ("True", "ScaledToZero", "the HPA controller scaled the workload to zero")
    asleep = hpa(external(), minReplicas=0, status=dict(done.status))
    assert look(asleep, 0, values("0"), these=[]).replicas is None
    awake = look(asleep, 0, values("25"), these=[])
    assert awake.replicas == 3 and awake.reason == "external metric queue(nil) above target"
    # A smallest number that was raised meanwhile.
    raised = look(hpa(external(), minReplicas=2, status=dict(done.status)), 0, values("0"), these=[])
    assert raised.replicas == 2


@pytest.mark.parametrize(
    ("metric", "answer", "reason", "inner", "outer"),
    [
        (
            resource(),
            Failure("the server could not find the requested resource"),
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource "
            "metrics API: the server could not find the requested resource",
            "failed to get cpu resource metric value: ",
        ),
        (
            resource(),
            {"items": []},
            "FailedGetResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource "
            "metrics API",
            "failed to get cpu resource metric value: ",
        ),
        (
            external(selector={"matchLabels": {"q": "a"}}),
            {"items": []},
            "FailedGetExternalMetric",
            "unable to get external metric ns/queue/&LabelSelector{MatchLabels:map[string]string{q: a,},"
            "MatchExpressions:[]LabelSelectorRequirement{},}: no metrics returned from external metrics API",
            "failed to get queue external metric value: failed to get external metric queue: ",
        ),
        (
            {
                "type": "Pods",
                "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}},
            },
            {"items": []},
            "FailedGetPodsMetric",
            "unable to get metric m: no metrics returned from custom metrics API",
            "failed to get pods metric value: ",
        ),
        (
            {
                "type": "Object",
                "object": {
                    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
                    "metric": {"name": "m"},
                    "target": {"type": "Value", "value": "1"},
                },
            },
            Failure("gone"),
            "FailedGetObjectMetric",
            "unable to get metric m on Service ns/s: unable to fetch metrics from custom metrics API: gone",
            "failed to get object metric value: ",
        ),
    ],
)
def test_a_metric_that_says_nothing(metric: Object, answer: Any, reason: str, inner: str, outer: str) -> None:
    decision = look(hpa(metric, status={"desiredReplicas": 7}), 2, answer)
    assert decision.replicas is None and decision.status["desiredReplicas"] == 7
    assert said(decision, "ScalingActive") == (
        "False",
        reason,
        f"the HPA was unable to compute the replica count: {inner}",
    )
    first, second = decision.events
    assert (first.reason, first.note) == (reason, inner)
    assert second.reason == "FailedComputeMetricsReplicas"
    assert second.note == f"invalid metrics (1 invalid out of 1), first error is: {outer}{inner}"


def test_one_failing_metric_forbids_fewer_replicas_and_allows_more() -> None:
    both = hpa(resource(), external())
    more = look(both, 2, used(900, 900), Failure("away"))
    assert more.replicas == 4 and [event.reason for event in more.events] == ["FailedGetExternalMetric"]
    fewer = look(both, 4, used(*[100] * 4), Failure("away"))
    assert fewer.replicas is None and said(fewer, "ScalingActive")[0] == "False"


def test_the_metric_that_asks_for_most_decides() -> None:
    decision = look(hpa(resource(), external("1")), 2, used(600, 600), values("2", "2500m"))
    assert decision.replicas == 4
    assert said(decision, "ScalingLimited")[:2] == ("True", "ScaleUpLimit")
    assert decision.reason == "external metric queue(nil) above target"


@pytest.mark.parametrize(
    ("selector", "rivals", "reason", "condition"),
    [
        ("", (), "SelectorRequired", ("InvalidSelector", "the HPA target's scale is missing a selector")),
        (
            "app=x",
            ("ns/a", "ns/h"),
            "AmbiguousSelector",
            ("AmbiguousSelector", "pods by selector app=x are controlled by more than one HPA (e.g. [{a ns} {h ns}])"),
        ),
    ],
)
def test_whose_pods_are_not_clear(
    selector: str, rivals: tuple[str, ...], reason: str, condition: tuple[str, str]
) -> None:
    answers = (used(900, 900),) if selector else ()
    decision = look(hpa(), 2, *answers, selector=selector, rivals=rivals)
    assert decision.replicas is None and decision.events[0].reason == reason
    assert said(decision, "ScalingActive")[1:] == condition


def test_a_target_that_is_not_there() -> None:
    decision = without_scale(hpa(status={"desiredReplicas": 3}), 'deployments.apps "x" not found', NOW)
    text = 'the HPA controller was unable to get the target\'s current scale: deployments.apps "x" not found'
    assert said(decision, "AbleToScale") == ("False", "FailedGetScale", text)
    assert decision.events[0].note == 'deployments.apps "x" not found' and decision.status["desiredReplicas"] == 3
    assert "currentReplicas" not in decision.status


def test_conditions_keep_their_time_until_they_change() -> None:
    first = look(hpa(), 2, used(500, 500))
    later = hpa(status=dict(first.status))
    known = dict.fromkeys(questions(later, scale(2)), used(500, 500))
    second = decide(later, scale(2), known, pods(2), ("ns/h",), History(2, TICKS), NOW + 60, TICKS + 60)
    assert second.status == first.status
    third = without_scale(later, "gone", NOW + 60)
    changed = {each["type"]: each["lastTransitionTime"] for each in third.status["conditions"]}
    assert changed["AbleToScale"] == time_of(NOW + 60) and changed["ScalingActive"] == time_of(NOW)


def test_container_resources_and_memory() -> None:
    container = {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 50},
        },
    }
    decision = look(hpa(container), 2, used(900, 900))
    assert decision.replicas == 4
    assert decision.reason == "cpu container resource utilization (percentage of request) above target"
    assert decision.status["currentMetrics"][0]["containerResource"]["container"] == "c"
    average = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "256Mi"}},
    }
    decision = look(hpa(average), 2, used(1, 1))
    assert (decision.replicas, decision.reason) == (4, "memory resource above target")
    assert decision.status["currentMetrics"][0]["resource"]["current"] == {"averageValue": "512Mi"}


def test_questions_are_asked_once() -> None:
    object_ = hpa(resource(), resource(70, "memory"), external())
    asked = questions(object_, scale(2))
    assert asked == (
        Question(api="resource", namespace="ns", pods="app=x"),
        Question(api="external", namespace="ns", metric="queue"),
    )


def test_selectors_as_text_and_in_words() -> None:
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["y", "x"]},
            {"key": "n", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"},
        ],
    }
    assert selector_text(selector) == "a=1,b=2,k in (x,y),n notin (z),e,!d"
    assert parse_label_selector(selector_text(selector)).matches({"a": "1", "b": "2", "k": "x", "e": ""})
    assert selector_text(None) == "" and selector_words(None) == "nil"


def test_autoscalers_that_want_the_same_pods_are_found() -> None:
    store = SelectorStore()
    named = [
        (pod, labels) for pod, labels in zip(pods(3), ({"app": "a"}, {"app": "a", "x": "1"}, {"app": "b"}), strict=True)
    ]
    these = [replace(pod, metadata=replace(pod.metadata, labels=labels)) for pod, labels in named]
    store.put("ns", "one", parse_label_selector("app=a"))
    assert store.rivals("ns", these, 2) == ["ns/one"]
    store.put("ns", "two", parse_label_selector("x"))
    assert store.rivals("ns", these, 2) == ["ns/one", "ns/two"]
    assert store.rivals("other", these, 2) == []
    store.put("ns", "two", parse_label_selector("app=b"))
    assert store.rivals("ns", these[:2], 2) == ["ns/one"]
    store.delete("ns", "one")
    assert store.rivals("ns", these, 2) == ["ns/two"]


def test_a_type_of_metric_that_is_not_known_is_named_and_the_others_count() -> None:
    unheard = {"type": "Cheese", "cheese": {"name": "gouda"}}
    alone = look(hpa(unheard), 3)
    assert said(alone, "ScalingActive") == (
        "False",
        "InvalidMetricSourceType",
        'the HPA was unable to compute the replica count: unknown metric source type "Cheese"',
    )
    assert alone.replicas is None and alone.status["desiredReplicas"] == 0
    both = look(hpa(unheard, resource(30)), 3, used(300, 500, 700))
    assert both.replicas == 5 and said(both, "ScalingActive")[0] == "True"
    # Fewer than there are is not believed while one says nothing.
    assert look(hpa(unheard, resource(90)), 3, used(300, 500, 700)).replicas is None


def test_the_time_of_day_may_jump() -> None:
    """An hour back or ahead: who waits for five minutes waits for five minutes."""
    object_ = hpa(resource(50))
    history = History(4, TICKS)
    known = dict(zip(questions(object_, scale(4)), [used(*[100] * 4)], strict=True))
    for hour, passed, expected in ((-1, 60, None), (1, 120, None), (-1, 299, None), (-1, 301, 1)):
        found = decide(object_, scale(4), known, pods(4), ("ns/h",), history, NOW + hour * 3600, TICKS + passed)
        assert found.replicas is None if expected is None else found.replicas is not None, (hour, passed)
