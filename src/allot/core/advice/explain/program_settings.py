"""Containers of pod templates, and what their programs are told by flags and variables."""

from __future__ import annotations

from typing import Any

from allot.core.model.meta import RawJSON
from allot.core.workloads.pod_templates import template_value


def containers_in(template: RawJSON | None) -> list[dict[str, Any]]:
    """The containers of a template, as they are."""
    spec = template_value(template).get("spec") if template is not None else None
    return [each for each in (spec or {}).get("containers") or () if isinstance(each, dict)]


def words_of(container: dict[str, Any]) -> list[str]:
    """A container's command and arguments."""
    return [str(each) for member in ("command", "args") for each in container.get(member) or ()]


def setting(container: dict[str, Any], flag: str, variable: str) -> str | None:
    """The value of a setting; empty if it has its default, None if it comes from elsewhere. A flag without a value is true."""
    for word in words_of(container):
        name, _, value = word.partition("=")
        if name == flag:
            return value or "true"
    for each in container.get("env") or ():
        if isinstance(each, dict) and each.get("name") == variable:
            return str(each["value"]) if "value" in each else None
    return None if container.get("envFrom") else ""
