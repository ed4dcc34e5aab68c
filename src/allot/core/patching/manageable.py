"""The manageable part of an object: what the server sets or resets is removed before any comparison.

Leaving members out of the object is cheaper than taking their fields out of the sets that come of it, and comes to the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from allot.core.memo import Memo
from allot.core.patching.fieldset import LEAF, Tree
from allot.core.patching.managed import NOBODYS

Object = dict[str, Any]

_METADATA = "f:metadata"


class LeftOut(NamedTuple):
    """Members of objects and of their metadata that are left out, and what of the reset fields has to be taken out later."""

    members: frozenset[str]
    metadata: frozenset[str]
    rest: Tree


_known: Memo[int, tuple[Tree, LeftOut]] = Memo(1000)


def left_out(reset: Tree) -> LeftOut:
    """What is left out when the given fields cannot be written. Made once for each reset, which is the same object each time."""
    known = _known.get(id(reset))
    if known is None:
        known = _known.remember(id(reset), (reset, _left_out(reset)))
    return known[1]


def _left_out(reset: Tree) -> LeftOut:
    members = {element[2:] for element, below in NOBODYS.items() if not below}
    members |= {element[2:] for element, below in reset.items() if element.startswith("f:") and not below}
    below = reset.get(_METADATA, LEAF)
    metadata = {
        element[2:]
        for fields in (NOBODYS[_METADATA], below)
        for element, deeper in fields.items()
        if element.startswith("f:") and not deeper
    }
    rest: Tree = {element: deeper for element, deeper in reset.items() if deeper and element != _METADATA}
    deep = {element: deeper for element, deeper in below.items() if deeper}
    if deep:
        rest[_METADATA] = deep
    return LeftOut(frozenset(members), frozenset(metadata), rest)


def manageable(object_: Object, without: LeftOut) -> Object:
    """The object without what is left out."""
    members, hidden, _ = without
    part = {name: value for name, value in object_.items() if name not in members}
    metadata = part.get("metadata")
    if isinstance(metadata, dict):
        part["metadata"] = {name: value for name, value in metadata.items() if name not in hidden}
    return part
