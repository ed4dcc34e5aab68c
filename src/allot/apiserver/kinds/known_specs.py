"""A cache of known specs: objects from one template need not be processed repeatedly.

Defaults, the first status and validation depend only on the spec, so a result stays valid forever.
Workloads create the same pod and claim thousands of times; comparing a spec with known ones costs a tenth of working through
it.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec

_SPECS_MAX = 256
_SPEC_SIZE_MAX = 8 * 1024

# Every pod gets the volume for its token under its own name.
_PREFIX = b"kube-api-access-"
_token_volume = re.compile(_PREFIX + rb"[a-z0-9]{5}\b")

T = TypeVar("T")


class KnownSpecs(Generic[T]):
    """Results for specs of one kind. Used from several threads: every step is atomic."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[bytes, T] = {}

    def get(self, key: bytes | None) -> T | None:
        """The result for a spec; None if it is not known."""
        return None if key is None else self._found.get(key)

    def put(self, key: bytes | None, found: T) -> T:
        """Remember the result for a spec, and forget all others if there are too many."""
        if key is not None:
            if len(self._found) >= _SPECS_MAX:
                self._found.clear()
            self._found[key] = found
        return found

    def __contains__(self, key: bytes | None) -> bool:
        return key is not None and key in self._found


def exact_key(spec: Any) -> bytes | None:
    """The key of a spec; None if it is too large to cache."""
    try:
        encoded = msgspec.json.encode(spec)
    except (TypeError, ValueError):
        # Validation refuses what JSON cannot carry.
        return None
    return encoded if len(encoded) <= _SPEC_SIZE_MAX else None


class SpecKeys:
    """Keys of specs. The last one is cached: several steps need it, and specs are shared and never changed."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        # One tuple, assigned atomically: other threads read it too.
        self._last: tuple[Any, bytes | None] = (None, None)

    def key(self, spec: Any) -> bytes | None:
        """The key of a spec; None if it is too large to cache."""
        last, key = self._last
        if spec is None or spec is not last:
            key = self._key(spec)
            self._last = (spec, key)
        return key

    def _key(self, spec: Any) -> bytes | None:
        return exact_key(spec)


class PodSpecKeys(SpecKeys):
    """Keys of pod specs, independent of the names of their token volumes."""

    __slots__ = ()

    def _key(self, spec: Any) -> bytes | None:
        key = exact_key(spec)
        if key is not None and (found := _token_volume.search(key)) is not None:
            # With several such names it would matter which is which.
            name = found.group()
            if key.count(name) == key.count(_PREFIX):
                return key.replace(name, _PREFIX)
        return key
