"""The autoscaler's view of the cluster: the scheduler's machine, fed from watches, and the objects that it reports on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from allot.core.autoscaling.daemons import ClaimTemplates, claim_templates
from allot.core.autoscaling.trying import Memory
from allot.core.features import FeatureGates
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.resource_v1 import ResourceClaimTemplate, ResourceSlice
from allot.core.scheduling import Change, Machine, Settings, under
from allot.process.clock import Clock

_log = logging.getLogger("allot.autoscaler")


class KnownCluster:
    """Kept up to date by informers."""

    def __init__(self, clock: Clock, gates: FeatureGates) -> None:
        self._clock = clock
        settings = under(gates, Settings(preempts=False))
        self.machine = Machine(lambda _name: settings, gates)
        # A cache for plans: answers are reused.
        self.memory = Memory()
        # By key.
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._daemons: dict[str, DaemonSet] = {}
        self._claim_templates: dict[str, ResourceClaimTemplate] = {}

    @property
    def slices(self) -> list[ResourceSlice]:
        """All slices."""
        return list(self._slices.values())

    @property
    def daemons(self) -> list[DaemonSet]:
        """All DaemonSets: their pods also run on new nodes."""
        return list(self._daemons.values())

    @property
    def claim_templates(self) -> ClaimTemplates:
        """Claim templates, for DaemonSet pods with claims."""
        return claim_templates(self._claim_templates.values())

    def changed(self, change: Change) -> bool:
        """A change of a relevant object; returns whether a pod may have become pending."""
        new = change.new if change.new is not None else change.old
        tables: Mapping[type, dict[str, Any]] = {
            Node: self.nodes,
            Pod: self.pods,
            ResourceSlice: self._slices,
            ResourceClaimTemplate: self._claim_templates,
        }
        kept = tables.get(type(new))
        if kept is not None:
            if change.new is None:
                kept.pop(change.key, None)
            else:
                kept[change.key] = change.new
        if kept is self._claim_templates:
            return False
        return self.machine.apply(change, self._clock.monotonic()).wakes

    def daemons_changed(self, change: Change) -> None:
        """For an informer of DaemonSets, as JSON."""
        if change.new is None:
            self._daemons.pop(change.key, None)
            return
        try:
            self._daemons[change.key] = decode_served(without_managed_fields(change.new), DaemonSet)
        except DecodeError as error:
            _log.warning("DaemonSet %s: %s", change.key, error)
