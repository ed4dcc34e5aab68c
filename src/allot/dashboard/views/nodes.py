"""Nodes with their devices, for the heat map and the list of nodes.

A *cell* can be allocated by itself: a device, or a GPU with all its partitions. Keys are short and defaults are omitted: a
large cluster has tens of thousands of cells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from allot.core.advice.usage.published import (
    PublishedPool,
    State,
    Unit,
    attributes_of,
    has_room,
    keeping_off,
    model_of,
    partition_of,
    units_of,
)
from allot.core.advice.usage.reach import closed_because
from allot.core.allocation.devices import DeviceEntry, DeviceID
from allot.core.autoscaling.pools import pool_name
from allot.core.model.compute_domains import CLIQUE_LABEL
from allot.core.scheduling import NodeInfo

# Where devices are that more than one node can use.
SEVERAL = "(several nodes)"
_NUMA = ("resource.kubernetes.io/numaNode", "numaNode", "numa", "numaNodeID", "dra.net/numaNode")
_PCIE_ROOT = ("resource.kubernetes.io/pcieRoot", "pcieRoot")
_STATES = {State.FREE: "f", State.PARTLY: "p", State.IN_USE: "u", State.BLOCKED: "b", State.UNAVAILABLE: "x"}
# Labels for grouping nodes: location, type and owner.
_PLACES = (
    "rack",
    "zone",
    "block",
    "region",
    "topology",
    "domain",
    "pool",
    "nodegroup",
    "instance-type",
    "clique",
    "row",
)
_DIGITS = re.compile(r"\d+")
_LABELS_MAX = 12
_PARTS_MAX = 64


# Percent of their time that the devices of a claim are used; None if that is not measured.
Used = Callable[[object], float | None]


def cells_of(pool: PublishedPool, sick: Mapping[DeviceID, str], used: Used) -> dict[str, list[dict[str, Any]]]:
    """The cells of a pool by the node that can use them, in display order. sick: complaints of drivers and nodes about
    devices."""
    found: dict[str, list[dict[str, Any]]] = {}
    for unit in units_of(pool, pool.entries):
        found.setdefault(unit.node or SEVERAL, []).append(_cell(unit, sick, used))
    for cells in found.values():
        cells.sort(key=_place)
    return found


def _place(cell: Mapping[str, Any]) -> tuple[str, str, str]:
    """By NUMA node and PCIe root: browsers would need a tenth of a second for a large cluster."""
    return in_order(str(cell.get("u", ""))), in_order(str(cell.get("p", ""))), in_order(cell["n"])


@lru_cache(maxsize=4096)
def in_order(text: str) -> str:
    """A sort key that puts gpu-9 before gpu-10."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(12), text)


def _cell(unit: Unit, sick: Mapping[DeviceID, str], used: Used) -> dict[str, Any]:
    first = unit.entries[0]
    attributes = attributes_of(first)
    cell: dict[str, Any] = {"n": unit.counter_set or first.id.device, "s": _STATES[unit.state()], "m": model_of(first)}
    numa, root = (_one(attributes, first.id.driver, names) for names in (_NUMA, _PCIE_ROOT))
    if numa is not None:
        cell["u"] = numa
    if root is not None:
        cell["p"] = root
    users = list(unit.users())
    claims = {claim for entry in users for claim in _holders(entry)}
    if claims:
        cell["h"] = sorted(map(str, claims))
        percents = [percent for claim in claims if (percent := used(claim)) is not None]
        if percents:
            cell["g"] = round(max(percents))
    share = _share(unit, users)
    if 0.0 < share < 1.0:
        cell["f"] = round(share, 3)
    taints = sorted({_taint(entry_taint) for entry in unit.entries for entry_taint in keeping_off(entry)})
    if taints:
        cell["t"] = taints
    problems = [sick[entry.id] for entry in unit.entries if entry.id in sick]
    if problems:
        cell["x"] = problems[0]
    if unit.counter_set:
        cell["k"] = [_part(unit.pool, entry) for entry in users[:_PARTS_MAX]]
        cell["kn"] = len(unit.entries)
    return cell


def _one(attributes: Mapping[str, object], driver: str, names: Iterable[str]) -> object:
    for name in names:
        for qualified in (name, f"{driver}/{name}"):
            value = attributes.get(qualified)
            if value is not None and not isinstance(value, list | tuple):
                return value
    return None


def _holders(entry: DeviceEntry) -> Iterable[object]:
    return (*entry.state.claims, *(share.claim for share in entry.state.shares))


def _part(pool: PublishedPool, entry: DeviceEntry) -> dict[str, Any]:
    return {"n": entry.id.device, "p": partition_of(pool, entry), "h": [str(claim) for claim in _holders(entry)]}


def _share(unit: Unit, users: list[DeviceEntry]) -> float:
    """How much of a cell is in use: of the scarcest counter, or of the scarcest capacity of a device that is shared."""
    if not users:
        return 0.0
    counters = unit.pool.counters
    if unit.counter_set and counters is not None:
        shares = [
            1 - counters.available[key] / total
            for key, total in counters.published.items()
            if key[0] == unit.counter_set and total
        ]
        return max(shares, default=1.0)
    entry = users[0]
    if entry.state.claims or not entry.shareable or not has_room(entry):
        return 1.0
    capacities = entry.capacity.items()
    taken = [entry.state.consumed.get(name, 0) / each.value.nano for name, each in capacities if each.value.nano]
    # A device that claims share without amounts always has room.
    return max(0.05, *taken) if taken else 0.5


def _taint(taint: Any) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def pool_facts(pool: PublishedPool, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The devices of a pool on one node. A common model is given once."""
    models = {cell["m"] for cell in cells}
    facts: dict[str, Any] = {"driver": pool.id.driver, "pool": pool.id.pool}
    if len(models) == 1:
        facts["m"] = models.pop()
        cells = [{key: value for key, value in cell.items() if key != "m"} for cell in cells]
    if not pool.is_complete:
        facts["incomplete"] = f"{pool.slices} of {pool.slices_expected} slices exist"
    return {**facts, "d": cells}


def node_facts(info: NodeInfo) -> dict[str, Any]:
    """Facts about a node except its devices. CPU in millicores, memory in bytes: requested and allocatable."""
    node = info.node
    labels = node.metadata.labels
    shown = sorted(name for name in labels if any(place in name for place in _PLACES))[:_LABELS_MAX]
    facts: dict[str, Any] = {
        "at": node.metadata.creation_timestamp,
        "cpu": (info.cpu, info.allocatable_cpu),
        "mem": (info.memory, info.allocatable_memory),
        "pods": (len(info.pods), info.allocatable_pods),
        "labels": {name: labels[name] for name in shown},
    }
    closed = closed_because(info)
    if closed:
        facts["closed"] = closed
    taints = [_taint(taint) for taint in info.taints]
    if taints:
        facts["taints"] = taints
    pool = pool_name(labels)
    if pool:
        facts["group"] = pool
    if CLIQUE_LABEL in labels:
        facts["clique"] = labels[CLIQUE_LABEL]
    return facts
