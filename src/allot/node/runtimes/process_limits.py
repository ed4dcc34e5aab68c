"""Limits of processes by control groups, version 1 or 2, where this user may create them; elsewhere containers run without.

Groups are created below the agent's own, so that the agent's limits also apply to its containers.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from allot.core.lifecycle.control_groups import PERIOD_US, quota_of, shares_of, weight_of
from allot.node.runtimes.port import Resources

_ROOT = Path("/sys/fs/cgroup")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The control groups of a container, and the file that counts OOM kills."""

    folders: tuple[str, ...] = ()
    oom_file: str = ""


def make_group(container_id: str, resources: Resources) -> Group:
    """Create groups with a container's limits; empty if it has none or they are not available."""
    settings = _settings(resources)
    if not settings:
        return Group()
    if (_ROOT / "cgroup.controllers").exists():
        return _make_unified(container_id, settings)
    return _make_old(container_id, settings)


def remove_group(group: Group) -> None:
    """Remove groups in which nothing runs any longer."""
    for folder in group.folders:
        try:
            Path(folder).rmdir()
        except OSError:
            continue  # still in use, or gone


class LimitsRefused(Exception):
    """Limits that the kernel refuses for a running container."""


def update_group(container_id: str, group: Group, resources: Resources) -> None:
    """Change the limits of a running container; LimitsRefused if that requires a restart."""
    settings = _settings(resources)
    if not group.folders and not _can_be_had(container_id, resources):
        return
    unified = (_ROOT / "cgroup.controllers").exists()
    for controller, values in settings.items():
        folder = next((each for each in group.folders if unified or Path(each).is_relative_to(_ROOT / controller)), "")
        if not folder:
            raise LimitsRefused(f"it runs without a limit of {controller}, and gets one when it is restarted")
        for old, new, old_value, new_value in values:
            name, value = (new, new_value) if unified else (old, old_value)
            try:
                if name:
                    (Path(folder) / name).write_text(value)
            except OSError as error:
                raise LimitsRefused(f"{name} {value}: {(error.strerror or str(error)).lower()}") from error


def _can_be_had(container_id: str, resources: Resources) -> bool:
    """Whether this machine lets us set any limits."""
    group = make_group(f"{container_id}-trial", resources)
    remove_group(group)
    return bool(group.folders)


# Controller -> (file of version 1, file of version 2, value of version 1, value of version 2).
_Settings = dict[str, list[tuple[str, str, str, str]]]


def _settings(resources: Resources) -> _Settings:
    found: _Settings = {}
    if resources.memory_limit_bytes is not None:
        limit = str(resources.memory_limit_bytes)
        found["memory"] = [("memory.limit_in_bytes", "memory.max", limit, limit), ("", "memory.oom.group", "", "1")]
    if resources.cpu_milli_limit:
        quota = quota_of(resources.cpu_milli_limit)
        found["cpu"] = [("cpu.cfs_quota_us", "cpu.max", str(quota), f"{quota} {PERIOD_US}")]
    if found and resources.cpu_milli_request:
        shares = shares_of(resources.cpu_milli_request)
        found.setdefault("cpu", []).append(("cpu.shares", "cpu.weight", str(shares), str(weight_of(shares))))
    return found


def _own_groups() -> dict[str, str]:
    """Controller -> the agent's own group; the empty name is version 2."""
    found = {}
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path
    return found


def _make_old(container_id: str, settings: _Settings) -> Group:
    own = _own_groups()
    folders, oom_file = [], ""
    for controller, values in settings.items():
        folder = _ROOT / controller / own.get(controller, "/").lstrip("/") / f"allot-{container_id}"
        if controller not in own or not _fill(folder, ((name, value) for name, _, value, _ in values if name)):
            continue
        folders.append(str(folder))
        if controller == "memory":
            oom_file = str(folder / "memory.oom_control")
    return Group(folders=tuple(folders), oom_file=oom_file)


def _make_unified(container_id: str, settings: _Settings) -> Group:
    own = _ROOT / _own_groups().get("", "/").lstrip("/")
    # A group that contains processes cannot delegate controllers, so its parent is tried too.
    for base in (own, own.parent):
        if not base.is_relative_to(_ROOT) or not _passes_on(base, settings):
            continue
        folder = base / f"allot-{container_id}"
        if _fill(folder, ((name, value) for values in settings.values() for _, name, _, value in values)):
            return Group(folders=(str(folder),), oom_file=str(folder / "memory.events"))
    return Group()


def _passes_on(base: Path, controllers: Iterable[str]) -> bool:
    path = base / "cgroup.subtree_control"
    try:
        missing = [each for each in controllers if each not in path.read_text().split()]
        if missing:
            path.write_text(" ".join(f"+{each}" for each in missing))
    except OSError:
        return False
    return True


def _fill(folder: Path, values: Iterable[tuple[str, str]]) -> bool:
    try:
        folder.mkdir(exist_ok=True)
        for name, value in values:
            (folder / name).write_text(value)
    except OSError:
        remove_group(Group(folders=(str(folder),)))
        return False
    return True
