"""The software bill of materials of a release, in CycloneDX 1.5: what allot needs, by exact version, hash and licence.

Versions and hashes are those of the lock file that images and installations use; licences are what each package says of itself, so they
are known only where it is installed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

# The name comes from what is in it: the same release has the same bill.
_NAMESPACE = uuid.UUID("5f1d2f36-8f0e-5b7c-9c39-0c1f3f6a3a10")


class Locked(msgspec.Struct, frozen=True):
    """A package of the lock file. condition: where it is needed, if not everywhere."""

    name: str
    version: str
    hashes: tuple[str, ...]
    condition: str = ""


def read_lock(path: Path) -> list[Locked]:
    """All packages of a lock file; ValueError for a line that is no package with hashes."""
    found = []
    for entry in re.split(r"\n(?=\S)", path.read_text().strip()):
        head, *hashes = entry.split(" \\\n")
        matched = re.fullmatch(r"([\w.-]+)==([\w.+!]+)(?: ; (.+))?", head)
        if matched is None or not hashes:
            raise ValueError(f"{path}: {head!r}: expected NAME==VERSION with hashes")
        digests = tuple(each.strip().removeprefix("--hash=sha256:") for each in hashes)
        found.append(Locked(matched[1], matched[2], digests, matched[3] or ""))
    return found


def licence_of(name: str) -> str:
    """What an installed package says its licence is; empty if it is not here or does not say."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if "License-Expression" in about:
        return about["License-Expression"]
    classified = [
        each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or () if each.startswith("License ::")
    ]
    stated = about["License"].strip() if "License" in about else ""
    return ", ".join(classified) or (stated if "\n" not in stated else stated.split("\n")[0])


def bill_of_materials(
    version: str, packages: Sequence[Locked], system: Iterable[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """The bill as JSON. system: packages of the operating system in an image: name, version, sha256, purl."""
    components = [*(_python(each) for each in packages), *(_debian(each) for each in system)]
    own = {
        "type": "application",
        "bom-ref": f"pkg:pypi/allot-dra@{version}",
        "name": "allot-dra",
        "version": version,
        "purl": f"pkg:pypi/allot-dra@{version}",
        "licenses": [{"expression": "Apache-2.0"}],
    }
    contents = json.dumps([own, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, contents)}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _python(package: Locked) -> dict[str, Any]:
    purl = f"pkg:pypi/{package.name.lower().replace('_', '-')}@{package.version}"
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        # Of each file that the index has: one for each kind of machine.
        "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
    }
    licence = licence_of(package.name)
    if licence:
        found["licenses"] = [{"license": {"name": licence}}]
    if package.condition:
        found["properties"] = [{"name": "condition", "value": package.condition}]
    return found


def _debian(package: Mapping[str, str]) -> dict[str, Any]:
    purl = f"pkg:deb/debian/{package['name']}@{package['version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package["sha256"]}],
    }
