"""Subresources: parts of objects with their own verbs.

Those with the object's shape (status, ephemeralcontainers, resize, approval, finalize) are updates with a narrower effect;
binding, eviction, scale and token have small handlers. What needs a connection to a node (log, exec, attach,
portforward, proxy) is handled in the HTTP adapter.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.errors import bad_request, method_not_allowed, not_found, path_not_found
from allot.apiserver.handlers import bindings, evictions, lists, patches, scales, storing, writes
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext

Object = dict[str, Any]

CONNECTING = ("log", "exec", "attach", "portforward", "proxy")


async def handle(context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
    """The answer of a subresource."""
    resource = served.resource
    subresource = resource.subresources.get(request.subresource)
    if subresource is None:
        raise path_not_found()
    if request.verb not in subresource.verbs:
        raise method_not_allowed()
    match subresource.name:
        case "scale":
            return await scales.handle(context, served, request)
        case "binding":
            return await bindings.bind(context, served, request)
        case "eviction":
            return await evictions.evict(context, served, request)
        case "token":
            assert context.reviews is not None, "a server that serves accounts issues tokens"
            return await context.reviews.token(context, served, request)
        case name if name in CONNECTING:
            raise bad_request(f"{resource.plural}/{name} needs a connection to the node and is served over HTTP only")
    match request.verb:
        case "get":
            return await _get(context, served, request)
        case "update":
            return await writes.update(context, served, request, subresource.name)
        case "patch":
            return await patches.patch(context, served, request, subresource.name)
    raise method_not_allowed()


async def _get(context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
    resource = served.resource
    version = request.query.get("resourceVersion", "")
    if version not in ("", "0"):
        lists.parse_resource_version(version)
    entry = await context.store.get(served.key(request.namespace, request.name))
    if entry is None:
        raise not_found(resource.group, resource.plural, request.name)
    return await storing.shown(served, entry, 200)
