"""Events about a pod."""

from __future__ import annotations

from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1, observed_v1


def events_of(what_if: WhatIfCluster, pod: core_v1.Pod, *reasons: str) -> list[observed_v1.Event]:
    """Events about a pod with the given reasons, newest first."""
    found = [
        event
        for event in what_if.all(observed_v1.Event)
        if event.reason in reasons
        and event.involved_object.kind == "Pod"
        and event.involved_object.name == pod.metadata.name
        and (event.involved_object.namespace or event.metadata.namespace) == pod.metadata.namespace
        and event.involved_object.uid in ("", pod.metadata.uid)
    ]
    return sorted(found, key=lambda event: event.seen_at, reverse=True)
