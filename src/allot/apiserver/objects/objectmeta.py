"""metadata: what the server fills in, what it keeps from the stored object, and what must agree with the request.

Objects are JSON values and shared; every function returns a new object, or the same one if nothing changes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.errors import StatusError, bad_request
from allot.process.clock import Clock
from allot.process.ids import Ids

Object = dict[str, Any]

GENERATED_NAME_LENGTH_MAX = 63
_SUFFIX_LENGTH = 5
# Written only by the server; an update that omits them means the stored values.
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def metadata_of(object_: Object) -> Object:
    """metadata, or an empty one if it is missing; 400 if it is not an object."""
    metadata = object_.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise bad_request(f"metadata: expected an object, got {type(metadata).__name__}")
    return metadata


def text_of(metadata: Object, name: str) -> str:
    """A string in metadata; 400 if it is something else."""
    value = metadata.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise bad_request(f"metadata.{name}: expected a string, got {type(value).__name__}")
    return value


def with_metadata(object_: Object, metadata: Object) -> Object:
    """The object with other metadata, in the usual order of members."""
    if "metadata" in object_:
        return {**object_, "metadata": metadata}
    head: Object = {name: object_[name] for name in ("apiVersion", "kind") if name in object_}
    return {**head, "metadata": metadata, **{name: value for name, value in object_.items() if name not in head}}


def in_namespace(object_: Object, namespace: str, *, namespaced: bool) -> Object:
    """The object in the namespace of the request; 400 if it names another one."""
    metadata = metadata_of(object_)
    given = text_of(metadata, "namespace")
    if not namespaced:
        if "namespace" not in metadata:
            return object_
        return with_metadata(object_, {name: value for name, value in metadata.items() if name != "namespace"})
    if given == namespace:
        return object_
    if given:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return with_metadata(object_, {**metadata, "namespace": namespace})


def new_object(object_: Object, clock: Clock, ids: Ids) -> Object:
    """An object about to be created, with uid, creationTimestamp and any generated name from the server."""
    given = metadata_of(object_)
    metadata = dict(given)
    for name in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
        metadata.pop(name, None)
    if text_of(given, "generateName") and not text_of(given, "name"):
        metadata["name"] = generated_name(given["generateName"], ids)
    metadata["uid"] = ids.new_uid()
    metadata["creationTimestamp"] = clock.now()
    return with_metadata(object_, metadata)


def renamed(object_: Object, ids: Ids) -> Object:
    """The same new object under another generated name."""
    metadata = object_["metadata"]
    return {**object_, "metadata": {**metadata, "name": generated_name(metadata["generateName"], ids)}}


def generated_name(base: str, ids: Ids) -> str:
    """A name that starts with the base and fits into a label."""
    return base[: GENERATED_NAME_LENGTH_MAX - _SUFFIX_LENGTH] + ids.suffix(_SUFFIX_LENGTH)


def changed_object(object_: Object, old: Object) -> Object:
    """An object about to replace another: fields that it omits and only the server writes are copied."""
    given, kept = metadata_of(object_), old["metadata"]
    metadata = dict(given)
    metadata.pop("selfLink", None)
    if "generation" in kept:
        metadata["generation"] = kept["generation"]
    else:
        metadata.pop("generation", None)
    for name in _KEPT:
        if name in kept and not metadata.get(name):
            metadata[name] = kept[name]
    return with_metadata(object_, metadata)


def check_name(object_: Object, name: str) -> None:
    """400 unless the object has the name of the path."""
    given = text_of(metadata_of(object_), "name")
    if not given:
        raise no_name(name)
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def no_name(name: str) -> StatusError:
    """400 for an object without the name of the path."""
    return bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")


def without_duplicate_owners(object_: Object) -> tuple[Object, tuple[str, ...]]:
    """The object without duplicate owner references, and a warning about them."""
    owners = metadata_of(object_).get("ownerReferences")
    if not isinstance(owners, list) or len(owners) < 2:
        return object_, ()
    # Compared as text: comparing each with all others takes a minute for a body of legal size.
    unique: dict[bytes, Any] = {}
    twice: dict[str, None] = {}
    for owner in owners:
        known = len(unique)
        unique.setdefault(_as_text(owner), owner)
        if len(unique) == known:
            twice[str(owner.get("uid", "")) if isinstance(owner, dict) else ""] = None
    if len(unique) == len(owners):
        return object_, ()
    text = f".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {', '.join(twice)}"
    return with_metadata(object_, {**object_["metadata"], "ownerReferences": list(unique.values())}), (text,)


def _as_text(value: Any) -> bytes:
    """A text that is equal for equal values."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError):
        # Not JSON: validation refuses it.
        return repr(value).encode(errors="backslashreplace")
