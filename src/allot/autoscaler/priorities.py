"""Priorities of pools for the priority expander: Cluster Autoscaler's ConfigMap cluster-autoscaler-priority-expander.

Its text is YAML: priorities with regular expressions for names of pools. The highest matching priority counts; a
pool without a match comes last.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import re2

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.yaml_values.reader import NotYAML, read_yaml

_log = logging.getLogger("allot.autoscaler")

NAME, KEY = "cluster-autoscaler-priority-expander", "priorities"
LOWEST = -(10**9)


class BadPriorities(ValueError):
    """The text is not a valid priority list."""


class Priorities:
    """The parsed ConfigMap."""

    def __init__(self, rows: Sequence[tuple[int, Sequence[str]]] = ()) -> None:
        """BadPriorities names what is wrong."""
        self._rows = []
        for priority, patterns in sorted(rows, reverse=True):
            for pattern in patterns:
                try:
                    self._rows.append((priority, re2.compile(pattern)))
                except re2.error as error:
                    raise BadPriorities(
                        f"priority {priority}: {pattern!r} is not a regular expression: {error}"
                    ) from None

    def of(self, pool: str) -> int:
        """The priority of a pool."""
        return next((priority for priority, pattern in self._rows if pattern.search(pool)), LOWEST)


def parse_priorities(text: str) -> Priorities:
    """BadPriorities."""
    try:
        value = read_yaml(text.encode())
    except NotYAML as error:
        raise BadPriorities(str(error)) from None
    if not isinstance(value, dict):
        raise BadPriorities("expected numbers, each with a list of regular expressions")
    rows = []
    for key, patterns in value.items():
        number = str(key).removeprefix("-")
        if not (number.isascii() and number.isdigit()):
            raise BadPriorities(f"{key!r} is not a number")
        if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
            raise BadPriorities(f"priority {key}: expected a list of regular expressions")
        rows.append((int(key), patterns))
    return Priorities(rows)


class PriorityReader:
    """Reads the ConfigMap before each round; if it is unreadable, logs that and keeps the last one."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._config_maps = client.resource("", "v1", "configmaps", namespaced=True)
        self._namespace = namespace
        self._text = ""
        self._priorities = Priorities()

    async def read(self) -> Priorities:
        """The current priorities."""
        try:
            found = await self._config_maps.get(NAME, self._namespace)
        except NotFound:
            found = {}
        except ApiError as error:
            _log.warning("config map %s/%s: %s", self._namespace, NAME, error)
            return self._priorities
        text = str((found.get("data") or {}).get(KEY, ""))
        if text != self._text:
            self._text = text
            try:
                self._priorities = parse_priorities(text) if text else Priorities()
            except BadPriorities as error:
                _log.warning("config map %s/%s: %s", self._namespace, NAME, error)
        return self._priorities
