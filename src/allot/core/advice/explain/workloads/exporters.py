"""Exporters of devices' metrics that do not say which pods have the devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.selecting import Unselected
from allot.core.advice.explain.daemons import daemon_sets
from allot.core.advice.explain.program_settings import containers_in, setting
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.meta import RawJSON

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
    """Whether any of the containers is told to, or may be."""
    values = [setting(each, exporter.flag, exporter.variable) for each in containers_in(template)]
    return any(each is None or each.lower() in _ON for each in values)
