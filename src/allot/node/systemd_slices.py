"""Slices of systemd, which are control groups: systemd must know them, or it would undo what others write.

Over busctl, which comes with systemd, instead of a D-Bus library: two calls do not justify one.
"""

from __future__ import annotations

import subprocess

from allot.core.lifecycle.control_groups import PERIOD_US, UNLIMITED, GroupValues, weight_of

_BUS = ("busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
_TIMEOUT_S = 30.0
_INFINITY = 2**64 - 1
_SECOND_US = 1_000_000
# As runc does it: without them, systemd does not enable the controllers.
_PROPERTIES = ("CPUAccounting", "MemoryAccounting", "TasksAccounting")


class SlicesRefused(Exception):
    """systemd does not start or stop a slice, or is not there."""


def start_command(name: str) -> tuple[str, ...]:
    """The call that starts a slice without a unit file."""
    properties = [word for each in _PROPERTIES for word in (each, "b", "true")]
    properties += ("DefaultDependencies", "b", "false")
    count = str(len(_PROPERTIES) + 1)
    return (*_BUS, "StartTransientUnit", "ssa(sv)a(sa(sv))", name, "replace", count, *properties, "0")


def start_slice(name: str) -> None:
    """Start a slice, unless it runs. SlicesRefused."""
    _call(start_command(name), unless="already")


def set_command(name: str, values: GroupValues, *, is_unified: bool) -> tuple[str, ...]:
    """The call that gives a slice values until the next start of the machine; empty if there are none. Huge pages are not systemd's."""
    found: dict[str, int] = {}
    if (shares := values.cpu_shares) is not None:
        found.update({"CPUWeight": weight_of(shares)} if is_unified else {"CPUShares": shares})
    if (quota := values.cpu_quota_us) is not None:
        # Rounded up to whole hundredths of a processor, because systemd rounds down.
        a_second = -(-quota * _SECOND_US // PERIOD_US // 10_000) * 10_000
        found["CPUQuotaPerSecUSec"] = _INFINITY if quota == UNLIMITED else a_second
    if values.memory_bytes is not None:
        limit = _INFINITY if values.memory_bytes == UNLIMITED else values.memory_bytes
        found["MemoryMax" if is_unified else "MemoryLimit"] = limit
    if values.pids is not None:
        found["TasksMax"] = _INFINITY if values.pids == UNLIMITED else values.pids
    if not found:
        return ()
    properties = [word for name, value in found.items() for word in (name, "t", str(value))]
    return (*_BUS, "SetUnitProperties", "sba(sv)", name, "true", str(len(found)), *properties)


def set_slice(name: str, values: GroupValues, *, is_unified: bool) -> None:
    """Give a slice values. SlicesRefused."""
    if command := set_command(name, values, is_unified=is_unified):
        _call(command)


def stop_slice(name: str) -> None:
    """Stop a slice, if it runs. SlicesRefused."""
    _call((*_BUS, "StopUnit", "ss", name, "replace"), unless="not loaded")


def _call(command: tuple[str, ...], unless: str = "") -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlicesRefused(f"{command[0]}: {error}") from error
    if done.returncode != 0 and not (unless and unless in done.stderr):
        raise SlicesRefused(f"{command[5]} {command[7]}: {done.stderr.strip()}")
