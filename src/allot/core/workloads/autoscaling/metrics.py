"""The metrics of an autoscaler: what to request, and how to interpret the answer, with Kubernetes' messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.times import seconds_of
from allot.core.model.core_v1 import Pod
from allot.core.quantity import Format, Quantity, QuantityError
from allot.core.workloads.autoscaling import proposals
from allot.core.workloads.autoscaling.proposals import (
    MetricUnavailable,
    Proposal,
    Sample,
    Samples,
    Settings,
    Tolerances,
    milli,
)

JSON = Mapping[str, Any]
Object = dict[str, Any]

RESOURCE, CONTAINER, PODS, OBJECT, EXTERNAL = "Resource", "ContainerResource", "Pods", "Object", "External"
# The default: metrics-server's.
_WINDOW_S = 60.0
_MEMBERS = {RESOURCE: "resource", CONTAINER: "containerResource", PODS: "pods", OBJECT: "object", EXTERNAL: "external"}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A query to a metrics API. api: resource, custom or external. object_kind: the kind of the object that the metric describes,
    with the object's name; empty for metrics of pods.
    """

    api: str
    namespace: str
    metric: str = ""
    pods: str = ""
    labels: str = ""
    object_api_version: str = ""
    object_kind: str = ""
    object_name: str = ""


