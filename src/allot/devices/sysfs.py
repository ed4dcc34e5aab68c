"""Reads small files of the kernel (`/sys`, `/proc`): missing ones are empty, never an error.

Knows the form of single files. Does not know what they mean to a driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_DRM_NODE = re.compile(r"(card|renderD)([0-9]{1,6})")
_PCI_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
# More than any kernel supports; a longer list is a mistake.
CPUS_MAX = 8192


class CpuListError(ValueError):
    """Text that is not a list of CPUs."""


class PciPlace(msgspec.Struct, frozen=True):
    """A device's PCI location; empty if it is not on a PCI bus."""

    address: str = ""
    root: str = ""


def read_line(path: Path) -> str:
    """The stripped content of a one-line file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_int(path: Path, default: int) -> int:
    """The number in a file (decimal, or 0x...); the default if there is none."""
    try:
        return int(read_line(path), 0)
    except ValueError:
        return default


def children(folder: Path) -> tuple[Path, ...]:
    """The contents of a directory, by name; empty if it does not exist."""
    try:
        return tuple(sorted(folder.iterdir()))
    except OSError:
        return ()


def drm_nodes(folder: Path) -> dict[str, int]:
    """The numbers of `card` and `renderD` in a device's directory `drm`; missing ones are left out."""
    matches = (_DRM_NODE.fullmatch(each.name) for each in children(folder))
    return {match[1]: int(match[2]) for match in matches if match is not None}


def pci_place(device: Path) -> PciPlace:
    """The PCI function nearest above a device, and its root complex."""
    parts = device.resolve().parts
    root = next((part for part in parts if _PCI_ROOT.fullmatch(part)), "")
    address = next((part for part in reversed(parts) if _PCI_ADDRESS.fullmatch(part)), "")
    return PciPlace(address, root)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs in `0-3,8`, in order; CpuListError."""
    found: set[int] = set()
    for part in filter(None, (each.strip() for each in text.split(","))):
        first, dash, last = part.partition("-")
        numbers = (first, last) if dash else (first, first)
        if not all(each.isascii() and each.isdigit() and int(each[:9]) < CPUS_MAX for each in numbers):
            raise CpuListError(f"CPU list {text!r}: {part!r}, expected a number or a range such as 0-3")
        low, high = (int(each[:9]) for each in numbers)
        if low > high:
            raise CpuListError(f"CPU list {text!r}: range {part!r} goes backwards")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def format_cpu_list(cpus: Iterable[int]) -> str:
    """CPUs as the kernel writes them: `0-3,8`."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
