"""An index of pods by label, to find the pods of a selector without a full scan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from allot.client.cache import Cache
from allot.client.informer import Informer
from allot.client.informers import Informers
from allot.core.model.core_v1 import Pod
from allot.core.selectors import Operator, Requirements
from allot.core.workloads.service_endpoints import selects

_BY_LABEL = "pods by label"


def pods_by_label(informers: Informers) -> Informer[Pod]:
    """The shared informer of pods, with the index for `selected`."""
    return informers.typed(Pod, indexers={_BY_LABEL: _labels})


def selected(pods: Cache[Pod], namespace: str, labels: Mapping[str, str]) -> list[Pod]:
    """The pods of a namespace with all of these labels (at least one)."""
    assert labels, "no labels to look for"
    buckets = [pods.by_index(_BY_LABEL, f"{namespace}/{key}={value}") for key, value in labels.items()]
    return [pod for pod in min(buckets, key=len) if selects(labels, pod.metadata.labels)]


def matching(pods: Cache[Pod], namespace: str, wanted: Requirements) -> list[Pod]:
    """The pods of a namespace that match a selector. One without a label value is compared with all pods."""
    named = {
        one.key: next(iter(one.values)) for one in wanted.all if one.operator is Operator.IN and len(one.values) == 1
    }
    found = selected(pods, namespace, named) if named else [pod for pod in pods if pod.metadata.namespace == namespace]
    return sorted((pod for pod in found if wanted.matches(pod.metadata.labels)), key=lambda pod: pod.metadata.name)


def _labels(pod: Pod) -> Iterator[str]:
    namespace = pod.metadata.namespace
    for key, value in pod.metadata.labels.items():
        yield f"{namespace}/{key}={value}"
