"""The API server without HTTP: a request value in, an object, a list or a watch out.

Both transports use `handle`: authorization first, then the verb's handler. What the server creates itself
(bootstrap) uses it too. `non_resource_endpoints` does the same for paths outside the API.
"""

from __future__ import annotations

from typing import Any, Protocol, overload

import msgspec

from allot.apiserver.aggregation.extension_server import ExtensionWatch
from allot.apiserver.errors import (
    bad_request,
    method_not_allowed,
    not_found,
    path_not_found,
    unavailable,
)
from allot.apiserver.handlers import deletes, lists, patches, storing, subresources, watch, writes
from allot.apiserver.objects.options import list_options
from allot.apiserver.objects.selection import selection
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiConnection, ApiList, ApiObject, ApiRequest
from allot.apiserver.server_context import Components, ServerContext
from allot.store.port import StoreUnavailable

Object = dict[str, Any]
# Verbs that need a name; a watch may have one.
_NAMING = ("get", "update", "patch", "delete")
Answer = ApiObject | ApiList | watch.ObjectWatch | ExtensionWatch


class Wire(Protocol):
    """What a transport with a connection does for a request once it is authorized, not before."""

    async def receive(self) -> bytes:
        """The body."""

    async def connect(self, request: ApiRequest) -> ApiConnection:
        """Connect the client to the node that answers it (log, exec, proxy)."""

    async def forward(self, request: ApiRequest) -> ApiConnection:
        """Pass the client's request on to the extension API server that answers it."""


class ApiServer:
    """Handles requests with the given context."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context

    @overload
    async def handle(self, request: ApiRequest) -> Answer: ...

    @overload
    async def handle(self, request: ApiRequest, wire: Wire) -> Answer | ApiConnection: ...

    async def handle(self, request: ApiRequest, wire: Wire | None = None) -> Answer | ApiConnection:
        """The answer to a request; StatusError for every other outcome. wire: where the body of the request comes from,
        if it is not in the request."""
        self.context.authorizer.check(request.attributes())
        extensions = self.context.extensions
        extension = extensions.find(request.group, request.version) if extensions is not None else None
        if extension is not None:
            return await (wire.forward(request) if wire is not None else extension.answer(request))
        unstored = self.context.unstored
        is_unstored = unstored is not None and unstored.handles(request.group)
        if wire is not None:
            if request.subresource in subresources.CONNECTING and not is_unstored:
                return await wire.connect(request)
            body = await wire.receive()
            if body:
                request = msgspec.structs.replace(request, body=body)
        if unstored is not None and is_unstored:
            return await unstored.answer(request)
        return await self._answer(request)

    async def _answer(self, request: ApiRequest) -> Answer:
        served = self.context.registry.find(request.group, request.version, request.resource)
        if served is None:
            raise path_not_found()
        resource = served.resource
        if request.namespace and not resource.namespaced and resource.plural != "namespaces":
            raise path_not_found()
        try:
            if request.subresource:
                return await subresources.handle(self.context, served, request)
            if request.verb not in resource.verbs or _misnamed(request):
                raise method_not_allowed()
            return await self._object(served, request)
        except StoreUnavailable as error:
            raise unavailable(str(error)) from error

    async def _object(self, served: Served, request: ApiRequest) -> Answer:
        context = self.context
        match request.verb:
            case "get":
                return await self._get(served, request)
            case "list":
                return await self._list(served, request)
            case "watch":
                return await self._watch(served, request)
            case "create":
                if served.resource.namespaced and not request.namespace:
                    raise bad_request("an empty namespace may not be set during creation")
                if not served.resource.stored:
                    assert context.reviews is not None, "a server that serves reviews answers them"
                    return await context.reviews.answer(context, served, request)
                return await writes.create(context, served, request)
            case "update":
                return await writes.update(context, served, request)
            case "patch":
                return await patches.patch(context, served, request)
            case "delete":
                return await deletes.delete(context, served, request)
            case "deletecollection":
                return await deletes.delete_collection(context, served, request)
        raise method_not_allowed()

    async def _get(self, served: Served, request: ApiRequest) -> ApiObject:
        resource = served.resource
        if not resource.stored:
            return await self._components.get(request)
        version = request.query.get("resourceVersion", "")
        if version not in ("", "0"):
            lists.parse_resource_version(version)
        entry = await self.context.store.get(served.key(request.namespace, request.name))
        if entry is None:
            raise not_found(resource.group, resource.plural, request.name)
        # Inlined: reads of one object cost little else.
        return storing.answer(served, entry, 200) if served.beside is None else await storing.shown(served, entry, 200)

    @property
    def _components(self) -> Components:
        components = self.context.components
        assert components is not None, "a server that serves component statuses answers them"
        return components

    async def _list(self, served: Served, request: ApiRequest) -> ApiList:
        if not served.resource.stored:
            return await self._components.list(served, request)
        options = list_options(request.query, watch=False)
        chosen = selection(served.resource, options.label_selector, options.field_selector)
        return await lists.list_objects(self.context.store, served, request.namespace, options, chosen)

    async def _watch(self, served: Served, request: ApiRequest) -> watch.ObjectWatch:
        options = list_options(request.query, watch=True)
        chosen = selection(served.resource, options.label_selector, options.field_selector, request.name)
        context = self.context
        return await watch.open_watch(
            context.store, served, request.namespace, options, chosen, clock=context.clock, ids=context.ids
        )


def _misnamed(request: ApiRequest) -> bool:
    """Whether a request for one object lacks a name, or one for many has one."""
    if request.verb == "watch":
        return False
    return bool(request.name) != (request.verb in _NAMING)
