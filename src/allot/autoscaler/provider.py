"""The port for node providers: groups of nodes that can grow and shrink.

The same as Cluster Autoscaler's, so that its providers work here (`external_grpc`), and it can use the simulated cloud.
Every call may take long and may fail: ProviderError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice

# Names the hardware profile of a template's nodes, so that their devices are known before the first node exists.
PROFILE_LABEL = "autoscaling.allot.dev/profile"
# For nodes of the simulated cloud, and of any provider that sets it.
POOL_LABEL = "autoscaling.allot.dev/pool"


class ProviderError(Exception):
    """A provider call failed. is_missing: the provider does not implement it."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class State(StrEnum):
    """The lifecycle state of an instance."""

    UNKNOWN = ""
    RUNNING = "running"
    CREATING = "creating"
    DELETING = "deleting"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group of equal nodes."""

    id: str
    min_size: int
    max_size: int
    debug: str = ""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of a group, with or without a node. id: the node's providerID; error: why it will never become a node."""

    id: str
    state: State = State.UNKNOWN
    error_code: str = ""
    error: str = ""
    is_out_of_resources: bool = False


class NodeName(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as providers know it."""

    provider_id: str
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for the nodes of a group: the utilization of CPU and memory, or of devices, below which one may be removed; how long it must be
    unneeded or unready before that; how long it may take to register. Times in seconds."""

    utilization_threshold: float
    gpu_utilization_threshold: float
    unneeded_s: float
    unready_s: float
    provision_s: float


class TemplateNode(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's template of a group's nodes. slices: None if it does not describe devices."""

    node: Node
    slices: tuple[ResourceSlice, ...] | None = None


class Provider(Protocol):
    """Groups of nodes."""

    async def refresh(self) -> None:
        """Called before each round."""

    async def groups(self) -> Sequence[Group]:
        """All groups."""

    async def group_of(self, node: NodeName) -> str:
        """The group of a node; empty if it has none."""

    async def target_size(self, group: str) -> int:
        """The target size of a group."""

    async def increase(self, group: str, delta: int) -> None:
        """Request more nodes."""

    async def decrease_target(self, group: str, delta: int) -> None:
        """Cancel requested nodes that have not registered yet. delta: how many, positive."""

    async def delete(self, group: str, nodes: Sequence[NodeName]) -> None:
        """Give nodes back."""

    async def instances(self, group: str) -> Sequence[Instance]:
        """The machines of a group."""

    async def template(self, group: str) -> TemplateNode | None:
        """The template of a node; None if the provider has none."""

    async def price(self, node: NodeName, start: float, end: float) -> float | None:
        """The price of a node between two times (seconds since 1970); None if the provider does not know."""

    async def options(self, group: str, defaults: GroupOptions) -> GroupOptions | None:
        """The options of a group; None if the provider has none for any group."""

    async def close(self) -> None:
        """Release resources."""
