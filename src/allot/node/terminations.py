"""Counts the containers that have ended, by the kubelet's name: a container counts when the pod's status first says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from allot.process.metrics import Counter

Object = Mapping[str, Any]

_TYPES = {
    "initContainerStatuses": "init_container",
    "containerStatuses": "container",
    "ephemeralContainerStatuses": "ephemeral_container",
}


class Terminations:
    """The counter `kubelet_terminated_containers_total`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            registry,
            "kubelet_terminated_containers",
            "Cumulative number of container terminations.",
            ("container_type", "exit_code", "reason"),
        )

    def note(self, before: Object, after: Object) -> None:
        """A pod's status has changed."""
        for field, type_ in _TYPES.items():
            known = _ended(before, field)
            for name, state in _ended(after, field).items():
                if name not in known:
                    self._counter.add(type_, str(state.get("exitCode", 0)), str(state.get("reason") or ""))


def _ended(status: Object, field: str) -> dict[str, Object]:
    """The containers that have ended, each with how."""
    found = ((each.get("name", ""), (each.get("state") or {}).get("terminated")) for each in status.get(field) or ())
    return {name: state for name, state in found if state is not None}
