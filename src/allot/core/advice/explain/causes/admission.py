"""Pods that a kubelet rejected because it had just been started: device plugins register only after that."""

from __future__ import annotations

import re

from allot.core.advice.explain.events import REBOOTED, events_of, events_of_node
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1

_UNEXPECTED = "UnexpectedAdmissionError"
_PLUGINS = re.compile(
    r"(?:unhealthy devices|unregistered device|devices unavailable for) (?P<resource>[\w.-]+/[\w.-]*\w)", re.IGNORECASE
)
# kube-proxy, too, reports that it is starting.
_STARTED = "Starting"
_KUBELET = "Starting kubelet"
# By then, plugins have registered.
_EARLY_MAX_S = 600


def too_early(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """What had happened to the node before it rejected a pod, and what it offers now; empty if that is not known."""
    node = pod.spec.node_name
    lacking = _PLUGINS.search(pod.status.message)
    rejected = next(iter(events_of(what_if, pod, _UNEXPECTED)), None)
    info = what_if.cluster.nodes.get(node)
    if lacking is None or rejected is None or info is None:
        return ""
    for event in events_of_node(what_if, node, REBOOTED, _STARTED):
        rebooted = event.reason == REBOOTED
        if not rebooted and not event.message.startswith(_KUBELET):
            continue
        try:
            passed = seconds_of(rejected.seen_at) - seconds_of(event.seen_at)
        except ValueError:
            return ""
        if not 0 <= passed <= _EARLY_MAX_S:
            continue
        what = f"node {node} was rebooted" if rebooted else f"the kubelet of node {node} was started"
        resource = lacking["resource"]
        now = info.allocatable_scalars.get(resource, 0)
        offers = f"it offers {now} of them now" if now else "it still offers none of them"
        return f": {what} at {event.seen_at}, and its device plugin had not registered {resource} yet; {offers}"
    return ""
