"""Objects for tests as plain JSON values: the API examples among the vectors, and a small claim."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml

from vectors import vectors_dir


class _JSONLoader(yaml.SafeLoader):
    """Reads what JSON knows: times stay text."""


_JSONLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

# Kinds of the examples that core does not know.
_FOREIGN = {"ResourceQuota"}


@cache
def _documents() -> list[dict[str, Any]]:
    folder = vectors_dir()
    if folder is None:
        return []
    found = []
    for path in sorted((folder / "api").glob("*.yaml")):
        documents = yaml.load_all(path.read_text(), Loader=_JSONLoader)
        found += [document for document in documents if document and document["kind"] not in _FOREIGN]
    return found


def api_documents(*kinds: str) -> list[dict[str, Any]]:
    """Every example object, or those of some kinds; skips the test when there are no vectors."""
    documents = [document for document in _documents() if not kinds or document["kind"] in kinds]
    if not documents:
        pytest.skip("the vectors (shared/vectors or ALLOT_VECTORS) are not here")
    return documents


def refused_objects() -> list[dict[str, Any]]:
    """Objects that an API server decoded and then found invalid; skips the test when there are no vectors."""
    folder = vectors_dir()
    if folder is None:
        pytest.skip("the vectors (shared/vectors or ALLOT_VECTORS) are not here")
    cases = json.loads((folder / "api" / "invalid.json").read_text())
    return [case[part] for case in cases for part in ("object", "old") if case.get(part)]


def claim(**request: Any) -> dict[str, Any]:
    """A claim with one request that has the given fields."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", **request}}]}},
    }
