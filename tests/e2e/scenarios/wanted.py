"""What a test wants of a driver: written to a file by the test, read by the process that runs the driver."""

from __future__ import annotations

from typing import Any

import msgspec


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A driver on a node: where it runs, what it publishes, and how it behaves."""

    driver: str
    node: str
    kubelet_root: str
    cdi_directory: str
    # The uid of the instance's pod; sockets carry it.
    instance: str = ""
    versions: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    health_versions: tuple[str, ...] = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
    # Pools as slices have them: name, devices, sharedCounters, skipNodeOperations.
    pools: tuple[dict[str, Any], ...] = ()
    has_metadata: bool = False
    # Why prepare or unprepare fails; empty: it does not.
    refuses: str = ""
    refuses_unprepare: str = ""
    # Prepare does not return.
    blocks: bool = False
    # Device to health (UNKNOWN, HEALTHY, UNHEALTHY) and message; others are healthy.
    health: dict[str, tuple[str, str]] = {}
    # What the driver tells of each device in the status of its claim.
    status: dict[str, Any] | None = None


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what a driver has done: `ready`, `registered`, `stopped`, `prepare`, `unprepare`."""

    what: str
    claim: str = ""
    uid: str = ""
