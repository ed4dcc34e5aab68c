"""Clients of an API server in the same process, each with its own user and permissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.apiserver.assembly import Running
from allot.apiserver.errors import StatusError
from allot.apiserver.request import ApiRequest, PathRequest, User
from allot.apiserver.serving.negotiation import JSON
from allot.client.api import Client
from allot.client.inprocess import Answer, InProcessTransport, PlainRequest


def client_of(running: Running, user: User, user_agent: str = "allot") -> Client:
    """A client that acts as the user. user_agent: the component's default name in managedFields."""
    return Client(transport_of(running, user, user_agent))


def transport_of(running: Running, user: User, user_agent: str = "allot") -> InProcessTransport:
    """The transport of such a client."""
    server, endpoints = running.server, running.endpoints

    async def handle(request: PlainRequest) -> Answer:
        return await server.handle(
            ApiRequest(
                user=user,
                verb=request.verb,
                group=request.group,
                version=request.version,
                resource=request.resource,
                namespace=request.namespace,
                name=request.name,
                subresource=request.subresource,
                query=request.query,
                body=request.body,
                content_type=request.content_type,
                user_agent=request.user_agent,
            )
        )

    async def handle_path(path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        segments = tuple(part for part in path.split("/") if part)
        accept = headers.get("Accept", "")
        try:
            answer = await endpoints.handle(PathRequest(user=user, verb="get", segments=segments, accept=accept))
        except StatusError as error:
            return error.code, error.status()
        if answer.body is None:
            return answer.status, answer.value
        return answer.status, msgspec.json.decode(answer.body) if answer.media_type == JSON else answer.body

    return InProcessTransport(handle, StatusError, handle_path=handle_path, user_agent=user_agent)
