"""The port of those who have nodes to give: groups of nodes that can be made larger and smaller.

As Cluster Autoscaler sees providers, so that what exists for it can be used (`external_grpc`), and so that the simulated cloud can be
used by it. Every call may take long and may fail: ProviderError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice

# Names the hardware profile of a template's nodes, so that their devices are known before there is one.
PROFILE_LABEL = "autoscaling.allot.dev/profile"
# Of nodes of the simulated cloud, and of any provider that cares to say so.
POOL_LABEL = "autoscaling.allot.dev/pool"


class ProviderError(Exception):
    """A provider did not do what it was asked. is_missing: it does not have this call at all."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class State(StrEnum):
    """What becomes of an instance."""

    UNKNOWN = ""
    RUNNING = "running"
    CREATING = "creating"
    DELETING = "deleting"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group of nodes that are alike."""

    id: str
    min_size: int
    max_size: int
    debug: str = ""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of a group, whether its node is there or not. id: the node's providerID; error: why it will never be one."""

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
    """What holds for the nodes of a group: the parts of processors and memory, or of devices, below which one may go; how long it must be
    unneeded or not ready before it goes; how long it may take to come. Seconds."""

    utilization_threshold: float
    gpu_utilization_threshold: float
    unneeded_s: float
    unready_s: float
    provision_s: float


class TemplateNode(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says that a node of a group would be. slices: None if it says nothing about devices."""

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
        """How many nodes a group is to have."""

    async def increase(self, group: str, delta: int) -> None:
        """Ask for more nodes."""

    async def decrease_target(self, group: str, delta: int) -> None:
        """Ask for fewer of the nodes that are not there yet. delta: how many, positive."""

    async def delete(self, group: str, nodes: Sequence[NodeName]) -> None:
        """Give nodes back."""

    async def instances(self, group: str) -> Sequence[Instance]:
        """The machines of a group."""

    async def template(self, group: str) -> TemplateNode | None:
        """What a node would be; None if the provider does not tell."""

    async def price(self, node: NodeName, start: float, end: float) -> float | None:
        """What a node costs from one time to another (seconds since 1970); None if the provider does not tell."""

    async def options(self, group: str, defaults: GroupOptions) -> GroupOptions | None:
        """What holds for a group; None if the provider tells that of no group."""

    async def close(self) -> None:
        """It is not needed any more."""