class Failure(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    message: str


# The answer: the object, or why there is none.
MetricAnswers = Mapping[Question, JSON | Failure]


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a metric is evaluated against."""

    namespace: str
    selector: str
    spec_replicas: int
    status_replicas: int
    pods: Sequence[Pod]
    tolerances: Tolerances
    settings: Settings
    now: float


class Computed(msgspec.Struct, frozen=True):
    """The result for a metric: proposed replicas, its description, and its status entry."""

    replicas: int
    name: str
    status: JSON


def question_of(metric: JSON, namespace: str, selector: str) -> Question | None:
    """What to request for a metric; None if its type is unknown. selector: of the target's pods."""
    kind = metric["type"]
    if kind not in _MEMBERS:
        return None
    source = metric[_MEMBERS[kind]]
    if kind in (RESOURCE, CONTAINER):
        return Question(api="resource", namespace=namespace, pods=selector)
    labels = selector_text(source["metric"].get("selector"))
    name = source["metric"]["name"]
    if kind == PODS:
        return Question(api="custom", namespace=namespace, metric=name, pods=selector, labels=labels)
    if kind == EXTERNAL:
        return Question(api="external", namespace=namespace, metric=name, labels=labels)
    described = source["describedObject"]
    return Question(
        api="custom",
        namespace=namespace,
        metric=name,
        labels=labels,
        object_api_version=described.get("apiVersion", ""),
        object_kind=described["kind"],
        object_name=described["name"],
    )


def failure_reason(metric: JSON) -> str:
    """The reason in the condition and event for an unavailable metric."""
    if metric["type"] not in _MEMBERS:
        return "InvalidMetricSourceType"
    return f"FailedGet{metric['type']}Metric"


def outer_error(metric: JSON, error: str) -> str:
    """The error of an unavailable metric in the summary of all metrics."""
    kind = metric["type"]
    if kind not in _MEMBERS:
        return error
    source = metric[_MEMBERS[kind]]
    about = {
        OBJECT: "object metric value",
        PODS: "pods metric value",
        RESOURCE: f"{source.get('name')} resource metric value",
        CONTAINER: f"{source.get('container')} container metric value",
        EXTERNAL: f"{(source.get('metric') or {}).get('name')} external metric value",
    }
    name, per_pod = (
        (source.get("metric") or {}).get("name"),
        (source.get("target") or {}).get("averageValue") is not None,
    )
    # Only for these does the condition contain the error itself.
    if kind == EXTERNAL:
        error = f"failed to get {f'{name} external metric' if per_pod else f'external metric {name}'}: {error}"
    elif kind == OBJECT and per_pod:
        error = f"failed to get {name} object metric: {error}"
    return f"failed to get {about[kind]}: {error}"


def compute(metric: JSON, answers: MetricAnswers, situation: Situation) -> Computed:
    """The proposal of a metric; MetricUnavailable if there is none."""
    question = question_of(metric, situation.namespace, situation.selector)
    if question is None:
        raise MetricUnavailable(f'unknown metric source type "{metric["type"]}"')
    answer = answers[question]
    match metric["type"]:
        case "Resource":
            return _resource(metric["resource"], "", RESOURCE, answer, situation)
        case "ContainerResource":
            source = metric["containerResource"]
            return _resource(source, source["container"], CONTAINER, answer, situation)
        case "Pods":
            return _pods(metric["pods"], answer, situation)
        case "Object":
            return _object(metric["object"], answer, situation)
    return _external(metric["external"], answer, situation)


# --- resources ---


def _resource(source: JSON, container: str, kind: str, answer: JSON | Failure, on: Situation) -> Computed:
    name, target = source["name"], source["target"]
    is_average = target.get("averageValue") is not None
    try:
        samples = _resource_samples(answer, name, container)
    except MetricUnavailable as error:
        about = "usage" if is_average else "utilization"
        text = f"failed to get {name} {about}: unable to get metrics for resource {name}: {error}"
        raise MetricUnavailable(text) from error
    current: Object = {}
    try:
        if is_average:
            amount = milli(Quantity.parse(target["averageValue"]))
            proposal = proposals.by_average(
                on.spec_replicas, amount, samples, on.pods, name, on.tolerances, on.settings, on.now
            )
            called = f"{name} resource"
        else:
            if not on.pods:
                raise MetricUnavailable("no pods returned by selector while calculating replica count")
            wanted = int(target["averageUtilization"])
            proposal = _by_utilization(on, wanted, samples, container, name)
            current["averageUtilization"] = proposal.utilization
            called = f"{name} resource utilization (percentage of request)"
            if kind == CONTAINER:
                called = f"{name} container resource utilization (percentage of request)"
    except MetricUnavailable as error:
        about = "usage" if is_average else "utilization"
        raise MetricUnavailable(f"failed to get {name} {about}: {error}") from error
    format_ = Format.BINARY_SI if name == "memory" else Format.DECIMAL_SI
    current["averageValue"] = _quantity(proposal.value, format_)
    status: Object = {"name": name, "current": current}
    if kind == CONTAINER:
        status["container"] = container
    return Computed(proposal.replicas, called, {"type": kind, _MEMBERS[kind]: status})


def _by_utilization(on: Situation, target: int, samples: Samples, container: str, name: str) -> Proposal:
    """Decides which pods count before checking their requests."""
    counted = dict(samples)
    proposals.group_pods(on.pods, counted, name, on.settings, on.now)
    if not counted:
        raise MetricUnavailable("did not receive metrics for targeted pods (pods might be unready)")
    requests = proposals.requests_of(on.pods, container, name)
    return proposals.by_utilization(
        on.spec_replicas, target, samples, on.pods, requests, name, on.tolerances, on.settings, on.now
    )


def _resource_samples(answer: JSON | Failure, resource: str, container: str) -> Samples:
    if isinstance(answer, Failure):
        raise MetricUnavailable(f"unable to fetch metrics from resource metrics API: {answer.message}")
    items = answer.get("items") or ()
    if not items:
        raise MetricUnavailable("no metrics returned from resource metrics API")
    samples: Samples = {}
    for item in items:
        containers = [each for each in item.get("containers") or () if not container or each["name"] == container]
        amounts = [(each.get("usage") or {}).get(resource) for each in containers]
        if amounts and None not in amounts:
            value = sum(milli(Quantity.parse(str(amount))) for amount in amounts)
            window_s = _duration_s(item.get("window"))
            samples[item["metadata"]["name"]] = Sample(value, seconds_of(item["timestamp"]), window_s)
    return samples


def _duration_s(text: object) -> float:
    """A duration in Go's format, as used for windows: hours, minutes and seconds."""
    total, number = 0.0, ""
    for character in str(text or ""):
        if character in "hms":
            try:
                total += float(number) * {"h": 3600, "m": 60, "s": 1}[character]
            except ValueError:
                return _WINDOW_S
            number = ""
        else:
            number += character
    return total or _WINDOW_S


# --- others ---


def _pods(source: JSON, answer: JSON | Failure, on: Situation) -> Computed:
    name = source["metric"]["name"]
    try:
        samples = _custom_samples(answer)
    except MetricUnavailable as error:
        raise MetricUnavailable(f"unable to get metric {name}: {error}") from error
    target = milli(Quantity.parse(source["target"]["averageValue"]))
    proposal = proposals.by_average(on.spec_replicas, target, samples, on.pods, "", on.tolerances, on.settings, on.now)
    status = {"metric": _identifier(source), "current": {"averageValue": _quantity(proposal.value)}}
    return Computed(proposal.replicas, f"pods metric {name}", {"type": PODS, "pods": status})


def _custom_samples(answer: JSON | Failure) -> Samples:
    if isinstance(answer, Failure):
        raise MetricUnavailable(f"unable to fetch metrics from custom metrics API: {answer.message}")
    items = answer.get("items") or ()
    if not items:
        raise MetricUnavailable("no metrics returned from custom metrics API")
    return {
        item["describedObject"]["name"]: Sample(
            _value(item), seconds_of(item["timestamp"]), float(item.get("windowSeconds") or _WINDOW_S)
        )
        for item in items
    }


def _object(source: JSON, answer: JSON | Failure, on: Situation) -> Computed:
    described, name, target = source["describedObject"], source["metric"]["name"], source["target"]
    where = f"unable to get metric {name} on {described['kind']} {on.namespace}/{described['name']}"
    is_value = target["type"] == "Value"
    if isinstance(answer, Failure):
        raise MetricUnavailable(f"{where}: unable to fetch metrics from custom metrics API: {answer.message}")
    items = answer.get("items") or ()
    if not items:
        raise MetricUnavailable(f"{where}: unable to fetch metrics from custom metrics API: no metrics returned")
    value = _value(items[0])
    current: Object
    if is_value:
        wanted = milli(Quantity.parse(target["value"]))
        proposal = proposals.by_value(on.spec_replicas, value, wanted, on.pods, on.tolerances)
        current = {"value": _quantity(proposal.value)}
    else:
        wanted = milli(Quantity.parse(target["averageValue"]))
        proposal = proposals.by_value_per_pod(on.status_replicas, value, wanted, on.tolerances)
        current = {"averageValue": _quantity(proposal.value)}
    status = {"describedObject": dict(described), "metric": _identifier(source), "current": current}
    # For an average, upstream calls it external.
    called = f"{described['kind']} metric {name}"
    if not is_value:
        called = f"external metric {name}({selector_words(source['metric'].get('selector'))})"
    return Computed(proposal.replicas, called, {"type": OBJECT, "object": status})


def _external(source: JSON, answer: JSON | Failure, on: Situation) -> Computed:
    name, target, selector = source["metric"]["name"], source["target"], source["metric"].get("selector")
    words = selector_words(selector)
    value = _external_value(answer, f"unable to get external metric {on.namespace}/{name}/{words}")
    current: Object
    if target.get("averageValue") is not None:
        wanted = milli(Quantity.parse(target["averageValue"]))
        proposal = proposals.by_value_per_pod(on.status_replicas, value, wanted, on.tolerances)
        current = {"averageValue": _quantity(proposal.value)}
    else:
        wanted = milli(Quantity.parse(target["value"]))
        proposal = proposals.by_value(on.spec_replicas, value, wanted, on.pods, on.tolerances)
        current = {"value": _quantity(proposal.value)}
    status = {"metric": _identifier(source), "current": current}
    return Computed(proposal.replicas, f"external metric {name}({words})", {"type": EXTERNAL, "external": status})


def _external_value(answer: JSON | Failure, where: str) -> int:
    if isinstance(answer, Failure):
        raise MetricUnavailable(f"{where}: unable to fetch metrics from external metrics API: {answer.message}")
    items = answer.get("items") or ()
    if not items:
        raise MetricUnavailable(f"{where}: no metrics returned from external metrics API")
    return min(sum(_value(item) for item in items), 2**63 - 1)


def _value(item: JSON) -> int:
    try:
        return milli(Quantity.parse(str(item["value"])))
    except QuantityError as error:
        raise MetricUnavailable(str(error)) from error


def _identifier(source: JSON) -> Object:
    return dict(source["metric"])


def _quantity(value: int, format_: Format = Format.DECIMAL_SI) -> str:
    return str(Quantity.from_nano(value * 10**6, format_))


# --- selectors ---


def selector_text(selector: JSON | None) -> str:
    """A label selector as a query parameter."""
    if not selector:
        return ""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or ():
        values = ",".join(sorted(each.get("values") or ()))
        words = {
            "In": f"{each['key']} in ({values})",
            "NotIn": f"{each['key']} notin ({values})",
            "Exists": each["key"],
            "DoesNotExist": f"!{each['key']}",
        }
        parts.append(words[each["operator"]])
    return ",".join(parts)


def selector_words(selector: JSON | None) -> str:
    """A label selector as in messages: Go's format of the struct."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
