"""Metric values of pods: by namespace, metric name, pod and labels.

Counters become rates per second, under the name without `_total`, as in prometheus-adapter. Several values of a pod become one:
their average if they are parts of a whole (utilization, temperatures), else their sum. Values that are not numbers or have
impossible times are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allot.core.metrics.exposition import Exposition, Sample, measured_at
from allot.core.selectors import Operator, Requirements

STALE_S = 120.0
SERIES_MAX = 200_000
EVERYTHING = Requirements()
TOTAL = "_total"
_AVERAGED = ("_UTIL", "_TEMP", "_CLOCK", "_ACTIVE", "_utilization", "_ratio", "_percent", "_usage_perc")
# Parts of histograms and summaries, which are not independent values.
_PARTS = ("_bucket", "_sum", "_count", "_created")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its labels, without those that identify its pod. window_s: the period of a rate."""

    pod: str
    labels: Mapping[str, str]
    value: float
    at: float
    window_s: float = 0.0


_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


class _Index:
    """The values of one metric in a namespace: all of them, by pod, and by label."""

    def __init__(self, series: Iterable[Series]) -> None:
        self.all = tuple(series)
        self.by_pod: dict[str, list[Series]] = {}
        self.by_label: dict[tuple[str, str], list[Series]] = {}
        for each in self.all:
            self.by_pod.setdefault(each.pod, []).append(each)
            for label in (*each.labels.items(), ("pod", each.pod)):
                self.by_label.setdefault(label, []).append(each)

    def candidates(self, pods: Iterable[str] | None, wanted: Requirements) -> Iterable[Series]:
        """A superset of the matching values; avoids a full scan if pods or a label value are given."""
        if pods is not None:
            return (series for pod in pods for series in self.by_pod.get(pod, ()))
        for one in wanted.all:
            if one.operator is Operator.IN and len(one.values) == 1:
                return self.by_label.get((one.key, next(iter(one.values))), ())
        return self.all


class SeriesBoard:
    """Values as of the last scrape of each endpoint."""

    def __init__(self) -> None:
        # By endpoint, then namespace and metric.
        self._told: dict[str, dict[tuple[str, str], list[Series]]] = {}
        self._counters: dict[str, dict[_Key, tuple[float, float]]] = {}
        self._counts: dict[str, int] = {}
        # Built on demand, valid until an endpoint changes.
        self._indexes: dict[tuple[str, str], _Index] = {}

    def put(self, endpoint: str, told: Sequence[Sample], now: float) -> int:
        """Store an endpoint's samples (`told_by_pod`), which name their namespace and pod. Returns how many were left out because
        all endpoints together exceed the limit.
        """
        self._forget(endpoint)
        counters = self._counters.pop(endpoint, {})
        seen: dict[_Key, tuple[float, float]] = {}
        found: dict[tuple[str, str], list[Series]] = {}
        left = max(SERIES_MAX - sum(self._counts.values()), 0)
        for sample in told[:left]:
            read = _read(sample, counters, seen, now)
            if read is not None:
                key, series = read
                found.setdefault(key, []).append(series)
        self._told[endpoint] = found
        self._counters[endpoint] = seen
        self._counts[endpoint] = sum(map(len, found.values()))
        return max(len(told) - left, 0)

    def keep(self, endpoints: Iterable[str]) -> None:
        """Forget the samples of all other endpoints."""
        kept = set(endpoints)
        for endpoint in sorted(self._told):
            if endpoint not in kept:
                self._forget(endpoint)
                self._counters.pop(endpoint, None)

    def _forget(self, endpoint: str) -> None:
        self._indexes.clear()
        self._told.pop(endpoint, None)
        self._counts.pop(endpoint, None)

    def names(self) -> tuple[str, ...]:
        """The known metrics of any pod."""
        return tuple(sorted({name for found in self._told.values() for _, name in found}))

    def of(
        self,
        namespace: str,
        metric: str,
        now: float,
        pods: Iterable[str] | None = None,
        wanted: Requirements = EVERYTHING,
    ) -> Iterator[Series]:
        """The values of a metric in a namespace. pods: only of these. wanted: only with these labels, including the pod's name."""
        index = self._indexes.get((namespace, metric))
        if index is None:
            found = (self._told[endpoint].get((namespace, metric), ()) for endpoint in sorted(self._told))
            index = _Index(each for series in found for each in series)
            if index.all:
                self._indexes[namespace, metric] = index
        for series in index.candidates(pods, wanted):
            if now - series.at <= STALE_S and (not wanted.all or wanted.matches({**series.labels, "pod": series.pod})):
                yield series


