"""Bootstrap objects: namespaces, default roles, priority classes, the Service of the API itself.

Missing ones are created; an administrator's changes stay, except that at every start default roles and bindings get
what this version adds (`core.access.reconciling`): a store may come from an older version or have had fewer feature
gates. Written through the server's own handlers, as the server itself, so that these objects look like all others.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from allot.apiserver.access.default_policy import default_objects
from allot.apiserver.errors import StatusError, conflict
from allot.apiserver.handlers.storing import MODIFIED, owned, store_new
from allot.apiserver.metricsapis.answers import VERSIONS as METRICS_VERSIONS
from allot.apiserver.nonresource.health import StartHooks
from allot.apiserver.objects.objectmeta import new_object
from allot.apiserver.request import ApiRequest, User
from allot.apiserver.server import ApiServer
from allot.core.access.reconciling import is_protected, reconciled
from allot.core.lifecycle.api_services import GROUP as REGISTRATION
from allot.core.lifecycle.api_services import Priority, local_api_service
from allot.store.port import KeyNotFound, RevisionConflict

Object = dict[str, Any]

# The server itself, as upstream's loopback client.
SYSTEM = User("system:apiserver", groups=("system:masters", "system:authenticated"))
_AGENT = "kube-apiserver"
_log = logging.getLogger("allot.apiserver")
_ATTEMPTS = 5
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SERVICE_ADDRESS = "10.96.0.1"
SERVICE_RANGE = "10.96.0.0/12"
_RBAC = "rbac.authorization.k8s.io"
_METRICS_PRIORITY = Priority(100, 100)
_PRIORITIES = {
    "system-node-critical": (
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    "system-cluster-critical": (
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
}


async def ensure(server: ApiServer, group: str, version: str, plural: str, object_: Object) -> None:
    """Create an object unless it exists."""
    if await _stored(server, group, version, plural, object_) is None:
        await _create(server, group, version, plural, object_)


async def _stored(server: ApiServer, group: str, version: str, plural: str, object_: Object) -> Object | None:
    served = server.context.registry.find(group, version, plural)
    assert served is not None, f"{plural}.{group} is served"
    metadata = object_["metadata"]
    entry = await server.context.store.get(served.key(metadata.get("namespace", ""), metadata["name"]))
    return entry.object if entry is not None else None


async def _create(server: ApiServer, group: str, version: str, plural: str, object_: Object) -> None:
    """Create an object; another server may be faster."""
    try:
        await server.handle(_request("create", group, version, plural, object_))
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise


def _request(verb: str, group: str, version: str, plural: str, object_: Object, subresource: str = "") -> ApiRequest:
    metadata = object_["metadata"]
    return ApiRequest(
        user=SYSTEM,
        verb=verb,
        group=group,
        version=version,
        resource=plural,
        namespace=metadata.get("namespace", ""),
        name="" if verb == "create" else metadata["name"],
        subresource=subresource,
        body=object_ if verb != "delete" else {"preconditions": {"uid": metadata["uid"]}},
        user_agent=_AGENT,
    )


async def try_to_write(
    server: ApiServer, verb: str, group: str, plural: str, object_: Object, subresource: str = ""
) -> bool:
    """Create, update or delete an object of version v1 as the server itself; returns False if another writer was faster."""
    try:
        await server.handle(_request(verb, group, "v1", plural, object_, subresource))
    except StatusError as error:
        if error.code not in (404, 409):
            raise
        return False
    return True


async def _ensure_policy(server: ApiServer, plural: str, expected: Object) -> None:
    """A default role or binding as in this version, plus an administrator's additions. Several servers may start on
    one store: the loser of a race checks again."""
    for _ in range(_ATTEMPTS):
        existing = await _stored(server, _RBAC, "v1", plural, expected)
        if existing is None:
            await _create(server, _RBAC, "v1", plural, expected)
            return
        wanted = reconciled(existing, expected)
        if wanted is existing:
            return
        name = existing["metadata"]["name"]
        if is_protected(existing):
            _log.warning("%s %s lacks what this version gives it, and its annotation forbids adding it", plural, name)
            return
        try:
            if wanted is None:
                await server.handle(_request("delete", _RBAC, "v1", plural, existing))
                continue
            await server.handle(_request("update", _RBAC, "v1", plural, wanted))
        except StatusError as error:
            if error.code not in (404, 409):
                raise
            continue
        _log.info("%s %s got the additions of this version", plural, name)
        return
    raise conflict(_RBAC, plural, expected["metadata"]["name"], MODIFIED)


async def bootstrap(server: ApiServer, address: str, port: int, hooks: StartHooks) -> None:
    """Create what is missing, and update default roles. hooks: told what is done."""
    for name in NAMESPACES:
        await ensure(server, "", "v1", "namespaces", _object("v1", "Namespace", name))
    hooks.finish("start-system-namespaces-controller")
    async with asyncio.TaskGroup() as tasks:
        # Together, so that they share a commit.
        for plural, object_ in default_objects(server.context.gates):
            tasks.create_task(_ensure_policy(server, plural, object_))
        for name, (value, text) in _PRIORITIES.items():
            priority = _object("scheduling.k8s.io/v1", "PriorityClass", name) | {"value": value, "description": text}
            tasks.create_task(ensure(server, "scheduling.k8s.io", "v1", "priorityclasses", priority))
        cidr = _object("networking.k8s.io/v1", "ServiceCIDR", "kubernetes") | {"spec": {"cidrs": [SERVICE_RANGE]}}
        tasks.create_task(ensure(server, "networking.k8s.io", "v1", "servicecidrs", cidr))
        for group, versions in METRICS_VERSIONS.items():
            for version in versions:
                # Not managed: an adapter of one's own may take its place.
                own = local_api_service(group, version, priority=_METRICS_PRIORITY)
                tasks.create_task(ensure(server, REGISTRATION, "v1", "apiservices", own))
    hooks.finish("rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes")
    await _own_service(server, address, port)
    hooks.finish("bootstrap-controller")


async def _own_service(server: ApiServer, address: str, port: int) -> None:
    service = _object("v1", "Service", "kubernetes", "default")
    service["metadata"]["labels"] = {"component": "apiserver", "provider": "kubernetes"}
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    service["spec"] = {"clusterIP": SERVICE_ADDRESS, "ports": ports, "type": "ClusterIP", "sessionAffinity": "None"}
    await ensure(server, "", "v1", "services", service)
    await _own_endpoints(server, address, port)


async def _own_endpoints(server: ApiServer, address: str, port: int) -> None:
    """The endpoints of the Service. Bypasses validation, which forbids loopback addresses to everyone else: a server for one
    machine has no other."""
    address = _reachable(address)
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    endpoints = _object("v1", "Endpoints", "kubernetes", "default")
    endpoints["metadata"]["labels"] = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    endpoints["subsets"] = [{"addresses": [{"ip": address}], "ports": ports}]
    slice_ = _object("discovery.k8s.io/v1", "EndpointSlice", "kubernetes", "default")
    slice_["metadata"] |= {"generation": 1, "labels": {"kubernetes.io/service-name": "kubernetes"}}
    slice_ |= {
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": ports,
    }
    await _put(server, "", "endpoints", endpoints)
    await _put(server, "discovery.k8s.io", "endpointslices", slice_)


async def _put(server: ApiServer, group: str, plural: str, object_: Object) -> None:
    """Store an object as it is, replacing an existing one."""
    context = server.context
    served = context.registry.find(group, "v1", plural)
    assert served is not None, f"{plural}.{group} is served"
    key = served.key(object_["metadata"]["namespace"], object_["metadata"]["name"])
    for _ in range(_ATTEMPTS):
        entry = await context.store.get(key)
        try:
            if entry is None:
                made = new_object(object_, context.clock, context.ids)
                await store_new(context, served, made, dry_run=False, is_named=True)
            elif any(entry.object.get(name) != value for name, value in object_.items() if name != "metadata"):
                changed = {**object_, "metadata": entry.object["metadata"]}
                await context.store.update(key, owned(changed), entry.revision)
        except (RevisionConflict, KeyNotFound):
            continue
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            continue
        return


def _reachable(address: str) -> str:
    """The address itself, or the machine's if the server listens on all addresses. Nothing is sent."""
    if address not in ("0.0.0.0", "::", "localhost"):
        return address
    if address == "localhost":
        return "127.0.0.1"
    family, elsewhere, loopback = (
        (socket.AF_INET, "192.0.2.1", "127.0.0.1") if address == "0.0.0.0" else (socket.AF_INET6, "2001:db8::1", "::1")
    )
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return loopback


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Object:
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
