"""How many replicas one metric requires: Kubernetes' arithmetic, in thousandths and with its rounding.

Pods without reliable samples are left out or filled in conservatively: a pod without a sample counts as busy when scaling down,
and as idle when scaling up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allot.core.lifecycle.times import seconds_of
from allot.core.model.core_v1 import Pod
from allot.core.quantity import Quantity
from allot.core.workloads.pod_states import condition_of, is_ready

CPU = "cpu"
REPLICAS_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class MetricUnavailable(Exception):
    """Why a metric is unavailable."""


class Sample(msgspec.Struct, frozen=True):
    """What a pod uses, in thousandths, at a time and over the window before it."""

    value: int
    at: float = 0.0
    window_s: float = 0.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How samples of starting pods are judged."""

    cpu_initialization_s: float = 300.0
    initial_readiness_delay_s: float = 30.0


class Tolerances(msgspec.Struct, frozen=True):
    """How far from the target a ratio may be before the autoscaler acts."""

    down: float = 0.1
    up: float = 0.1

    def cover(self, ratio: float) -> bool:
        """Whether a ratio to the target is within tolerance."""
        return (1.0 - self.down) <= ratio <= (1.0 + self.up)


class Proposal(msgspec.Struct, frozen=True):
    """How many replicas, and what was measured: in percent of the requests, if that is the target, and in thousandths."""

    replicas: int
    value: int
    utilization: int | None = None


Samples = dict[str, Sample]


class _Groups(msgspec.Struct):
    ready: int
    unready: list[str]
    missing: list[str]


