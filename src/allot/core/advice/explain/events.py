"""Events about a pod, and what they say of other objects."""

from __future__ import annotations

import re

from msgspec.structs import replace

from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1, observed_v1

REBOOTED = "Rebooted"
_SCALED = re.compile(r"from (?P<before>\d+) to 0")
# What `kubectl describe` writes in front of a message, and some collectors of events keep.
_PLACE = re.compile(r"^(?P<path>spec\.(?:init|ephemeral)?containers\{[^}]*\}): ", re.IGNORECASE)


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
    return sorted(map(_without_place, found), key=lambda event: event.seen_at, reverse=True)


def _without_place(event: observed_v1.Event) -> observed_v1.Event:
    """An event whose message does not begin with the container that it is about."""
    place = _PLACE.match(event.message)
    if place is None:
        return event
    about = event.involved_object
    where = about if about.field_path else replace(about, field_path=place["path"])
    return replace(event, message=event.message[place.end() :], involved_object=where)


def scaled_from(what_if: WhatIfCluster, kind: str, namespace: str, name: str) -> str:
    """How many pods a workload had before it was scaled to 0; empty if that is not known."""
    events = [
        event
        for event in what_if.all(observed_v1.Event)
        if event.involved_object.kind == kind
        and event.involved_object.name == name
        and (event.involved_object.namespace or event.metadata.namespace) == namespace
    ]
    for event in sorted(events, key=lambda each: each.seen_at, reverse=True):
        found = _SCALED.search(event.message)
        if found is not None:
            return found["before"]
    return ""


def reboot_of(what_if: WhatIfCluster, node: str) -> observed_v1.Event | None:
    """The newest report that a node was rebooted; None if there is none."""
    return next(iter(events_of_node(what_if, node, REBOOTED)), None)


def events_of_node(what_if: WhatIfCluster, node: str, *reasons: str) -> list[observed_v1.Event]:
    """Events about a node with the given reasons, newest first."""
    found = [
        event
        for event in what_if.all(observed_v1.Event)
        if event.reason in reasons and event.involved_object.kind == "Node" and event.involved_object.name == node
    ]
    return sorted(found, key=lambda event: event.seen_at, reverse=True)
