"""Applies objects to a cluster by server-side apply, dependencies first."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from allot.cli.errors import Refused
from allot.cli.output import talk
from allot.client.api import Client, ResourceClient
from allot.client.connection import Connection
from allot.client.discovery import UnknownResource
from allot.client.errors import ApiError, Conflict, NotFound, Unauthorized, Unreachable
from allot.client.http import HttpTransport
from allot.core.advice.application_order import rank
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.reading.errors import NotReached
from allot.reading.live import TRIES_MAX

FIELD_MANAGER = "allot"
# A person waits for the answer.
_REQUEST_TIMEOUT_S = 10.0
# How long the server may take to serve a kind after its definition was created.
_DEFINITION_WAIT_S = 10.0
_DEFINITION_ASKED_EVERY_S = 0.2


class Applied(msgspec.Struct, frozen=True):
    """What became of one object."""

    resource: str
    name: str
    namespace: str
    # created, configured, unchanged or failed
    result: str
    message: str = ""


def in_order(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What others need first."""
    return sorted(objects, key=lambda value: rank(value["kind"]))


def not_applied(value: dict[str, Any]) -> Applied:
    """The result for an object without a cluster."""
    return _applied(value, "created")


def _applied(value: dict[str, Any], result: str, message: str = "") -> Applied:
    group, kind = value["apiVersion"].rpartition("/")[0], value["kind"].lower()
    metadata = value["metadata"]
    named = f"{kind}.{group}" if group else kind
    return Applied(named, metadata["name"], metadata.get("namespace") or "", result, message)


class Settings(msgspec.Struct, frozen=True):
    """How to apply: the namespace of objects that name none, whether to change anything, and whether to take fields over."""

    namespace: str
    dry_run: bool
    force: bool


async def apply_objects(objects: Sequence[dict[str, Any]], connection: Connection, settings: Settings) -> list[Applied]:
    """Every object in turn. NotReached when the cluster is away; what it refuses is a result."""
    transport = HttpTransport(
        connection, SystemClock(), SystemIds(), environ=os.environ, user_agent="allot-apply", tries_max=TRIES_MAX
    )
    client = Client(transport, timeout=_REQUEST_TIMEOUT_S, on_warning=lambda warning: talk(f"warning: {warning}"))
    try:
        await client.discovery()
        applying = _Applying(client, settings)
        return [await applying.apply(value) for value in objects]
    except (Unreachable, Unauthorized) as error:
        raise NotReached(connection.server, error) from None
    except ApiError as error:
        raise Refused(f"API server {connection.server}: {error}") from None
    finally:
        await client.close()


class _Applying:
    """One run against one cluster."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._definitions = 0

    async def apply(self, value: dict[str, Any]) -> Applied:
        """One object; that the server refuses it is a result."""
        self._definitions += value["kind"] == "CustomResourceDefinition"
        try:
            resource = await self._resource(value)
            value = self._placed(value, resource)
            return _applied(value, await self._apply(value, resource))
        except UnknownResource as error:
            return _applied(value, "failed", str(error))
        except (Unreachable, Unauthorized):
            raise
        except Conflict as error:
            return _applied(value, "failed", f"{error.message} (--force-conflicts takes over the fields)")
        except ApiError as error:
            return _applied(value, "failed", error.message)

    async def _resource(self, value: dict[str, Any]) -> ResourceClient:
        waited = 0.0
        while True:
            try:
                return await self._client.of_kind(value["apiVersion"], value["kind"])
            except UnknownResource:
                # Its definition may have just been created and not be served yet.
                if not self._definitions or self._settings.dry_run or waited >= _DEFINITION_WAIT_S:
                    raise
            await asyncio.sleep(_DEFINITION_ASKED_EVERY_S)
            waited += _DEFINITION_ASKED_EVERY_S

    def _placed(self, value: dict[str, Any], resource: ResourceClient) -> dict[str, Any]:
        """The object with its namespace, if it is in one."""
        metadata = value["metadata"]
        if not resource.is_namespaced or metadata.get("namespace"):
            return value
        return {**value, "metadata": {**metadata, "namespace": self._settings.namespace}}

    async def _apply(self, value: dict[str, Any], resource: ResourceClient) -> str:
        metadata = value["metadata"]
        namespace = metadata["namespace"] if resource.is_namespaced else ""
        try:
            before = await resource.get(metadata["name"], namespace)
        except NotFound:
            before = None
        after = await resource.apply(
            value, FIELD_MANAGER, namespace, force=self._settings.force, dry_run=self._settings.dry_run
        )
        if before is None:
            return "created"
        return "unchanged" if _said(before) == _said(after) else "configured"


def _said(value: dict[str, Any]) -> dict[str, Any]:
    """The object without managedFields and other traces of writes."""
    metadata = {key: item for key, item in value["metadata"].items() if key not in ("managedFields", "resourceVersion")}
    return {**value, "metadata": metadata}
