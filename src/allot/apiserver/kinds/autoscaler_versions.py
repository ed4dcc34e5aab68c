"""HorizontalPodAutoscaler in autoscaling/v1 and v2.

v1 has one target, CPU in percent; everything else in a v2 autoscaler goes into annotations of the v1 object, as upstream
does, so that a client that reads and writes v1 loses nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.resources import Object

_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS = f"{_PREFIX}metrics"
_BEHAVIOR = f"{_PREFIX}behavior"
_CONDITIONS = f"{_PREFIX}conditions"
_CURRENT_METRICS = f"{_PREFIX}current-metrics"
_ANNOTATIONS = (_METRICS, _BEHAVIOR, _CONDITIONS, _CURRENT_METRICS)

_CPU_TARGET = "targetCPUUtilizationPercentage"
_CPU_CURRENT = "currentCPUUtilizationPercentage"


def _members(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# --- v2 to v1 ---


def to_v1(autoscaler: Object) -> Object:
    """A v2 autoscaler in v1."""
    spec, status = dict(_members(autoscaler.get("spec"))), dict(_members(autoscaler.get("status")))
    annotations: dict[str, str] = {}
    metrics, behavior = _items(spec.pop("metrics", None)), spec.pop("behavior", None)
    current, conditions = _items(status.pop("currentMetrics", None)), status.pop("conditions", None)
    others = []
    for metric in metrics:
        percent = _cpu_percent(metric, "target")
        if percent is not None and _CPU_TARGET not in spec:
            spec[_CPU_TARGET] = percent
        else:
            others.append(_flat(metric, "target"))
    reported = []
    for metric in current:
        percent = _cpu_percent(metric, "current")
        if percent is not None and _CPU_CURRENT not in status:
            status[_CPU_CURRENT] = percent
        reported.append(_flat(metric, "current"))
    for name, value in (
        (_METRICS, others),
        (_BEHAVIOR, behavior),
        (_CURRENT_METRICS, reported),
        (_CONDITIONS, conditions),
    ):
        if value:
            annotations[name] = msgspec.json.encode(value).decode()
    metadata = dict(_members(autoscaler.get("metadata")))
    if annotations:
        metadata["annotations"] = {**_members(metadata.get("annotations")), **annotations}
    return {**autoscaler, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _cpu_percent(metric: Object, side: str) -> Any:
    """The utilization of a metric that is just CPU in percent."""
    resource = _members(metric.get("resource"))
    return _members(resource.get(side)).get("averageUtilization") if resource.get("name") == "cpu" else None


# v2 member of a metric's target or current value -> v1 member, for the two kinds of metrics that differ.
_RESOURCE_VALUES = {"averageUtilization": "AverageUtilization", "averageValue": "AverageValue"}
_OTHER_VALUES = {"value": "Value", "averageValue": "AverageValue"}


def _flat(metric: Object, side: str) -> Object:
    """A v2 metric in the flat form of v1."""
    flat: Object = {"type": metric.get("type", "")}
    for source, given in metric.items():
        if not isinstance(given, dict):
            continue
        values = _RESOURCE_VALUES if source in ("resource", "containerResource") else _OTHER_VALUES
        member = {name: value for name, value in given.items() if name not in (side, "metric", "describedObject")}
        for name, suffix in values.items():
            if name in _members(given.get(side)):
                member[f"{side}{suffix}"] = given[side][name]
        identifier = _members(given.get("metric"))
        if identifier:
            member["metricName"] = identifier.get("name", "")
            if "selector" in identifier:
                member["metricSelector" if source == "external" else "selector"] = identifier["selector"]
        if "describedObject" in given:
            member["target"] = given["describedObject"]
        flat[source] = member
    return flat


# --- v1 to v2 ---


def to_v2(autoscaler: Object) -> Object:
    """A v1 autoscaler in v2."""
    spec, status = dict(_members(autoscaler.get("spec"))), dict(_members(autoscaler.get("status")))
    metadata = dict(_members(autoscaler.get("metadata")))
    annotations = dict(_members(metadata.get("annotations")))
    kept = {name: _decoded(annotations.pop(name, None)) for name in _ANNOTATIONS}
    if "annotations" in metadata:
        metadata["annotations"] = annotations
        if not annotations:
            del metadata["annotations"]
    metrics = [_nested(metric, "target") for metric in _items(kept[_METRICS])]
    percent = spec.pop(_CPU_TARGET, None)
    if percent is not None:
        metrics.insert(0, _cpu("target", {"type": "Utilization", "averageUtilization": percent}))
    if metrics:
        spec["metrics"] = metrics
    if isinstance(kept[_BEHAVIOR], dict):
        spec["behavior"] = kept[_BEHAVIOR]
    current = [_nested(metric, "current") for metric in _items(kept[_CURRENT_METRICS])]
    percent = status.pop(_CPU_CURRENT, None)
    if percent is not None and not current:
        current = [_cpu("current", {"averageUtilization": percent})]
    if current:
        status["currentMetrics"] = current
    if _items(kept[_CONDITIONS]):
        status["conditions"] = kept[_CONDITIONS]
    return {**autoscaler, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec, "status": status}


def _cpu(side: str, values: Object) -> Object:
    return {"type": "Resource", "resource": {"name": "cpu", side: values}}


def _decoded(text: Any) -> Any:
    """The content of an annotation; invalid JSON is dropped, as upstream does."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _nested(metric: Object, side: str) -> Object:
    """A v1 metric in the form of v2."""
    nested: Object = {"type": metric.get("type", "")}
    for source, given in metric.items():
        if not isinstance(given, dict):
            continue
        of_resource = source in ("resource", "containerResource")
        values = _RESOURCE_VALUES if of_resource else _OTHER_VALUES
        measured = {name: given[f"{side}{suffix}"] for name, suffix in values.items() if f"{side}{suffix}" in given}
        if side == "target":
            names = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}
            measured = {"type": next((names[name] for name in names if name in measured), ""), **measured}
        member: Object = {name: given[name] for name in ("name", "container") if name in given}
        if "metricName" in given:
            selector = given.get("metricSelector", given.get("selector"))
            member["metric"] = {"name": given["metricName"]} | ({"selector": selector} if selector else {})
        if source == "object" and "target" in given:
            member["describedObject"] = given["target"]
        nested[source] = {**member, side: measured}
    return nested
