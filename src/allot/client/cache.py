"""An informer's cache: the objects by key, and indexes over them. Plain data, changed only by its informer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")

# The index values of an object.
IndexFunction = Callable[[T], Iterable[str]]


class Cache(Generic[T]):
    """Objects by key (`namespace/name`, or `name` alone) and by index. Objects are shared: never change one."""

    def __init__(self, indexers: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[str, T] = {}
        self._functions = dict(indexers or {})
        # Index name -> value -> keys in order of arrival; dicts, because sets have no order.
        self._indexes: dict[str, dict[str, dict[str, None]]] = {name: {} for name in self._functions}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def get(self, key: str) -> T | None:
        """The object of a key."""
        return self._objects.get(key)

    def keys(self) -> tuple[str, ...]:
        """All keys."""
        return tuple(self._objects)

    def items(self) -> tuple[tuple[str, T], ...]:
        """All keys with their objects."""
        return tuple(self._objects.items())

    def by_index(self, index: str, value: str) -> tuple[T, ...]:
        """The objects that an index has under a value."""
        return tuple(self._objects[key] for key in self._indexes[index].get(value, ()))

    def count(self, index: str, value: str) -> int:
        """How many objects an index has under a value."""
        return len(self._indexes[index].get(value, ()))

    def index_values(self, index: str) -> tuple[str, ...]:
        """The values of an index that have objects."""
        return tuple(self._indexes[index])

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        """Add an index over the current objects. Users of a shared cache may add the same one."""
        if self._functions.get(name) is function:
            return
        if name in self._functions:
            raise ValueError(f"index {name!r} exists")
        self._functions[name] = function
        self._indexes[name] = {}
        for key, object_ in self._objects.items():
            for value in function(object_):
                self._indexes[name].setdefault(value, {})[key] = None

    def put(self, key: str, object_: T) -> T | None:
        """Set the object of a key; returns the previous one."""
        before = self._objects.get(key)
        self._objects[key] = object_
        for name, function in self._functions.items():
            self._reindex(name, key, () if before is None else function(before), function(object_))
        return before

    def remove(self, key: str) -> T | None:
        """Remove a key; returns the previous object."""
        before = self._objects.pop(key, None)
        if before is not None:
            for name, function in self._functions.items():
                self._reindex(name, key, function(before), ())
        return before

    def _reindex(self, name: str, key: str, old: Iterable[str], new: Iterable[str]) -> None:
        old_values, new_values = tuple(old), tuple(new)
        if old_values == new_values:
            return
        index = self._indexes[name]
        for value in old_values:
            if value not in new_values:
                keys = index.get(value, {})
                keys.pop(key, None)
                if not keys:
                    index.pop(value, None)
        for value in new_values:
            index.setdefault(value, {})[key] = None
