"""Whether an extension API server is available: its Service is complete, and the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from allot.apiserver.aggregation.extension_server import ExtensionServer, Unavailable
from allot.apiserver.errors import StatusError
from allot.apiserver.request import User
from allot.core.lifecycle.api_services import PASSED, NoEndpoint, failed_check, unreachable
from allot.core.network.routes import Endpoint

# A member of this group may always see what a server must serve.
_CHECKER = User("system:kube-aggregator", groups=("system:masters",))
_ATTEMPTS_MAX = 5
_ATTEMPT_S = 5.0


async def checked(server: ExtensionServer) -> Mapping[str, Any]:
    """The condition that says whether it is available. One endpoint that answers is enough."""
    service, slices = await server.service()
    known = unreachable(server.reference, service, slices)
    if known is not None:
        return known
    try:
        endpoints = await server.endpoints()
    except NoEndpoint as error:
        return failed_check(str(error))
    why = ""
    attempts = [asyncio.ensure_future(_failure(server, each)) for each in endpoints[:_ATTEMPTS_MAX]]
    try:
        for attempt in asyncio.as_completed(attempts):
            why = await attempt
            if not why:
                return PASSED
    finally:
        for each in attempts:
            each.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
    return failed_check(why)


async def _failure(server: ExtensionServer, endpoint: Endpoint) -> str:
    """Why the server does not tell its resources; empty if it does."""
    try:
        to = server.at(endpoint, server.path, _CHECKER)
    except Unavailable as error:
        return str(error)
    url = f"https://{to.place}{server.path}"
    try:
        async with asyncio.timeout(_ATTEMPT_S), server.asked(to, headers=(("Accept", "application/json"),)) as answer:
            status = answer.status
    except TimeoutError:
        why = f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    except StatusError as error:
        why = f'Get "{url}": {error.message}'
    else:
        if 200 <= status < 300:
            return ""
        why = f"bad status from {url}: {status}"
    return f"failing or missing response from {url}: {why}"
