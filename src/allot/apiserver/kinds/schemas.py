"""The schemas of all built-in kinds, read from the package that ships them.

The file is read once per process (10 ms); `core.schema` builds nodes from it as they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from allot.apiserver.kinds.classic_definitions import classic_definitions
from allot.core.schema import Schemas

_FOLDER = re.compile(r"v(\d+)\.(\d+)\.(\d+)-local")


@cache
def builtin_definitions() -> dict[str, Any]:
    """OpenAPI definitions by name, of the newest version available. Shared: never change them."""
    # Found without importing the package, which would load an unused validator.
    package = find_spec("kubernetes_validate")
    assert package is not None and package.origin is not None, "the package kubernetes-validate is not installed"
    folder = Path(package.origin).parent / "kubernetes-json-schema"
    _, newest = max(_versions(folder.iterdir()))
    document = msgspec.json.decode((newest / "_definitions.json").read_bytes())
    definitions = document.get("$defs") or document["definitions"]
    assert isinstance(definitions, dict)
    return definitions


def _versions(folders: Iterator[Path]) -> Iterator[tuple[tuple[int, ...], Path]]:
    for folder in folders:
        match = _FOLDER.fullmatch(folder.name)
        if match:
            yield tuple(map(int, match.groups())), folder


@cache
def builtin_schemas(*, with_classic: bool = False) -> Schemas:
    """Schemas of all built-in kinds. with_classic: also of those that Kubernetes 1.31 had in resource.k8s.io/v1alpha3."""
    definitions = builtin_definitions()
    return Schemas({**classic_definitions(definitions), **definitions} if with_classic else definitions)
