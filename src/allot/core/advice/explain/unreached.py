"""Network-attached devices that no node reaches: they are for nodes with labels that none has."""

from __future__ import annotations

from collections.abc import Iterator
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
    for entry, selector in networked(what_if) if infos else ():
        found.setdefault((entry.id.driver, entry.id.pool, selector), []).append(entry)
    if len(found) * len(infos) > _CHECKS_MAX:
        return []
    return [
        Unreached(selector, tuple(entries))
        for (_, _, selector), entries in found.items()
        if not any(selects_node(selector, info) for info in infos)
    ]


def networked(what_if: WhatIfCluster) -> Iterator[tuple[DeviceEntry, core_v1.NodeSelector]]:
    """The devices that are for nodes with labels, and these. Slices of nodes, nearly all in most clusters, are passed over as a whole."""
    for slice_ in what_if.all(api.ResourceSlice):
        spec = slice_.spec
        if spec.node_name is not None or not (spec.per_device_node_selection or spec.node_selector is not None):
            continue
        for entry in what_if.claims.inventory.devices_of(slice_.metadata.name):
            selector = entry.device.node_selector if spec.per_device_node_selection else spec.node_selector
            if selector is not None and node_of(entry) is None:
                yield entry, selector


def usable_unreached(what_if: WhatIfCluster, signature: Signature | None) -> list[Unreached]:
    """Those that a request accepts; none for a request that was not understood."""
    found = []
    for each in unreached(what_if) if signature is not None else ():
        usable = [one for one in each.entries if signature is not None and signature.verdict(one) == USABLE]
        found += [each._replace(entries=tuple(usable))] if usable else []
    return found
