"""The graph around one object: pods, their claims, the claims' devices, and the slices that publish them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allot.core.advice.usage.published import model_of, node_name
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import ClaimID, DeviceID
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import ResourceClaim, ResourceSlice
from allot.dashboard.views.claims import held_by
from allot.dashboard.views.pods import state_of

BOXES_MAX = 240


class Graph:
    """Grows from one object. Boxes have a kind, a name and a note; edges go from pods to claims to devices to slices."""

    def __init__(self, what_if: WhatIfCluster, named_by: Mapping[ClaimID, Iterable[str]]) -> None:
        """named_by: the pods of its namespace that name a claim."""
        self._what_if = what_if
        self._named_by = named_by
        self._boxes: dict[tuple[str, str], dict[str, Any]] = {}
        self._edges: dict[tuple[tuple[str, str], tuple[str, str]], None] = {}
        self._left_out = 0

    def value(self) -> dict[str, Any]:
        """All boxes in order of discovery, and the edges between them."""
        places = {box: place for place, box in enumerate(self._boxes)}
        return {
            "boxes": list(self._boxes.values()),
            "edges": [(places[a], places[b]) for a, b in self._edges if a in places and b in places],
            "leftOut": self._left_out,
        }

    def _add(self, kind: str, name: str, note: str, *, warn: bool = False) -> bool:
        """Whether there is room for the box and it is new."""
        if (kind, name) in self._boxes:
            return False
        if len(self._boxes) >= BOXES_MAX:
            self._left_out += 1
            return False
        box: dict[str, Any] = {"kind": kind, "name": name, "note": note}
        self._boxes[kind, name] = box | {"warn": True} if warn else box
        return True

    def _join(self, a: tuple[str, str], b: tuple[str, str]) -> None:
        self._edges[a, b] = None

    def pod(self, namespace: str, name: str) -> bool:
        """A pod, its claims and everything related; False if it does not exist."""
        pod = self._what_if.get(Pod, name, namespace)
        if pod is None:
            return False
        self._pod(pod)
        for id_ in self._what_if.claims.claims_of(pod):
            self.claim(id_.namespace, id_.name)
            self._join(("Pod", f"{namespace}/{name}"), ("ResourceClaim", str(id_)))
        return True

    def _pod(self, pod: Pod) -> None:
        state = state_of(pod)
        self._add(
            "Pod", f"{pod.metadata.namespace}/{pod.metadata.name}", state, warn=state in ("Pending", "Stuck", "Failed")
        )

    def claim(self, namespace: str, name: str) -> bool:
        """A claim, its pods and its devices; False if there is none of that name."""
        claim = self._what_if.claims.claim(namespace, name)
        if claim is None:
            return False
        own = ("ResourceClaim", f"{namespace}/{name}")
        is_allocated = claim.status.allocation is not None
        if not self._add(*own, "allocated" if is_allocated else "no devices", warn=not is_allocated):
            return True
        for user in dict.fromkeys((*_reserved(claim), *sorted(self._named_by.get(ClaimID(namespace, name), ())))):
            pod = self._what_if.get(Pod, user, namespace)
            if pod is not None:
                self._pod(pod)
                self._join(("Pod", f"{namespace}/{user}"), own)
        for id_ in held_by(claim):
            self._device(id_)
            self._join(own, ("Device", str(id_)))
        return True

    def _device(self, id_: DeviceID) -> None:
        entries = self._what_if.claims.inventory.devices_named(id_)
        if not entries:
            self._add("Device", str(id_), "no longer published", warn=True)
            return
        if self._add("Device", str(id_), f"{model_of(entries[0])} on {node_name(entries[0]) or 'several nodes'}"):
            for entry in entries:
                slice_ = entry.slice
                self._add("ResourceSlice", slice_.metadata.name, f"pool {slice_.spec.pool.name}")
                self._join(("Device", str(id_)), ("ResourceSlice", slice_.metadata.name))

    def device(self, id_: DeviceID) -> bool:
        """A device and its holders; False if it is unknown."""
        entries = self._what_if.claims.inventory.devices_named(id_)
        if not entries:
            return False
        self._device(id_)
        for claim in (*entries[0].state.claims, *(share.claim for share in entries[0].state.shares)):
            self.claim(claim.namespace, claim.name)
        return True

    def slice(self, name: str) -> bool:
        """A slice, its devices and their holders; False if it does not exist."""
        found = self._what_if.get(ResourceSlice, name)
        if found is None:
            return False
        self._add("ResourceSlice", name, f"pool {found.spec.pool.name}")
        for entry in self._what_if.claims.inventory.devices_of(name):
            self.device(entry.id)
        return True

    def node(self, name: str) -> bool:
        """The slices of a node and the pods on it that have claims; False if there is none of that name."""
        info = self._what_if.cluster.nodes.get(name)
        if info is None:
            return False
        for each in info.pods.values():
            if self._what_if.claims.claims_of(each.pod):
                self.pod(each.pod.metadata.namespace, each.pod.metadata.name)
        return True


def _reserved(claim: ResourceClaim) -> list[str]:
    return [consumer.name for consumer in claim.status.reserved_for if consumer.resource == "pods"]
