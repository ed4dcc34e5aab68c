"""What CDI devices change about a container that is a process of this machine."""

from __future__ import annotations

from collections.abc import Sequence

from allot.node.cdi.registry import CdiRegistry, Unresolvable
from allot.node.runtimes.port import RuntimeFailure
from allot.node.runtimes.process import Edits


class ProcessDevices:
    """Resolves devices for the process runtime. A device file keeps its place unless the spec gives it another."""

    def __init__(self, registry: CdiRegistry) -> None:
        self._registry = registry

    def resolve(self, names: Sequence[str]) -> Edits:
        """The edits; RuntimeFailure if a device is not known."""
        try:
            merged = self._registry.resolve(names)
        except Unresolvable as error:
            raise RuntimeFailure("CreateContainerError", f"CDI device injection failed: {error}") from error
        mounts = [
            {"host_path": each.host_path, "container_path": each.container_path, "read_only": each.is_read_only}
            for each in merged.mounts
        ]
        mounts += [
            {"host_path": each.source, "container_path": each.path, "read_only": False}
            for each in merged.device_nodes
            if each.source != each.path
        ]
        return Edits(environment=merged.environment, mounts=tuple(mounts), groups=merged.additional_gids)
