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
    """The rules of one kind, on objects in the storage version. What changes an object gets one of its own to change.
    Checks leave out metadata, which is the same for all kinds."""

    name_format: Callable[[str], Messages] = formats.dns_subdomain
    # The format of the name where it depends on the object.
    name_format_of: Callable[[Object], Callable[[str], Messages]] | None = None
    # What reading fills in.
    defaults: Callable[[Object], None] = _nothing
    # A fresh status, when a new object may not bring one along.
    initial_status: Callable[[Object], Object] | None = None
    # Members whose change counts in metadata.generation; none when the kind has no generation.
    generation_of: tuple[str, ...] = ()
    # What is done besides status and generation.
    prepare_create: Callable[[Object], None] = _nothing
    prepare_update: Callable[[Object, Object, str], None] = _nothing_on_update
    # Rules of the object itself, and rules about a change; the former hold on updates of the main resource, too.
    check: Callable[[Object], Findings] = _fine
    # Takes the place of `check` on such updates where the stored object may keep what a new one may not have.
    recheck: Callable[[Object, Object], Findings] | None = None
    check_update: Callable[[Object, Object, str], Findings] = _fine_update
    warnings: Callable[[Object], tuple[str, ...]] = _silent
