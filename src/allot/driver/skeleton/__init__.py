"""The skeleton of a new driver: working code, its test, an image, and manifests.

Knows which files there are; their texts are in `files`, with the driver's names left open. `with_controller` has the changed and
additional ones for a driver whose devices are attached to nodes by a controller.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import allot
from allot.core.validation.names import check_driver_name

_SUFFIX = ".txt"
# This release's dependencies: exact versions, with hashes.
_REQUIREMENTS = "requirements.txt"


class SkeletonError(ValueError):
    """The skeleton cannot be written."""


def write_skeleton(name: str, directory: Path, *, with_controller: bool = False) -> tuple[Path, ...]:
    """Write a driver of that name; returns the files. SkeletonError if the name is invalid or files exist."""
    problems = check_driver_name(name, "name")
    if problems:
        raise SkeletonError(f"driver {problems[0].error}")
    if name != name.lower():
        # Valid as a driver's name, but not as the name of a namespace or a device.
        raise SkeletonError(f"driver name {name!r}: expected lower-case letters, digits, '-' and '.'")
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise SkeletonError(f"{directory}: already exists, expected a new or empty directory")
        written = []
        texts = dict(_texts(resources.files(__name__) / "files", Path()))
        if with_controller:
            texts |= _texts(resources.files(__name__) / "with_controller", Path())
        texts[Path(_REQUIREMENTS)] = (resources.files(allot) / _REQUIREMENTS).read_text()
        for path, text in sorted(texts.items()):
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(text, name))
            written.append(target)
    except OSError as error:
        raise SkeletonError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from error
    return tuple(written)


def _texts(folder: Traversable, below: Path) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _texts(entry, below / entry.name)
        elif entry.name.endswith(_SUFFIX):
            found.append((below / entry.name.removesuffix(_SUFFIX), entry.read_text()))
    return found


def _filled(text: str, name: str) -> str:
    """The text with the names of this driver: dice.example.com, dice, Dice, DICE."""
    short = name.partition(".")[0]
    camel = "".join(part.capitalize() for part in short.split("-"))
    if not camel[:1].isalpha():
        camel = f"Driver{camel}"
    values = {
        "@NAME@": name,
        "@SHORT@": short,
        "@CLASS@": camel,
        "@UPPER@": short.upper().replace("-", "_"),
        "@WHEEL@": f"allot_dra-{allot.__version__}-py3-none-any.whl",
    }
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
