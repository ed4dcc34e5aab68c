"""JSON Patch (RFC 6902), with the habits of the library that Kubernetes uses for it.

Those habits: `replace` of a member that an object does not have adds it; an index below zero counts from the end; a missing
member equals null in `test`. Operations, nesting and the amount copied are bounded. Input is never changed.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from allot.core.model.decoding import DEPTH_MAX
from allot.core.patching.bounds import check_patch_bounds
from allot.core.patching.errors import PatchError, malformed, too_large, unprocessable

OPERATIONS_MAX = 10_000
# What all copies of one patch may add, in bytes of JSON: the limit of Kubernetes for a request body.
COPIED_BYTES_MAX = 3 * 1024 * 1024
_INDEX = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class TestFailed(PatchError):
    """An object that is not as a `test` says."""


class _Document:
    """The object while operations are applied; containers are copied before their first change."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.owned: dict[int, Any] = {}
        self.copied_bytes = 0

    def own(self, container: Any) -> Any:
        """A copy of a container that is ours to change."""
        if id(container) in self.owned:
            return container
        copy = dict(container) if isinstance(container, dict) else list(container)
        # Kept alive, so that its id stays its own.
        self.owned[id(copy)] = copy
        return copy


def json_patch(object_: dict[str, Any], operations: Any) -> dict[str, Any]:
    """The object with all operations applied in order; PatchError (400, 413, 422) if one cannot be."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise malformed("json: cannot unmarshal into Go value of type jsonpatch.Patch: expected a list of operations")
    if len(operations) > OPERATIONS_MAX:
        text = f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(operations)}"
        raise too_large(text)
    check_patch_bounds(operations)
    document = _Document(object_)
    for operation in operations:
        _apply(document, operation)
    if not isinstance(document.root, dict):
        raise unprocessable("the patch does not leave an object")
    check_patch_bounds(document.root)
    return document.root


def operation_errors(operations: Any) -> tuple[str, ...]:
    """What strict field validation says about the operations themselves."""
    known = {"op", "path", "from", "value"}
    texts = []
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        unknown = [name for name in operation if name not in known] if isinstance(operation, dict) else []
        texts += [f'json patch unknown field "[{index}].{name}"' for name in unknown]
    return tuple(texts)


def _apply(document: _Document, operation: dict[str, Any]) -> None:
    name = operation.get("op")
    if name == "add":
        path = _pointer(operation, "path", "add")
        _add(document, path, operation.get("value"), "add")
    elif name == "remove":
        _remove(document, _pointer(operation, "path", "remove"), "remove")
    elif name == "replace":
        _replace(document, operation)
    elif name == "test":
        _test(document, operation)
    elif name in ("move", "copy"):
        _move_or_copy(document, operation, name)
    else:
        raise unprocessable(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}")


def _move_or_copy(document: _Document, operation: dict[str, Any], name: str) -> None:
    source, target = _pointer(operation, "from", name), _pointer(operation, "path", name)
    container, key = _container(document, source, name, "from path", own=False)
    value = _get(container, key, source, name)
    if name == "move":
        if target == source:
            return
        if target.startswith(f"{source}/"):
            raise unprocessable(f"move operation does not apply: doc is missing destination path: {target}")
        _remove(document, source, name)
    else:
        encoded = msgspec.json.encode(value)
        document.copied_bytes += len(encoded)
        if document.copied_bytes > COPIED_BYTES_MAX:
            text = f"Unable to complete the copy, the accumulated size increase of copy is {document.copied_bytes}"
            raise unprocessable(f"{text}, exceeding the limit {COPIED_BYTES_MAX}")
        # A copy of its own: were it shared, nothing would be ours any more, and every later change would copy its way again.
        value = msgspec.json.decode(encoded)
    _add(document, target, value, name)


def _replace(document: _Document, operation: dict[str, Any]) -> None:
    path = _pointer(operation, "path", "replace")
    value = operation.get("value")
    if path == "":
        if not isinstance(value, (dict, list)):
            raise unprocessable("replace operation value must be object or array")
        document.root = value
        return
    container, key = _container(document, path, "replace", "path", own=True)
    if isinstance(container, dict):
        container[key] = value
    else:
        container[_index(container, key, path, "replace", past_end=0)] = value


def _test(document: _Document, operation: dict[str, Any]) -> None:
    path = _pointer(operation, "path", "test")
    if path == "":
        found: Any = document.root
    else:
        container, key = _container(document, path, "test", "path", own=False)
        found = container.get(key) if isinstance(container, dict) else _get(container, key, path, "test")
    if not same_json(found, operation.get("value")):
        failure = unprocessable(f"testing value {path} failed: test failed")
        raise TestFailed(failure.code, failure.reason, failure.message, failure.cause)


def _add(document: _Document, path: str, value: Any, name: str) -> None:
    container, key = _container(document, path, name, "destination path" if name != "add" else "path", own=True)
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        container.insert(_index(container, key, path, name, past_end=1), value)


def _remove(document: _Document, path: str, name: str) -> None:
    container, key = _container(document, path, name, "path", own=True)
    if isinstance(container, dict):
        if key not in container:
            raise unprocessable(
                f"error in {name} for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
            )
        del container[key]
    else:
        del container[_index(container, key, path, name, past_end=0)]


def _get(container: Any, key: str, path: str, name: str) -> Any:
    if isinstance(container, dict):
        if key not in container:
            raise unprocessable(
                f"error in {name} for path: '{path}': Unable to get nonexistent key: {key}: missing value"
            )
        return container[key]
    return container[_index(container, key, path, name, past_end=0)]


def _container(document: _Document, path: str, name: str, what: str, *, own: bool) -> tuple[Any, str]:
    """The container that a path ends in, and the key in it; the way to it is copied if it is to be changed."""
    parts = path.split("/")
    if len(parts) < 2 or len(parts) > DEPTH_MAX:
        raise _missing(path, name, what)
    if own:
        document.root = document.own(document.root)
    container = document.root
    for part in map(_unescaped, parts[1:-1]):
        key: Any = part
        if isinstance(container, list):
            key = _index(container, part, path, name, past_end=0)
        elif part not in container:
            raise _missing(path, name, what)
        below = container[key]
        if not isinstance(below, (dict, list)):
            raise _missing(path, name, what)
        if own:
            below = container[key] = document.own(below)
        container = below
    return container, _unescaped(parts[-1])


def _index(container: list[Any], key: str, path: str, name: str, *, past_end: int) -> int:
    if not _INDEX.fullmatch(key):
        raise unprocessable(f"error in {name} for path: '{path}': value was not a proper array index: '{key[:80]}'")
    index, size = int(key), len(container) + past_end
    if index < 0:
        index += size
    if not 0 <= index < size:
        text = f"error in {name} for path: '{path}': Unable to access invalid index: {key}: invalid index referenced"
        raise unprocessable(text)
    return index


def _pointer(operation: dict[str, Any], field: str, name: str) -> str:
    path = operation.get(field)
    if not isinstance(path, str):
        raise unprocessable(f"{name} operation failed to decode {field}: missing value")
    return path


def _missing(path: str, name: str, what: str) -> PatchError:
    return unprocessable(f'{name} operation does not apply: doc is missing {what}: "{path[:200]}": missing value')


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; true and 1 are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
