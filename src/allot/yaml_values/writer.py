"""JSON values to YAML that Kubernetes reads as the same values, in the style in which Kubernetes writes it."""

from __future__ import annotations

from typing import Any

import yaml

from allot.yaml_values.scalars import NotJSON, resolve_plain

# Long texts stay on their line.
_WIDTH = 1000


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes text that Kubernetes would otherwise read as another type, and repeats instead of aliasing."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    try:
        style = None if resolve_plain(text) == text else '"'
    except NotJSON:
        style = '"'
    if "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
# The reader's objects with notes are written as plain objects.
_Dumper.add_multi_representer(dict, _Dumper.represent_dict)


def yaml_text(value: Any, *, sort_keys: bool = False) -> str:
    """A JSON value as YAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True, width=_WIDTH)
    return text
