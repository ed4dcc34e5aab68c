"""Admission of connections to nodes, pods and services: CONNECT, with the options of the request as its object.

Admission may refuse exec, attach, port-forward and proxied requests, or change their options.
It does not see logs, which are reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Operation
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.apiserver.serving.paths import Target, split

Object = dict[str, Any]
Query = Sequence[tuple[str, str]]

_SWITCHES = ("stdin", "stdout", "stderr", "tty")
_FALSE = ("0", "f", "false", "False", "FALSE")


async def admit_connection(
    context: ServerContext, served: Served, request: ApiRequest, found: Target, path: str, query: Query
) -> tuple[Target, Query]:
    """The request as admitted; StatusError if it is refused. path: that of the original request."""
    subresource = served.resource.subresources[found.subresource]
    if not subresource.kind:
        return found, query
    options = {"kind": subresource.kind, "apiVersion": "v1", **_options(found, path, query)}
    admitted, _ = await context.admission.admit(request, Operation.CONNECT, served.resource, options, None)
    if admitted is None or admitted == options:
        return found, query
    if found.subresource == "proxy":
        return msgspec.structs.replace(found, rest=split(str(admitted.get("path") or ""))), query
    return found, _query(admitted)


def _options(found: Target, path: str, query: Query) -> Object:
    """The query as the fields of the options' kind."""
    if found.subresource == "proxy":
        inner = "".join(f"/{segment}" for segment in found.rest) + ("/" if path.endswith("/") else "")
        return {"path": inner} if inner else {}
    if found.subresource == "portforward":
        ports = [int(value) for name, value in query if name == "ports" and value.isascii() and value.isdigit()]
        return {"ports": ports} if ports else {}
    given = dict(reversed(query))
    options: Object = {name: True for name in _SWITCHES if name in given and given[name] not in _FALSE}
    if given.get("container"):
        options["container"] = given["container"]
    command = [value for name, value in query if name == "command"]
    return {**options, "command": command} if command else options


def _query(options: Object) -> Query:
    """The fields as a query again."""
    found = [(name, "true") for name in _SWITCHES if options.get(name) is True]
    if isinstance(options.get("container"), str):
        found.append(("container", options["container"]))
    for name, key in (("command", "command"), ("ports", "ports")):
        values = options.get(key)
        found += [(name, str(value)) for value in values] if isinstance(values, list) else []
    return found