def _read(
    sample: Sample,
    before: Mapping[_Key, tuple[float, float]],
    seen: dict[_Key, tuple[float, float]],
    now: float,
) -> tuple[tuple[str, str], Series] | None:
    """A sample as a value of a pod, by namespace and metric; None if it is invalid, or the first sample of a counter."""
    namespace, pod, name = sample.labels.get("namespace", ""), sample.labels.get("pod", ""), sample.name
    at = measured_at(sample, now)
    if not namespace or not pod or at is None or not math.isfinite(sample.value):
        return None
    labels = {key: value for key, value in sample.labels.items() if key not in ("namespace", "pod")}
    series = Series(pod=pod, labels=labels, value=sample.value, at=at)
    if not name.endswith(TOTAL):
        return (namespace, name), series
    key = (namespace, name, pod, tuple(sorted(labels.items())))
    seen[key] = (at, sample.value)
    rate = _rate(series, before.get(key))
    return None if rate is None else ((namespace, name.removesuffix(TOTAL)), rate)


def combined(metric: str, series: Iterable[Series]) -> dict[str, Series]:
    """One value per pod."""
    by_pod: dict[str, list[Series]] = {}
    for each in series:
        by_pod.setdefault(each.pod, []).append(each)
    return {pod: _one(metric, pod, found) for pod, found in by_pod.items()}


def total(metric: str, values: Iterable[Series]) -> Series | None:
    """One value for several pods; None if there are none."""
    found = list(values)
    return _one(metric, "", found) if found else None


def _one(metric: str, pod: str, found: list[Series]) -> Series:
    value = sum(each.value for each in found)
    if metric.endswith(_AVERAGED):
        value /= len(found)
    oldest = min(found, key=lambda each: each.at)
    return Series(pod=pod, labels={}, value=value, at=oldest.at, window_s=oldest.window_s)


def _rate(now: Series, before: tuple[float, float] | None) -> Series | None:
    if before is None or now.at <= before[0] or now.value < before[1]:
        return None
    window_s = now.at - before[0]
    return msgspec.structs.replace(now, value=(now.value - before[1]) / window_s, window_s=window_s)


def told_by_pod(told: Exposition, namespace: str, pod: str, *, trusted: bool) -> Iterator[Sample]:
    """The samples of a pod's own endpoint, with their pod, in a form that needs no types: counters end with `_total`, and parts
    of histograms and summaries are left out. A pod's type declarations do not affect other pods.
    """
    for sample in told.samples:
        if _is_part(sample.name, told.types):
            continue
        if told.types.get(sample.name) == "counter" and not sample.name.endswith(TOTAL):
            sample = Sample(sample.name + TOTAL, sample.labels, sample.value, sample.at_ms)
        yield owned_by_pod(sample, namespace, pod, trusted=trusted)


def _is_part(name: str, types: Mapping[str, str]) -> bool:
    for part in _PARTS:
        if name.endswith(part) and types.get(name.removesuffix(part)) in ("histogram", "summary"):
            return True
    return types.get(name) == "summary"


def owned_by_pod(sample: Sample, namespace: str, pod: str, *, trusted: bool = False) -> Sample:
    """A sample with its pod. trusted: keep the pod that the sample names."""
    labels = dict(sample.labels)
    if trusted and labels.get("namespace") and labels.get("pod"):
        return sample
    for name in ("namespace", "pod"):
        if name in labels:
            labels[f"exported_{name}"] = labels.pop(name)
    return Sample(sample.name, {"namespace": namespace, "pod": pod, **labels}, sample.value, sample.at_ms)
