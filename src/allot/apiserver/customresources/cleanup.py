"""Deletes the objects of a deleted definition like a client would, including admission."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from allot.apiserver.handlers.deletes import delete_collection
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiRequest, User
from allot.apiserver.server_context import ServerContext

_SERVER = User("system:apiserver", groups=("system:masters",))


def delete_all_objects(context: ServerContext) -> Callable[[Served], Awaitable[None]]:
    """A function that deletes every object of a row; those with finalizers are marked."""

    async def delete_all(served: Served) -> None:
        resource = served.resource
        request = ApiRequest(
            user=_SERVER,
            verb="deletecollection",
            group=resource.group,
            version=resource.version,
            resource=resource.plural,
        )
        await delete_collection(context, served, request)

    return delete_all
