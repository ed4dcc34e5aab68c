"""All objects of a live cluster, of every kind: each resource once, in the server's preferred version."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from allot.client.api import Client
from allot.client.connection import Connection
from allot.client.discovery import ApiResource, Discovery
from allot.client.errors import ApiError, Forbidden, MethodNotAllowed, NotFound, Unauthorized, Unreachable
from allot.client.http import HttpTransport
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.reading.errors import Denied, NotReached
from allot.reading.listener import Listener
from allot.reading.live import TRIES_MAX

_LISTS_AT_ONCE = 4
# Served in two groups, with the same objects.
_SERVED_TWICE = (("events.k8s.io", "Event"),)


async def fetch_every_kind(connection: Connection, listener: Listener, namespace: str = "") -> list[dict[str, Any]]:
    """Every object, or those of a namespace. Denied if nothing may be listed, NotReached."""
    transport = HttpTransport(
        connection, SystemClock(), SystemIds(), environ=os.environ, user_agent="allot-export", tries_max=TRIES_MAX
    )
    client = Client(transport)
    try:
        discovery = await client.discovery()
        resources = listable(discovery, namespaced_only=bool(namespace))
        for missing in discovery.missing:
            listener.note(f"left out, as its server is away: {missing}")
        return await _read(client, resources, listener, namespace)
    except (Unreachable, Unauthorized) as error:
        raise NotReached(connection.server, error) from None
    except ApiError as error:
        raise Denied(f"API server {connection.server}: {error}") from None
    finally:
        await client.close()


def listable(discovery: Discovery, *, namespaced_only: bool = False) -> list[ApiResource]:
    """Each resource that can be listed, in its preferred version, which comes first."""
    found: dict[tuple[str, str], ApiResource] = {}
    for each in discovery.resources:
        if (
            "list" in each.verbs
            and (each.namespaced or not namespaced_only)
            and (each.group, each.kind) not in _SERVED_TWICE
        ):
            found.setdefault((each.group, each.plural), each)
    return list(found.values())


async def _read(
    client: Client, resources: list[ApiResource], listener: Listener, namespace: str
) -> list[dict[str, Any]]:
    turns = asyncio.Semaphore(_LISTS_AT_ONCE)
    hidden: list[str] = []
    with listener.progress("reading the cluster", len(resources)) as advance:

        async def read(each: ApiResource) -> list[dict[str, Any]] | ApiError:
            async with turns:
                try:
                    head = {"apiVersion": each.api_version, "kind": each.kind}
                    items = (await client.discovered(each).list(namespace)).items
                    return [{**head, **item} for item in items]
                except (NotFound, MethodNotAllowed):
                    # Removed since, or a kind that cannot be listed.
                    return []
                except Forbidden:
                    hidden.append(each.plural)
                    return []
                except ApiError as error:
                    return error
                finally:
                    advance()

        # A failure does not cancel the others: their connections would be left half open.
        lists = await asyncio.gather(*(read(each) for each in resources))
    for found in lists:
        if isinstance(found, ApiError):
            raise found
    if hidden and len(hidden) == len(resources):
        raise Denied("nothing may be listed", "name a namespace with -n, or get permission to list")
    if hidden:
        listener.note(f"left out, as they may not be listed: {', '.join(sorted(hidden))}")
    return [item for found in lists if not isinstance(found, ApiError) for item in found]
