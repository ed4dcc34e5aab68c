"""The autoscaler's reports: pod events, the status ConfigMap, metrics; in Cluster Autoscaler's words, so that its tools work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from allot.autoscaler.backoff import Backoff
from allot.autoscaler.groups import GroupState
from allot.autoscaler.options import AutoscalerOptions
from allot.client.api import Client
from allot.client.errors import NotFound
from allot.client.events import EventRecorder
from allot.core.advice.compute_classes import reason_line
from allot.core.autoscaling.pools import price_text
from allot.core.autoscaling.scale_up import Expectation, PoolReason, Purchase, ScaleUp
from allot.core.model.core_v1 import Pod
from allot.process.clock import Clock, rfc3339
from allot.process.metrics import Counter, Gauge, Labels
from allot.yaml_values.writer import yaml_text

LAST_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
_NOTES_MAX = 5000
_PREFIX = "cluster_autoscaler_"
_PODS, _NODES = f"{_PREFIX}unschedulable_pods_count", f"{_PREFIX}nodes_count"
_GROUPS, _SAFE = f"{_PREFIX}node_groups_count", f"{_PREFIX}cluster_safe_to_autoscale"
_UNNEEDED, _ACTIVITY = f"{_PREFIX}unneeded_nodes_count", f"{_PREFIX}last_activity"
_COST = "allot_autoscaler_cost_per_hour"
_GAUGES = (
    (_PODS, "Number of unschedulable pods in the cluster.", ("type",)),
    (_NODES, "Number of nodes in cluster.", ("state",)),
    (_GROUPS, "Number of node groups managed by CA.", ("node_group_type",)),
    (_SAFE, "Whether or not cluster is healthy enough for autoscaling. 1 if it is, 0 otherwise.", ()),
    (_UNNEEDED, "Number of nodes currently considered unneeded by CA.", ()),
    (_ACTIVITY, "Last time certain part of CA logic executed.", ("activity",)),
    (_COST, "What the nodes of all groups cost per hour.", ()),
)


def triggered_text(expectation: Expectation, purchases: Sequence[Purchase]) -> str:
    """The event of a pod for which nodes are added."""
    own = [purchase.text for purchase in purchases if purchase.pool in expectation.bought]
    return f"pod triggered scale-up: [{' '.join(own)}]"


def not_triggered_text(reasons: Sequence[PoolReason], compute_class: str = "") -> str:
    """The event of a pod that no pool helps: how many pools have which reason, and the first detail; for a pod that selects a
    ComputeClass, each priority in turn."""
    if compute_class:
        said = "; ".join(map(reason_line, reasons)) or "it has no pools"
        return f"pod didn't trigger scale-up: ComputeClass {compute_class}: {said}"[:_NOTES_MAX]
    counts: dict[str, int] = {}
    for reason in reasons:
        for text in reason.reasons:
            counts[text] = counts.get(text, 0) + 1
    said = ", ".join(f"{count} {text}" for text, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    details = [f"{reason.pool}: {reason.detail}" for reason in reasons if reason.detail]
    more = f" ({'; '.join(details)})" if details else ""
    return f"pod didn't trigger scale-up: {said or 'there are no node groups'}{more}"[:_NOTES_MAX]


class Reporting:
    """Reports changes only."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        events: EventRecorder,
        options: AutoscalerOptions,
        registry: CollectorRegistry,
    ) -> None:
        self._config_maps = client.resource("", "v1", "configmaps", namespaced=True)
        self._clock = clock
        self._events = events
        self._options = options
        # The last report of each pod, by uid.
        self._told: dict[str, str] = {}
        drivers = ("dra_drivers",)
        self._up = Counter(registry, "cluster_autoscaler_scaled_up_nodes", "Number of nodes added by CA.", drivers)
        self._down = Counter(
            registry, "cluster_autoscaler_scaled_down_nodes", "Number of nodes removed by CA.", ("reason", *drivers)
        )
        self._failed = Counter(
            registry,
            "cluster_autoscaler_failed_scale_ups",
            "Number of times scale-up operation has failed.",
            ("reason", *drivers),
        )
        self._errors = Counter(
            registry, "cluster_autoscaler_errors", "The number of CA loops failed due to an error.", ("type",)
        )
        self._evicted = Counter(
            registry, "cluster_autoscaler_evicted_pods", "Number of pods evicted by CA", ("eviction_result",)
        )
        # Values of gauges, by their labels.
        self._counted: dict[str, dict[Labels, float]] = {name: {} for name, _, _ in _GAUGES}
        for name, text, labels in _GAUGES:
            Gauge(registry, name, text, labels, partial(self._counted.__getitem__, name))

    # --- events ---

    def expectations(self, plan: ScaleUp, pods: Mapping[str, Pod]) -> None:
        """Report to each pending pod what it can expect."""
        for expectation in plan.expectations:
            if expectation.bought:
                self._tell(expectation, pods, "TriggeredScaleUp", triggered_text(expectation, plan.purchases))
            elif expectation.reasons or not expectation.nodes:
                text = not_triggered_text(expectation.reasons, expectation.compute_class)
                self._tell(expectation, pods, "NotTriggerScaleUp", text)
        alive = {pod.metadata.uid for pod in pods.values()}
        self._told = {uid: text for uid, text in self._told.items() if uid in alive}
        waiting = sum(len(each.pods) for each in plan.expectations)
        self._set(_PODS, waiting, "unschedulable")

    def _tell(self, expectation: Expectation, pods: Mapping[str, Pod], reason: str, text: str) -> None:
        for name in expectation.pods:
            pod = pods.get(name)
            if pod is not None and self._told.get(pod.metadata.uid) != text:
                self._told[pod.metadata.uid] = text
                self._events.record(pod, "Normal", reason, "ScaleUp", text)

    # --- what is counted ---

    def bought(self, state: GroupState, count: int) -> None:
        """Nodes have been requested."""
        self._up.add(_drivers(state), amount=count)
        self._set(_ACTIVITY, self._clock.seconds(), "scaleUp")

    def failed(self, state: GroupState, code: str) -> None:
        """A request has failed."""
        self._failed.add(code, _drivers(state))

    def removed(self, state: GroupState, *, was_empty: bool, pods: int) -> None:
        """A node was removed."""
        self._down.add("empty" if was_empty else "underutilized", _drivers(state))
        self._evicted.add("succeeded", amount=pods)
        self._set(_ACTIVITY, self._clock.seconds(), "scaleDown")

    def error(self, kind: str) -> None:
        """A round has failed."""
        self._errors.add(kind)

    def round(self, states: Sequence[GroupState], unneeded: int, *, is_safe: bool) -> None:
        """Once for each round."""
        self._set(_NODES, sum(len(each.ready) for each in states), "ready")
        self._set(_NODES, sum(len(each.starting) for each in states), "notStarted")
        self._set(_NODES, sum(len(each.unready) for each in states), "unready")
        self._set(_NODES, sum(len(each.pending) + each.missing for each in states), "longUnregistered")
        self._set(_GROUPS, len(states), "autoscaled")
        self._set(_UNNEEDED, unneeded)
        self._set(_SAFE, float(is_safe))
        self._set(_ACTIVITY, self._clock.seconds(), "main")
        prices = (len(each.ready) * each.pool.price for each in states if each.pool is not None)
        self._set(_COST, float(price_text(sum(prices))))

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._counted[name][labels] = value

    # --- the config map ---

    async def write_status(
        self, states: Sequence[GroupState], backoff: Backoff, unneeded: Mapping[str, float], *, problem: str = ""
    ) -> None:
        """Write the status ConfigMap. ApiError."""
        now = self._clock.seconds()
        text = yaml_text(_status(states, backoff, unneeded, now, problem))
        metadata = {
            "name": self._options.status_name,
            "namespace": self._options.status_namespace,
            "annotations": {LAST_UPDATED: rfc3339(int(now))},
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"status": text}}
        try:
            await self._config_maps.update(body, self._options.status_namespace)
        except NotFound:
            await self._config_maps.create(body, self._options.status_namespace)


