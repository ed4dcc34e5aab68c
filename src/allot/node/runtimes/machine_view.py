"""What sandboxed containers see of this machine: its programs, but no user data.

Only what is named here is shown, so homes, sockets, data and secrets need no list: folders with the system's programs, folders on
PATH, and the interpreter that runs this. Masks hide what lies inside of those.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from allot.process.namespaces import Range

# Where systems keep their programs and settings.
_SYSTEM = ("/bin", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/sbin", "/snap", "/usr")
# System folders that a container can put its own files into.
_OWN = ("/usr/local", "/usr/local/bin", "/usr/local/etc", "/usr/local/lib", "/usr/local/sbin", "/usr/local/share")
# Empty in every container.
_EMPTY = {
    **dict.fromkeys(
        ("/home", "/media", "/mnt", "/run", "/srv", "/var/cache", "/var/lib", "/var/log", "/var/spool"), 0o755
    ),
    "/root": 0o700,
    **dict.fromkeys(("/run/lock", "/tmp", "/var/tmp"), 0o1777),
}
_LINKS = {"/var/run": "/run", "/var/lock": "/run/lock"}
# Next to programs, and needed by them.
_BESIDE = ("lib", "lib32", "lib64", "libexec")
# Folders that often hold more than programs.
_OTHERWISE_USED = ("/", "/home", "/root", "/tmp", "/var", "/srv", "/mnt")
_PEOPLE_FIRST = 1000
_INODES = 200_000
_LINKS_MAX = 200
# Ids of containers on this machine if the agent is root: far from those of users and their containers.
IDS_FIRST, IDS_COUNT = 0x70000000, 65536


class MachineView(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown; all paths are real ones."""

    layers: tuple[str, ...]
    links: Mapping[str, str]
    submounts: tuple[str, ...]
    shown: tuple[str, ...]
    masked: tuple[str, ...]
    own: tuple[str, ...]
    folders: Mapping[str, int]
    files: Mapping[str, str]
    inodes: int = _INODES


def machine_view(path: str, masked: Iterable[Path]) -> MachineView:
    """The view of this machine. path: where to look for commands; masked: what no container sees."""
    homes = _homes()
    hidden = _hidden(masked) | homes
    layers = tuple(each for each in _SYSTEM if os.path.isdir(each) and not os.path.islink(each))
    links = {each: os.readlink(each) for each in _SYSTEM if os.path.islink(each)}
    shown = _programs(path, layers, homes, hidden)
    return MachineView(
        layers=layers,
        links={**links, **_LINKS},
        submounts=_submounts(layers),
        shown=shown,
        masked=tuple(sorted(each for each in hidden if _is_inside(each, (*layers, *shown)))),
        own=tuple(each for each in _OWN if os.path.isdir(each) and _is_for_everybody(each)),
        folders=_EMPTY,
        files={},
    )


def _homes() -> set[str]:
    """The home folders of this machine's users."""
    people = (each for each in pwd.getpwall() if each.pw_uid in (0, os.getuid()) or each.pw_uid >= _PEOPLE_FIRST)
    found = {os.path.realpath(each) for each in (*(each.pw_dir for each in people), os.environ.get("HOME", "/"))}
    return found - {"/", *_SYSTEM}


def _hidden(masked: Iterable[Path]) -> set[str]:
    """The real paths of masks and kubeconfigs."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    found = {os.path.realpath(each) for each in (*map(str, masked), *filter(None, named))}
    return found - {"/", *_SYSTEM}


def _submounts(layers: Sequence[str]) -> tuple[str, ...]:
    """Mounts inside the system's folders, which a layer over them does not show."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ()
    places = {line.split()[4].replace("\\040", " ") for line in lines}
    inside = [each for each in places if any(each.startswith(f"{folder}/") for folder in layers)]
    return tuple(sorted(each for each in inside if not _is_inside(each, [other for other in inside if other != each])))


def _programs(path: str, layers: Sequence[str], homes: set[str], hidden: set[str]) -> tuple[str, ...]:
    """Where commands and their dependencies are, if not in the system's folders."""
    found: set[str] = set()
    for folder in filter(os.path.isabs, path.split(os.pathsep)):
        if os.path.isdir(folder):
            found |= set(_of_folder(os.path.realpath(folder)))
    found |= {os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    found |= {os.path.realpath(each) for each in sys.path if os.path.isabs(each) and os.path.isdir(each)}
    # A folder with more than programs is not shown just for one of them.
    unfit = {*hidden, *_OTHERWISE_USED, *(parent for home in homes for parent in map(str, Path(home).parents))}
    found -= unfit
    return tuple(
        sorted(
            each
            for each in found
            if (not _is_inside(each, layers) or _is_inside(each, hidden)) and not _is_inside(each, found - {each})
        )
    )


def _of_folder(folder: str) -> Iterable[str]:
    """A folder of PATH, its libraries, and the targets of its links."""
    yield from _of_prefix(folder)
    if _is_inside(folder, _SYSTEM):
        return
    try:
        links = [each.path for each in os.scandir(folder) if each.is_symlink()]
    except OSError:
        return
    for link in sorted(links)[:_LINKS_MAX]:
        target = os.path.realpath(link)
        if os.path.isfile(target):
            around = os.path.dirname(target)
            yield from _of_prefix(around) if os.path.basename(around) == "bin" else (target,)


def _of_prefix(folder: str) -> Iterable[str]:
    """A folder of programs, and its libraries; for a Python or conda environment, all of it."""
    yield folder
    if os.path.basename(folder) not in ("bin", "sbin"):
        return
    around = os.path.dirname(folder)
    if any(os.path.exists(f"{around}/{sign}") for sign in ("pyvenv.cfg", "conda-meta")):
        yield around
        return
    for name in _BESIDE:
        if os.path.isdir(f"{around}/{name}"):
            yield os.path.realpath(f"{around}/{name}")


def _is_inside(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these or below one."""
    return any(path == each or path.startswith(f"{each}/") for each in folders)


def _is_for_everybody(path: str) -> bool:
    return stat.S_IMODE(os.stat(path).st_mode) & 0o005 == 0o005


# --- ids ---


def gives_ids() -> bool:
    """Whether containers can get ids of this machine that no one else has: only root can do that."""
    if os.geteuid() != 0:
        return False
    last = IDS_FIRST + 2 * IDS_COUNT
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return False
    mapped = (tuple(map(int, line.split())) for line in lines)
    return any(inside <= IDS_FIRST and inside + count > last for inside, _, count in mapped)


def ranges(used: Iterable[int], kept: Iterable[int] = ()) -> tuple[Range, ...]:
    """The ids of a container on this machine: the usual ones, and others that it uses. kept: ids that stay the machine's own."""
    found: list[Range] = []
    at = 0
    for each in sorted(set(kept)):
        if each < IDS_COUNT:
            if each > at:
                found.append((at, IDS_FIRST + at, each - at))
            found.append((each, each, 1))
            at = each + 1
        else:
            found.append((each, each, 1))
    if at < IDS_COUNT:
        found.append((at, IDS_FIRST + at, IDS_COUNT - at))
    above = sorted({each for each in used if each >= IDS_COUNT and each not in set(kept)})
    found += [(each, IDS_FIRST + IDS_COUNT + number, 1) for number, each in enumerate(above)]
    return tuple(found)


def outside(id_: int, mapped: Iterable[Range]) -> int:
    """The id on this machine for an id of the container."""
    return next(first + id_ - inside for inside, first, count in mapped if inside <= id_ < inside + count)
