"""Stand-ins for images: programs that containers of simulated nodes find in place of those of an image, which is not pulled.

They imitate what is visible from outside (memory in use, open ports, output) and do no work. A stand-in's folder is mounted, and its programs
and modules come first on PATH and PYTHONPATH. Which image has one is data (`catalogue.yaml`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from allot.node.runtimes.port import ContainerSpec, Mount
from allot.process.data_files import read_data_file

CONTAINER_FOLDER = "/run/stand-in"
_PROGRAMS, _MODULES = "bin", "python"
# For allot's own programs.
_INTERPRETER = "ALLOT_PYTHON"
_HERE = Path(__file__).parent


class _StandIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    images: tuple[str, ...]
    folder: str
    entrypoint: tuple[str, ...] = ()


def with_stand_in(spec: ContainerSpec, path: str) -> ContainerSpec:
    """A container with the stand-in of its image, if there is one. path: its default PATH."""
    found = _stand_in(spec.image)
    if found is None:
        return spec
    folder = _HERE / found.folder
    environment = {_INTERPRETER: sys.executable, **spec.environment}
    if (folder / _PROGRAMS).is_dir():
        environment["PATH"] = f"{CONTAINER_FOLDER}/{_PROGRAMS}:{environment.get('PATH', path)}"
    if (folder / _MODULES).is_dir():
        others = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = f"{CONTAINER_FOLDER}/{_MODULES}" + (f":{others}" if others else "")
    mount = Mount(host_path=str(folder), container_path=CONTAINER_FOLDER, read_only=True)
    return msgspec.structs.replace(
        spec, command=spec.command or found.entrypoint, environment=environment, mounts=(*spec.mounts, mount)
    )


def command_of(command: tuple[str, ...], image: str) -> tuple[str, ...]:
    """What a container runs: its command, or that of its image, if known."""
    if command:
        return command
    found = _stand_in(image)
    return found.entrypoint if found is not None else ()


def programs_of(image: str) -> Mapping[str, str]:
    """The programs of an image's stand-in, and their paths in a container."""
    found = _stand_in(image)
    programs = sorted((_HERE / found.folder / _PROGRAMS).glob("*")) if found is not None else ()
    return {each.name: f"{CONTAINER_FOLDER}/{_PROGRAMS}/{each.name}" for each in programs}


def _stand_in(image: str) -> _StandIn | None:
    repository = repository_of(image)
    return _by_image().get(repository) or _by_image().get(repository.rpartition("/")[2])


@cache
def _by_image() -> Mapping[str, _StandIn]:
    rows = read_data_file(__package__, "catalogue.yaml", tuple[_StandIn, ...])
    return {image: row for row in rows for image in row.images}


def repository_of(image: str) -> str:
    """An image's name without registry, tag and digest."""
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        name = rest
    return name.rpartition(":")[0] if ":" in name else name
