"""Cached filter results of every node for equal pods, as far as they depend on the node alone, updated for changed nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plugins import (
    balanced_allocation,
    image_locality,
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status

if TYPE_CHECKING:
    from allot.core.scheduling.cluster import Cluster


class Entry:
    """What one node answered to one profile."""

    __slots__ = ("image", "node", "score", "static", "status", "unwelcome", "wishes")

    def __init__(self) -> None:
        # The node object that the static part was computed for.
        self.node: object = None
        self.static: Status | None = None
        self.status: Status | None = None
        self.unwelcome = 0
        self.wishes = 0
        self.image = 0
        # Weighted sum of the scores that are not relative to other nodes.
        self.score = 0


class FilterCache:
    """Each node's answer to one profile, as far as it depends on the node alone."""

    def __init__(self, cluster: Cluster, profile: Profile, settings: Settings) -> None:
        self._cluster = cluster
        self.profile = profile
        self.settings = settings
        self.entries: dict[str, Entry] = {}
        self._fit = node_resources_fit.scorer(settings, cluster.devices)
        self._position = self._device_position = self._volume_version = -1
        weights = settings.weights
        self._asks_images = bool(weights.image_locality)
        self._balances = bool(weights.balanced_allocation) and any(
            balanced_allocation.wanted(profile, resource.name) for resource in settings.balanced_resources
        )
        self._has_volumes = bool(profile.volume_claims or profile.disks)

    def refresh(self) -> None:
        """Catch up with what changed."""
        cluster = self._cluster
        changed = self._changed()
        if changed is None:
            self.entries = {name: self._evaluated(info, self.entries.get(name)) for name, info in cluster.nodes.items()}
            return
        for name in changed:
            info = cluster.nodes.get(name)
            if info is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = self._evaluated(info, self.entries.get(name))

    def entry(self, info: NodeInfo) -> Entry:
        """A node's answer; computed now if it is not cached."""
        entry = self.entries.get(info.name)
        if entry is None:
            entry = self.entries[info.name] = self._evaluated(info, None)
        return entry

    def _changed(self) -> set[str] | None:
        """The nodes that have to be checked again; None: all."""
        cluster = self._cluster
        changed = cluster.changes.since(self._position) if self._position >= 0 else None
        self._position = cluster.changes.position
        if self.profile.scalars:
            # Devices may stand behind the resources.
            position, self._device_position = self._device_position, cluster.device_changes.position
            devices = cluster.device_changes.since(position) if position >= 0 else None
            changed = None if changed is None or devices is None else changed | devices
        if self._has_volumes:
            version, self._volume_version = self._volume_version, cluster.volumes.version
            if version != self._volume_version:
                changed = None
        return changed

    def _evaluated(self, info: NodeInfo, entry: Entry | None) -> Entry:
        self._cluster.filter_caches.evaluations += 1
        if entry is None:
            entry = Entry()
        if entry.node is not info.node:
            self._evaluate_static(info, entry)
        profile = self.profile
        status = entry.static
        if status is None:
            status = local_refusal(self._cluster, profile, info, self.settings)
        entry.status = status
        if status is None:
            entry.score = self._score(info)
        return entry

    def _evaluate_static(self, info: NodeInfo, entry: Entry) -> None:
        entry.node = info.node
        profile = self.profile
        entry.static = static_refusal(profile, info, self.settings)
        entry.unwelcome = taint_toleration.unwelcome(profile, info) if info.taints else 0
        added = self.settings.added_affinity
        entry.wishes = node_affinity.wishes(profile, info, added) if profile.preferred_nodes or added else 0

    def _score(self, info: NodeInfo) -> int:
        profile, settings = self.profile, self.settings
        weights = settings.weights
        score = self._fit(profile, info) * weights.node_resources_fit
        if self._balances:
            points = balanced_allocation.score(profile, info, settings.balanced_resources, self._cluster.devices)
            score += points * weights.balanced_allocation
        if self._asks_images and info.images:
            cluster = self._cluster
            points = image_locality.score(profile, info, cluster.image_spread, len(cluster.nodes))
            score += points * weights.image_locality
        return score


def static_refusal(profile: Profile, info: NodeInfo, settings: Settings) -> Status | None:
    """Why a node does not fit, judging by the node object alone."""
    disabled = settings.disabled_filters
    if profile.node_names is not None and info.name not in profile.node_names:
        return node_affinity.NOT_NAMED
    if info.unschedulable and node_unschedulable.NAME not in disabled:
        status = node_unschedulable.refusal(profile, info)
        if status is not None:
            return status
    if info.taints and taint_toleration.NAME not in disabled:
        status = taint_toleration.refusal(profile, info)
        if status is not None:
            return status
    return None if node_affinity.NAME in disabled else node_affinity.refusal(profile, info, settings.added_affinity)


def local_refusal(cluster: Cluster, profile: Profile, info: NodeInfo, settings: Settings) -> Status | None:
    """Why a node does not fit with the pods that are on it, beyond `static_refusal`."""
    disabled = settings.disabled_filters
    if profile.host_ports and node_ports.NAME not in disabled:
        status = node_ports.refusal(profile, info)
        if status is not None:
            return status
    if node_resources_fit.NAME not in disabled:
        status = node_resources_fit.refusal(profile, info, settings, cluster.devices)
        if status is not None:
            return status
    if profile.volume_claims or profile.disks:
        return cluster.volumes.refusal(profile, info, disabled)
    return None
