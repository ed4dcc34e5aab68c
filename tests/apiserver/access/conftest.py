"""What the tests of access share: a clock that stands still, objects to look up, everything opened from a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allot.apiserver.access.setup import Access, open_access
from allot.process.clock import ManualClock
from allot.process.ids import CountingIds


class Objects:
    """Stored objects, as far as authentication looks at them."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}

    def put(self, plural: str, namespace: str, name: str, uid: str = "uid-1", **more: Any) -> dict[str, Any]:
        metadata = {"name": name, "uid": uid, **more.pop("metadata", {})}
        if namespace:
            metadata["namespace"] = namespace
        object_ = {"metadata": metadata, **more}
        self._objects[plural, namespace, name] = object_
        return object_

    def remove(self, plural: str, namespace: str, name: str) -> None:
        del self._objects[plural, namespace, name]

    async def get(self, plural: str, group: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert group == ""
        return self._objects.get((plural, namespace, name))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def access(tmp_path: Path, objects: Objects, clock: ManualClock) -> Access:
    return open_access(tmp_path / "pki", objects, clock, CountingIds())
