"""Network-attached devices that no node reaches: they are for nodes with labels that none has."""

from __future__ import annotations

from typing import NamedTuple

from allot.core.advice.explain.nodes import selects_node
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.inventory import node_of
from allot.core.allocation.signature import USABLE, Signature
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

# In larger clusters with as many selectors this takes too long.
_CHECKS_MAX = 100_000


class Unreached(NamedTuple):
    """Devices of one pool for the same nodes, none of which exists."""

    selector: core_v1.NodeSelector
    entries: tuple[DeviceEntry, ...]

    @property
    def driver(self) -> str:
        """The driver that publishes them."""
        return self.entries[0].id.driver

    @property
    def pool(self) -> str:
        """Their pool."""
        return self.entries[0].id.pool

    @property
    def slices(self) -> list[api.ResourceSlice]:
        """The slices that they are in."""
        return list({each.slice.metadata.name: each.slice for each in self.entries}.values())


def unreached(what_if: WhatIfCluster) -> list[Unreached]:
    """All of them, by pool and selector; none where nothing is known of nodes."""
    infos = list(what_if.cluster.nodes.values())
    found: dict[tuple[str, str, core_v1.NodeSelector], list[DeviceEntry]] = {}
    for slice_ in what_if.all(api.ResourceSlice) if infos else ():
        for entry in what_if.claims.inventory.devices_of(slice_.metadata.name):
            selector = selector_of(entry)
            if selector is not None:
                found.setdefault((entry.id.driver, entry.id.pool, selector), []).append(entry)
    if len(found) * len(infos) > _CHECKS_MAX:
        return []
    return [
        Unreached(selector, tuple(entries))
        for (_, _, selector), entries in found.items()
        if not any(selects_node(selector, info) for info in infos)
    ]


def usable_unreached(what_if: WhatIfCluster, signature: Signature | None) -> list[Unreached]:
    """Those that a request accepts; none for a request that was not understood."""
    found = []
    for each in unreached(what_if) if signature is not None else ():
        usable = [one for one in each.entries if signature is not None and signature.verdict(one) == USABLE]
        found += [each._replace(entries=tuple(usable))] if usable else []
    return found


def selector_of(entry: DeviceEntry) -> core_v1.NodeSelector | None:
    """The nodes that reach a device, if it is for nodes with labels."""
    if node_of(entry) is not None:
        return None
    spec = entry.slice.spec
    return entry.device.node_selector if spec.per_device_node_selection else spec.node_selector