def _drivers(state: GroupState) -> str:
    return ",".join(state.pool.template.drivers) if state.pool is not None else ""


def _status(
    states: Sequence[GroupState], backoff: Backoff, unneeded: Mapping[str, float], now: float, problem: str
) -> dict[str, Any]:
    coming = sum(len(each.starting) + len(each.pending) + each.missing for each in states)
    ready = sum(len(each.ready) for each in states)
    return {
        "time": rfc3339(int(now)),
        "autoscalerStatus": "Running",
        **({"message": problem} if problem else {}),
        "clusterWide": {
            "health": {
                "status": "Unhealthy" if problem else "Healthy",
                "nodeCounts": {"registered": {"total": ready + coming, "ready": ready, "notStarted": coming}},
            },
            "scaleUp": {"status": "InProgress" if coming else "NoActivity"},
            "scaleDown": {"status": "CandidatesPresent" if unneeded else "NoCandidates", "candidates": len(unneeded)},
        },
        "nodeGroups": [_group(each, backoff, unneeded, now) for each in states],
    }


def _group(state: GroupState, backoff: Backoff, unneeded: Mapping[str, float], now: float) -> dict[str, Any]:
    pause = backoff.of(state.name, now)
    coming = len(state.starting) + len(state.pending) + state.missing
    scale_up: dict[str, Any] = {"status": "Backoff" if pause else "InProgress" if coming else "NoActivity"}
    if pause is not None:
        scale_up["backoffInfo"] = {
            "errorCode": pause.code,
            "errorMessage": pause.reason,
            "until": rfc3339(int(pause.until)),
        }
    names = [node.metadata.name for node in state.ready if node.metadata.name in unneeded]
    source = state.pool.template.source if state.pool is not None else ""
    return {
        "name": state.name,
        "health": {
            "status": "Unhealthy" if state.problem else "Healthy",
            "nodeCounts": {
                "registered": {
                    "total": len(state.ready) + len(state.starting) + len(state.unready),
                    "ready": len(state.ready),
                    "notStarted": len(state.starting),
                    "unready": {"total": len(state.unready)},
                },
                "unregistered": len(state.pending) + state.missing,
            },
            "cloudProviderTarget": state.target,
            "minSize": state.group.min_size,
            "maxSize": state.group.max_size,
        },
        "devicesKnownFrom": source or "unknown: no devices are assumed",
        "pricePerHour": price_text(state.pool.price) if state.pool is not None else "",
        "scaleUp": scale_up,
        "scaleDown": {"status": "CandidatesPresent" if names else "NoCandidates", "candidates": len(names)},
    }
