"""Grids of chips: a machine's part of a slice, and the number of hosts in each dimension."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_TOPOLOGY = re.compile(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}")
_SINGLE_HOST: Mapping[int, str] = {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4"}
_PER_HOST: Mapping[int, tuple[int, int, int]] = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}

Grid = tuple[int, int, int]


class TopologyError(ValueError):
    """An invalid topology, or one that machines with this number of chips cannot form."""


def single_host_topology(chips: int) -> str:
    """The topology of one machine that is not part of a larger slice; empty for an impossible number of chips."""
    return _SINGLE_HOST.get(chips, "")


def parse_topology(text: str) -> Grid:
    """`4x4x4` or `2x4`; TopologyError."""
    if not _TOPOLOGY.fullmatch(text):
        raise TopologyError(f"topology {text!r}: expected two or three numbers such as 2x4 or 4x4x4")
    numbers = [int(each) for each in text.split("x")]
    return numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 1


def chips_per_host(chips: int) -> Grid:
    """The grid of a machine's chips; TopologyError."""
    try:
        return _PER_HOST[chips]
    except KeyError:
        raise TopologyError(f"{chips} chips on this node, expected 1, 2, 4 or 8") from None


def host_bounds(topology: str, chips: int) -> Grid:
    """The number of machines in each dimension; TopologyError."""
    whole, part = parse_topology(topology), chips_per_host(chips)
    if any(total % own for total, own in zip(whole, part, strict=True)):
        grid = "x".join(map(str, part))
        raise TopologyError(f"topology {topology!r}: cannot be made of machines with {grid} chips")
    return whole[0] // part[0], whole[1] // part[1], whole[2] // part[2]


def chip_count(topology: str) -> int:
    """The chips of the whole slice."""
    return math.prod(parse_topology(topology))


def bounds_text(grid: Grid) -> str:
    """`2,2,1`."""
    return ",".join(map(str, grid))
