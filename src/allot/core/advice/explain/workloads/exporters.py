"""Exporters of devices' metrics that do not say which pods have the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from allot.core.advice.explain.causes.selecting import Unselected
from allot.core.advice.explain.daemons import daemon_sets
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.meta import RawJSON
from allot.core.workloads.pod_templates import template_value

_ON = ("true", "t", "1")


class _Exporter(NamedTuple):
    """An exporter, by its name. flag, variable: with which it knows the pods of claims."""

    name: str
    flag: str
    variable: str


# By prefixes of metrics.
_EXPORTERS = {"DCGM_FI_": _Exporter("dcgm-exporter", "--kubernetes-enable-dra", "KUBERNETES_ENABLE_DRA")}


def without_pods(what_if: WhatIfCluster, metric: str, pods: Sequence[core_v1.Pod]) -> Unselected | None:
    """Why a metric of devices has no values for pods that have them by claims; None if unknown. pods: those that the metric is asked of."""
    exporter = next((each for prefix, each in _EXPORTERS.items() if metric.startswith(prefix)), None)
    if exporter is None or DaemonSet in what_if.unread or not any(each.spec.resource_claims for each in pods):
        return None
    sets = [each for each, _ in daemon_sets(what_if, exporter.name)]
    if not sets or any(_knows_claims(each.spec.template, exporter) for each in sets):
        return None
    name = f"DaemonSet {full_name(sets[0])}"
    text = f"{name} does not say which pods have devices by claims ({exporter.variable} is not true)"
    advice = f"set {exporter.variable}=true in {name}, and let its ServiceAccount list ResourceSlices"
    return Unselected(text, advice)


def _knows_claims(template: RawJSON | None, exporter: _Exporter) -> bool:
    spec: Mapping[str, Any] = (template_value(template).get("spec") if template is not None else None) or {}
    for container in spec.get("containers") or ():
        if not isinstance(container, dict):
            continue
        for argument in (*(container.get("command") or ()), *(container.get("args") or ())):
            flag, _, value = str(argument).partition("=")
            if flag == exporter.flag:
                return value.lower() in ("", *_ON)
        for each in container.get("env") or ():
            if isinstance(each, dict) and each.get("name") == exporter.variable:
                # One that comes from elsewhere may be set.
                return str(each.get("value", _ON[0])).lower() in _ON
        if container.get("envFrom"):
            return True
    return False
