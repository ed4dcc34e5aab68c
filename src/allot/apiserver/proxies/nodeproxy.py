"""Requests that only a pod's node can answer: logs, exec, attach, port-forward, and proxied requests.

Finds the kubelet's endpoint in the node's status, or the address of a pod. Decides the target and its parameters;
`dialing` checks addresses, `tunnel` moves the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote, urlencode

from allot.apiserver.errors import StatusError, bad_request, not_found, path_not_found
from allot.apiserver.proxies.dialing import Upstream
from allot.apiserver.server_context import ServerContext
from allot.apiserver.serving.paths import Target, split

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
_PORT_MAX = 65535
# Endpoints of a service that are checked per request.
_ENDPOINTS_MAX = 1000
_SCHEMES = ("", "http", "https")
_TRUE = ("", "1", "true", "True", "TRUE", "t")


async def upstream(context: ServerContext, found: Target, path: str, query: Query) -> Upstream | None:
    """The target; None if there is none yet and the answer is empty (logs of a pod without node)."""
    if found.subresource == "proxy":
        return await _proxied(context, found, path, query)
    pod = await _read(context, found.resource, found.namespace, found.name)
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        if found.subresource == "log":
            return None
        raise bad_request(f"pod {found.name} does not have a host assigned")
    host, number = await _kubelet(context, node)
    return Upstream(host=host, port=number, path=_kubelet_path(found, pod, query), kubelet=True, tls=True)


async def _read(context: ServerContext, plural: str, namespace: str, name: str) -> Object:
    served = context.registry.find("", "v1", plural)
    if served is None:
        raise path_not_found()
    entry = await context.store.get(served.key(namespace, name))
    if entry is None:
        raise not_found("", plural, name)
    return entry.object


async def _kubelet(context: ServerContext, node: str) -> tuple[str, int]:
    """Address and port of the kubelet; 503 if the node does not say."""
    return kubelet_of(await _read(context, "nodes", "", node))


def kubelet_of(node: Object) -> tuple[str, int]:
    """Address and port of a node's kubelet; 503 if the node does not say."""
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    known = {each.get("type"): each.get("address") for each in status.get("addresses") or [] if isinstance(each, dict)}
    address = next((known[kind] for kind in _ADDRESS_TYPES if known.get(kind)), None)
    if not address or not isinstance(port, int) or not 0 < port <= _PORT_MAX:
        text = (
            f'node "{node["metadata"]["name"]}" has no endpoint to connect to: expected an address in status.addresses and a port in '
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


async def _proxied(context: ServerContext, found: Target, path: str, query: Query) -> Upstream:
    """`name`, `name:port` or `scheme:name:port` of a node, pod or service."""
    scheme, name, port = _split(found)
    segments = split(path)
    led = "/" + "/".join(quote(segment, safe=":") for segment in segments[: len(segments) - len(found.rest)])
    inner = "/" + "/".join(quote(segment) for segment in found.rest)
    if found.rest and path.endswith("/"):
        inner += "/"
    tls, kubelet = scheme == "https", False
    if found.resource == "nodes":
        host, number = await _kubelet(context, name)
        # Other ports of a node are contacted without credentials.
        if not port or port == str(number):
            tls = kubelet = True
        else:
            number = _number(port)
    elif found.resource == "pods":
        pod = await _read(context, "pods", found.namespace, name)
        host = next(iter(_pod_addresses(pod)), "")
        number = _number(port) if port else _first_port(pod) or (443 if tls else 80)
    else:
        host, number = await _endpoint(context, found.namespace, name, port)
    if not host:
        raise bad_request(f'address not allowed: pod "{name}" has no address')
    return Upstream(host=host, port=number, path=inner + _suffix(query), kubelet=kubelet, tls=tls, prefix=led)


def _split(found: Target) -> tuple[str, str, str]:
    """Scheme, name and port, as upstream splits them."""
    pieces = found.name.split(":")
    if len(pieces) <= 3:
        scheme, name, port = pieces if len(pieces) == 3 else ("", *pieces, "")[:3]
        if name and scheme in _SCHEMES:
            return scheme, name, port
    raise bad_request(f'invalid {found.resource.removesuffix("s")} request "{found.name[:253]}"')


def _number(port: str) -> int:
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if not 0 < number <= _PORT_MAX:
        raise StatusError(
            503, "ServiceUnavailable", f"error trying to reach service: address {port[:63]}: invalid port"
        )
    return number


def _pod_addresses(pod: Object) -> list[str]:
    status = pod.get("status") or {}
    several = [each["ip"] for each in status.get("podIPs") or [] if isinstance(each, dict) and each.get("ip")]
    return several or [status["podIP"]] if status.get("podIP") or several else []


def _first_port(pod: Object) -> int:
    for container in (pod.get("spec") or {}).get("containers") or []:
        for port in container.get("ports") or []:
            if isinstance(port.get("containerPort"), int):
                return int(port["containerPort"])
    return 0


async def _endpoint(context: ServerContext, namespace: str, name: str, port: str) -> tuple[str, int]:
    """A ready endpoint of a service that really is a pod of the same namespace. Any other could come from any user who may write
    slices, and is not contacted in the server's name."""
    service = await _read(context, "services", namespace, name)
    if port.isascii() and port.isdigit():
        named = {each.get("port"): each.get("name") or "" for each in (service.get("spec") or {}).get("ports") or []}
        if len(port) > 5 or int(port) not in named:
            text = f'no service port {port[:20]} found for service "{name}"'
            raise StatusError(503, "ServiceUnavailable", text)
        port = named[int(port)]
    slices = context.registry.storage_row("discovery.k8s.io", "endpointslices")
    assert slices is not None, "slices are served"
    page = await context.store.list(slices.prefix(namespace))
    of_service = (
        entry.object
        for entry in page.entries
        if (entry.object["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == name
    )
    ready = (found for slice_ in of_service for found in _ready(slice_, port))
    for reference, address, number in islice(ready, _ENDPOINTS_MAX):
        if await _is_pod(context, namespace, reference, address):
            return address, number
    raise StatusError(503, "ServiceUnavailable", f'no endpoints available for service "{name}"')


def _ready(slice_: Object, port: str) -> Iterator[tuple[Object, str, int]]:
    """The targets and addresses of a slice's ready endpoints, and the named port."""
    number = next((each.get("port") for each in slice_.get("ports") or [] if (each.get("name") or "") == port), None)
    if isinstance(number, int):
        for endpoint in slice_.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("addresses"):
                yield endpoint.get("targetRef") or {}, str(endpoint["addresses"][0]), number


async def _is_pod(context: ServerContext, namespace: str, reference: Object, address: str) -> bool:
    if reference.get("namespace") != namespace or not reference.get("name"):
        return False
    try:
        pod = await _read(context, "pods", namespace, reference["name"])
    except StatusError:
        return False
    return address in _pod_addresses(pod)
