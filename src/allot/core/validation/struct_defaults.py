"""Defaults of struct fields, to distinguish set fields from unset ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec


@cache
def defaults_of(type_: type) -> Mapping[str, Any]:
    """The default of every field of a struct type, by attribute."""
    return {
        field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        for field in msgspec.structs.fields(type_)
    }
