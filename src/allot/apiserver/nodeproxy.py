"""What only the node of a pod can answer: logs, exec, attach, port-forward, and proxied requests.

Finds the kubelet's endpoint in the node's status and passes the request on. Decides who is asked and with which parameters;
moving the bytes is `tunnel`'s business.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from allot.apiserver.errors import StatusError, bad_request, not_found, path_not_found
from allot.apiserver.parts import Parts
from allot.apiserver.paths import Target

Object = dict[str, Any]
Query = Sequence[tuple[str, str]]

_ADDRESS_TYPES = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP", "ExternalDNS")
_LOG_OPTIONS = (
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
)
_STREAMS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_TRUE = ("", "1", "true", "True", "TRUE", "t")


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes. tls: without, it is plain HTTP (pods and services that are proxied to)."""

    host: str
    port: int
    path: str
    tls: bool = True


async def upstream(parts: Parts, found: Target, query: Query) -> Upstream | None:
    """Whom to ask; None if there is nobody yet and the answer is empty (logs of a pod without node)."""
    served = parts.registry.find(found.group, found.version, found.resource)
    if served is None or found.subresource not in served.resource.subresources:
        raise path_not_found()
    name, port = _name_and_port(found.name) if found.subresource == "proxy" else (found.name, "")
    entry = await parts.store.get(served.key(found.namespace, name))
    if entry is None:
        raise not_found(served.resource.group, served.resource.plural, name)
    object_ = entry.object
    if found.subresource == "proxy":
        return await _proxied(parts, found, object_, port, query)
    node = (object_.get("spec") or {}).get("nodeName")
    if not node:
        if found.subresource == "log":
            return None
        raise bad_request(f"pod {name} does not have a host assigned")
    host, number = await _kubelet(parts, node)
    return Upstream(host=host, port=number, path=_kubelet_path(found, object_, query))


def _name_and_port(name: str) -> tuple[str, str]:
    """`https:name:port`, `name:port` or `name`."""
    pieces = name.split(":")
    if len(pieces) == 3:
        return pieces[1], pieces[2]
    return pieces[0], pieces[1] if len(pieces) == 2 else ""


async def _kubelet(parts: Parts, node: str) -> tuple[str, int]:
    """Address and port of the kubelet; 503 if the node does not say."""
    nodes = parts.registry.find("", "v1", "nodes")
    assert nodes is not None, "nodes are served"
    entry = await parts.store.get(nodes.key("", node))
    if entry is None:
        raise not_found("", "nodes", node)
    status = entry.object.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    known = {each.get("type"): each.get("address") for each in status.get("addresses") or [] if isinstance(each, dict)}
    address = next((known[kind] for kind in _ADDRESS_TYPES if known.get(kind)), None)
    if not address or not isinstance(port, int) or not 0 < port < 65536:
        text = (
            f'node "{node}" has no endpoint to connect to: expected an address in status.addresses and a port in '
            "status.daemonEndpoints.kubeletEndpoint"
        )
        raise StatusError(503, "ServiceUnavailable", text)
    return str(address), port


def _kubelet_path(found: Target, pod: Object, query: Query) -> str:
    place = f"{quote(found.namespace)}/{quote(found.name)}"
    if found.subresource == "portforward":
        ports = [("port", value) for name, value in query if name in ("ports", "port")]
        return f"/portForward/{place}{_suffix(ports)}"
    container = _container(pod, next((value for name, value in query if name == "container"), ""))
    if found.subresource == "log":
        options = [(name, value) for name, value in query if name in _LOG_OPTIONS]
        return f"/containerLogs/{place}/{quote(container)}{_suffix(options)}"
    asked = [(_STREAMS[name], "1") for name, value in query if name in _STREAMS and value in _TRUE]
    asked += [("command", value) for name, value in query if name == "command"]
    return f"/{found.subresource}/{place}/{quote(container)}{_suffix(asked)}"


def _suffix(query: Query) -> str:
    return f"?{urlencode(query)}" if query else ""


def _container(pod: Object, asked: str) -> str:
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    every = [
        each["name"]
        for kind in ("initContainers", "containers", "ephemeralContainers")
        for each in spec.get(kind) or []
        if isinstance(each, dict) and isinstance(each.get("name"), str)
    ]
    if asked:
        if asked not in every:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    containers = spec.get("containers") or []
    if len(containers) == 1:
        return str(containers[0]["name"])
    raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(every)}]")


# --- proxied requests ---


async def _proxied(parts: Parts, found: Target, object_: Object, port: str, query: Query) -> Upstream:
    path = "/" + "/".join(quote(segment) for segment in found.rest) + _suffix(query)
    if found.resource == "nodes":
        host, number = await _kubelet(parts, object_["metadata"]["name"])
        return Upstream(host=host, port=number, path=path)
    if found.resource == "pods":
        address = (object_.get("status") or {}).get("podIP")
        number = int(port) if port.isdigit() else _first_port(object_)
        return Upstream(host=_allowed(address, object_), port=number, path=path, tls=found.name.startswith("https:"))
    address, number = await _endpoint(parts, object_, port)
    return Upstream(host=_allowed(address, object_), port=number, path=path, tls=found.name.startswith("https:"))


def _first_port(pod: Object) -> int:
    for container in (pod.get("spec") or {}).get("containers") or []:
        for port in container.get("ports") or []:
            if isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return 80


def _allowed(address: Any, object_: Object) -> str:
    """Requests are not passed on to this machine itself, as upstream."""
    try:
        parsed = ipaddress.ip_address(str(address or ""))
    except ValueError:
        text = f'no address to connect to for {object_["kind"]} "{object_["metadata"]["name"]}"'
        raise StatusError(503, "ServiceUnavailable", text) from None
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        raise bad_request("address not allowed")
    return str(address)


async def _endpoint(parts: Parts, service: Object, port: str) -> tuple[str, int]:
    slices = parts.registry.storage_row("discovery.k8s.io", "endpointslices")
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    page = await parts.store.list(slices.prefix(namespace)) if slices is not None else None
    for entry in page.entries if page is not None else ():
        object_ = entry.object
        if (object_["metadata"].get("labels") or {}).get("kubernetes.io/service-name") != name:
            continue
        ports = [
            each for each in object_.get("ports") or [] if not port or port in (each.get("name"), str(each.get("port")))
        ]
        ready = [
            each
            for each in object_.get("endpoints") or []
            if (each.get("conditions") or {}).get("ready") is not False and each.get("addresses")
        ]
        if ports and ready and isinstance(ports[0].get("port"), int):
            return str(ready[0]["addresses"][0]), int(ports[0]["port"])
    raise StatusError(503, "ServiceUnavailable", f'no endpoints available for service "{name}"')
