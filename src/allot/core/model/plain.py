"""An object as written: a JSON value of which only type and metadata are read, without assumptions."""

from __future__ import annotations

from typing import Any

import msgspec


class PlainObject(msgspec.Struct, frozen=True):
    """A JSON value that has, or should have, apiVersion, kind and metadata. Values that are not text count as absent."""

    value: dict[str, Any]

    @property
    def api_version(self) -> str:
        """The group and version."""
        return plain_text(self.value.get("apiVersion"))

    @property
    def group(self) -> str:
        """The API group; empty for core/v1."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version in the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def kind(self) -> str:
        """The kind."""
        return plain_text(self.value.get("kind"))

    @property
    def namespace(self) -> str:
        """The namespace, if one is given."""
        return plain_text(self._metadata.get("namespace"))

    @property
    def name(self) -> str:
        """The name; for generateName, the prefix and a star."""
        generate_name = plain_text(self._metadata.get("generateName"))
        return plain_text(self._metadata.get("name")) or (f"{generate_name}*" if generate_name else "")

    @property
    def qualified_name(self) -> str:
        """`namespace/name`, or only the name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def labels(self) -> dict[str, str]:
        """The labels whose values are text."""
        labels = self._metadata.get("labels")
        if not isinstance(labels, dict):
            return {}
        return {key: value for key, value in labels.items() if isinstance(value, str)}

    @property
    def _metadata(self) -> dict[str, Any]:
        metadata = self.value.get("metadata")
        return metadata if isinstance(metadata, dict) else {}


def plain_text(value: object) -> str:
    """The value if it is text, else none."""
    return value if isinstance(value, str) else ""
