"""The pods of a driver. No object says which they are; names, labels and images do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.wording import listed
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1

# What kubelet plugins have in their names.
_WORDS = ("dra", "kubelet-plugin", "kubeletplugin", "device-driver")
_SHOWN_MAX = 2


class FailingPod(NamedTuple):
    """A pod of a driver that does not run. text: to be read behind a colon."""

    node: str
    text: str
    advice: str


def failing(what_if: WhatIfCluster, driver: str, node: str = "") -> list[FailingPod]:
    """What is wrong with the pods of a driver. node: only there."""
    found = []
    for pod in what_if.all(core_v1.Pod):
        if node and pod.spec.node_name != node:
            continue
        trouble = container_trouble(pod) if _is_plugin(pod, driver) else None
        if trouble is not None:
            advice = f"fix the driver's pod {full_name(pod)} on node {pod.spec.node_name}: {trouble.advice[0]}"
            found.append(FailingPod(pod.spec.node_name, f"in pod {full_name(pod)}, {trouble.text}", advice))
    return found


def failing_text(found: Sequence[FailingPod]) -> str:
    """What is wrong with pods, to be read behind a colon; empty if nothing is."""
    return listed([each.text for each in found], _SHOWN_MAX)


def _is_plugin(pod: core_v1.Pod, driver: str) -> bool:
    """Whether a pod looks like the kubelet plugin of a driver: a daemon with the vendor's name and the word for it."""
    if not any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
        return False
    images = (container.image for container in pod.spec.containers)
    text = " ".join([full_name(pod), *pod.metadata.labels.values(), *images]).lower()
    labels = driver.split(".")
    vendor = labels[-2] if len(labels) > 1 else driver
    return driver in text or (vendor in text and any(word in text for word in _WORDS))