def milli(quantity: Quantity) -> int:
    """Thousandths, rounded up as Kubernetes does."""
    return -(-quantity.nano // 10**6)


def group_pods(
    pods: Sequence[Pod], samples: Samples, resource: str, settings: Settings, now: float
) -> tuple[int, list[str], list[str]]:
    """How many pods count, which are not ready, and which have no sample. Removes the samples of pods that do not count."""
    groups = _Groups(0, [], [])
    for pod in pods:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            samples.pop(name, None)
        elif pod.status.phase == "Pending":
            groups.unready.append(name)
        elif name not in samples:
            groups.missing.append(name)
        elif resource == CPU and _is_unready(pod, samples[name], settings, now):
            groups.unready.append(name)
        else:
            groups.ready += 1
    for name in groups.unready:
        samples.pop(name, None)
    return groups.ready, groups.unready, groups.missing


def _is_unready(pod: Pod, sample: Sample, settings: Settings, now: float) -> bool:
    """Whether a pod's CPU usage is still that of its startup."""
    ready, started = condition_of(pod, "Ready"), pod.status.start_time
    if ready is None or started is None:
        return True
    since = seconds_of(ready.last_transition_time) if ready.last_transition_time is not None else 0.0
    if seconds_of(started) + settings.cpu_initialization_s > now:
        return ready.status == "False" or sample.at < since + sample.window_s
    return ready.status == "False" and seconds_of(started) + settings.initial_readiness_delay_s > since


# --- metrics of pods ---


def by_utilization(
    current: int,
    target_percent: int,
    samples: Samples,
    pods: Sequence[Pod],
    requests: Mapping[str, int],
    resource: str,
    tolerances: Tolerances,
    settings: Settings,
    now: float,
) -> Proposal:
    """For usage in percent of requests. requests: in thousandths, of every pod."""
    ready, unready, missing = _usable(pods, samples, resource, settings, now)
    ratio, percent, value = _utilization(samples, requests, target_percent)

    def filled(name: str) -> int:
        return requests[name] * max(100, target_percent) // 100

    def again(counted: Samples) -> float:
        return _utilization(counted, requests, target_percent)[0]

    replicas = _replicas(current, ratio, ready, unready, missing, samples, filled, again, tolerances)
    return Proposal(replicas, value, percent)


def by_average(
    current: int,
    target: int,
    samples: Samples,
    pods: Sequence[Pod],
    resource: str,
    tolerances: Tolerances,
    settings: Settings,
    now: float,
) -> Proposal:
    """For an average per pod, in thousandths. resource: empty for other metrics of pods."""
    ready, unready, missing = _usable(pods, samples, resource, settings, now)
    ratio, value = _average(samples, target)

    def again(counted: Samples) -> float:
        return _average(counted, target)[0]

    replicas = _replicas(current, ratio, ready, unready, missing, samples, lambda _: target, again, tolerances)
    return Proposal(replicas, value)


def _usable(
    pods: Sequence[Pod], samples: Samples, resource: str, settings: Settings, now: float
) -> tuple[int, list[str], list[str]]:
    if not pods:
        raise MetricUnavailable("no pods returned by selector while calculating replica count")
    found = group_pods(pods, samples, resource, settings, now)
    if not samples:
        raise MetricUnavailable("did not receive metrics for targeted pods (pods might be unready)")
    return found


def _utilization(samples: Samples, requests: Mapping[str, int], target_percent: int) -> tuple[float, int, int]:
    counted = {name: sample.value for name, sample in samples.items() if name in requests}
    requested = sum(requests[name] for name in counted)
    if not requested:
        raise MetricUnavailable("no metrics returned matched known pods")
    used = sum(counted.values())
    percent = used * 100 // requested
    return percent / target_percent, percent, used // len(counted)


def _average(samples: Samples, target: int) -> tuple[float, int]:
    value = sum(sample.value for sample in samples.values()) // len(samples)
    return value / target, value


def _replicas(
    current: int,
    ratio: float,
    ready: int,
    unready: Sequence[str],
    missing: Sequence[str],
    samples: Samples,
    filled: Callable[[str], int],
    again: Callable[[Samples], float],
    tolerances: Tolerances,
) -> int:
    grows_with_unready = bool(unready) and ratio > 1.0
    if not grows_with_unready and not missing:
        return current if tolerances.cover(ratio) else _ceil(ratio * ready)
    counted = dict(samples)
    if ratio < 1.0:
        counted |= {name: Sample(filled(name)) for name in missing}
    elif ratio > 1.0:
        counted |= {name: Sample(0) for name in missing}
    if grows_with_unready:
        counted |= {name: Sample(0) for name in unready}
    second = again(counted)
    if tolerances.cover(second) or (ratio < 1.0 < second) or (second < 1.0 < ratio):
        return current
    replicas = _ceil(second * len(counted))
    if (second < 1.0 and replicas > current) or (second > 1.0 and replicas < current):
        return current
    return replicas


# --- metrics of something else ---


def by_value(current: int, value: int, target: int, pods: Sequence[Pod], tolerances: Tolerances) -> Proposal:
    """For a total value that more pods reduce. pods: those of the target."""
    ratio = value / target
    if current == 0:
        return Proposal(_ceil(ratio), value)
    if tolerances.cover(ratio):
        return Proposal(current, value)
    if not pods:
        text = "no pods returned by selector while calculating replica count"
        raise MetricUnavailable(f"unable to calculate ready pods: {text}")
    ready = sum(pod.status.phase == "Running" and is_ready(pod) for pod in pods)
    return Proposal(_ceil(ratio * ready), value)


def by_value_per_pod(status_replicas: int, value: int, target: int, tolerances: Tolerances) -> Proposal:
    """For a value that pods share."""
    replicas = status_replicas
    ratio = value / (target * replicas) if replicas else math.inf if value else math.nan
    if not tolerances.cover(ratio):
        replicas = _ceil(value / target)
    # Like Go's conversion of an infinite number.
    average = _int64(math.ceil(value / status_replicas)) if status_replicas else -(2**63)
    return Proposal(replicas, average)


def _ceil(replicas: float) -> int:
    return min(math.ceil(replicas), REPLICAS_MAX)


def _int64(value: int) -> int:
    return min(value, _INT64_MAX)


# --- what pods request ---


def requests_of(pods: Sequence[Pod], container: str, resource: str) -> dict[str, int]:
    """What each pod requests of a resource, in thousandths; of one container, if named."""
    return {pod.metadata.name: _request_of(pod, container, resource) for pod in pods}


def _request_of(pod: Pod, container: str, resource: str) -> int:
    name = pod.metadata.name
    own = pod.spec.resources
    if not container and own is not None and own.requests:
        amount = own.requests.get(resource)
        if amount is None:
            raise MetricUnavailable(f"missing pod-level request for {resource} in Pod {name}")
        return milli(amount)
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    total = 0
    for each in (*pod.spec.containers, *sidecars):
        if container and each.name != container:
            continue
        amount = each.resources.requests.get(resource)
        if amount is None:
            raise MetricUnavailable(f"missing request for {resource} in container {each.name} of Pod {name}")
        total += milli(amount)
        if container:
            return total
    if container:
        raise MetricUnavailable(f"container {container} not found in Pod {name}")
    return total
