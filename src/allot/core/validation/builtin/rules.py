"""What a kind defines beyond its schema: defaults, name format, initial status, and rules for create and update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from allot.core.validation import formats
from allot.core.validation.fields import Findings
from allot.core.validation.formats import Messages

Object = dict[str, Any]


def _nothing(_: Object) -> None:
    """Leaves the object as it is."""


def _nothing_on_update(_new: Object, _old: Object, _subresource: str) -> None:
    """Leaves the object as it is."""


def _fine(_: Object) -> Findings:
    return []


def _fine_update(_new: Object, _old: Object, _subresource: str) -> Findings:
    return []


def _silent(_: Object) -> tuple[str, ...]:
    return ()


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one kind, on objects in the storage version. Functions that change an object get their own copy.
    Checks skip metadata, which has the same rules for all kinds."""

    name_format: Callable[[str], Messages] = formats.dns_subdomain
    # The name format, if it depends on the object.
    name_format_of: Callable[[Object], Callable[[str], Messages]] | None = None
    # Defaults applied on decoding.
    defaults: Callable[[Object], None] = _nothing
    # The initial status, if clients may not set it on create.
    initial_status: Callable[[Object], Object] | None = None
    # Fields whose changes increment metadata.generation; empty if the kind has no generation.
    generation_of: tuple[str, ...] = ()
    # Preparation beyond status and generation.
    prepare_create: Callable[[Object], None] = _nothing
    prepare_update: Callable[[Object, Object, str], None] = _nothing_on_update
    # Rules for the object itself, and rules for changes; the former also apply to updates of the main resource.
    check: Callable[[Object], Findings] = _fine
    # Replaces `check` on such updates if a stored object may keep values that a new one may not have.
    recheck: Callable[[Object, Object], Findings] | None = None
    check_update: Callable[[Object, Object, str], Findings] = _fine_update
    warnings: Callable[[Object], tuple[str, ...]] = _silent
