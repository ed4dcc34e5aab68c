"""The pod workers' port to device management: `node.dra` implements it for one node, `node.simulated_devices` for many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from allot.core.model.core_v1 import Container, Pod


class PrepareFailed(Exception):
    """The devices of a pod cannot be prepared, in the kubelet's words."""


class Devices(Protocol):
    """The devices of the pods of this node."""

    async def prepare(self, pod: Pod) -> None:
        """Prepare the devices of a pod; on failure, an exception with the kubelet's text."""

    def cdi_devices(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """The qualified CDI names for a container."""

    async def unprepare(self, pod: Pod) -> None:
        """Unprepare the devices; an exception if that is not possible yet."""

    def health(self, pod: Pod) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Per container: the health of its devices, as in `allocatedResourcesStatus`."""

    async def reconcile(self) -> None:
        """Unprepare the claims of pods that are no longer on this node, as far as possible now."""

    def health_changes(self) -> AsyncIterator[str]:
        """The uid of a pod each time the health of its devices has changed."""

    async def run(self) -> None:
        """Run until cancelled."""
