"""The API server's answers without a server: the kinds, schemas and rules of `allot apiserver`, applied to JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.resources import Refused, Resource, Strategy
from allot.core.advice.convert.objects import at
from allot.core.advice.lint.context import Answer
from allot.core.features import FeatureGates
from allot.core.schema import Schema
from allot.core.validation.builtin.batch import JOB_UID_LABEL
from allot.core.validation.fields import INVALID, FieldError
from allot.core.validation.validate import DEFAULT_NAMESPACE

_UID = "00000000-0000-0000-0000-000000000000"


class ServerAnswers:
    """What a server with these gates would answer; objects without a namespace go to `default`."""

    def __init__(self, gates: FeatureGates) -> None:
        self._gates = gates
        self._strategies: dict[tuple[str, str], Strategy] = {}

    @cached_property
    def _resources(self) -> dict[tuple[str, str, str], Resource]:
        return {
            (resource.group, resource.version, resource.kind): resource
            for resource in builtin_resources()
            if resource.stored
        }

    def kinds(self) -> Sequence[tuple[str, str, str]]:
        """Group, version and kind of everything that can be created and stored."""
        return list(self._resources)

    def schema(self, group: str, version: str, kind: str) -> Schema | None:
        """The fields of a kind."""
        return builtin_schemas().for_kind(group, version, kind)

    def ask(self, value: dict[str, Any]) -> Answer:
        """Field errors and warnings for a new object."""
        group, _, version = value["apiVersion"].rpartition("/")
        resource = self._resources[group, version, value["kind"]]
        strategy = self._strategy(resource)
        try:
            stored = strategy.prepare_create(strategy.read(_named(value, resource)))
            return Answer(strategy.validate_create(stored), strategy.warnings(stored))
        except Refused as error:
            return Answer((FieldError("", INVALID, str(error)),))

    def _strategy(self, resource: Resource) -> Strategy:
        key = (resource.api_version, resource.kind)
        if key not in self._strategies:
            self._strategies[key] = strategy_for(resource, gates=self._gates)
        return self._strategies[key]


def _named(value: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """With the namespace of the request, and the name and uid that the server would generate."""
    metadata = value.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    if not resource.namespaced:
        # The server clears it, because the request has none.
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = DEFAULT_NAMESPACE
    prefix = metadata.get("generateName")
    if not metadata.get("name") and isinstance(prefix, str) and prefix:
        metadata["name"] = f"{prefix}x"
    metadata["uid"] = _uid(value, metadata)
    return {**value, "metadata": metadata}


def _uid(value: dict[str, Any], metadata: dict[str, Any]) -> str:
    """Jobs are selected by it. An object that a server created keeps its own: its generated selector and labels
    contain it, even if the uid itself was removed from a dump."""
    own = metadata.get("uid")
    if not own and value.get("kind") == "Job" and value.get("status"):
        own = at(value, ("spec", "selector", "matchLabels", JOB_UID_LABEL))
    return own if isinstance(own, str) and own else _UID
