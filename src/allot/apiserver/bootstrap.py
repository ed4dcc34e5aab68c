"""What is there from the first start on: namespaces, default roles, priority classes, the service of the API itself.

Only what is missing is made; what an administrator has changed stays. Written through the server's own handlers, as the
server itself, so that these objects look like all others.
"""

from __future__ import annotations

import asyncio
from typing import Any

from allot.apiserver.access.default_policy import default_objects
from allot.apiserver.errors import StatusError
from allot.apiserver.metricsapis.answers import VERSIONS as METRICS_VERSIONS
from allot.apiserver.request import ApiRequest, User
from allot.apiserver.server import ApiServer
from allot.core.lifecycle.accounts import account_object, root_ca_object

Object = dict[str, Any]

# The server itself, as upstream's loopback client.
SYSTEM = User("system:apiserver", groups=("system:masters", "system:authenticated"))
_AGENT = "kube-apiserver"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
SERVICE_ADDRESS = "10.96.0.1"
SERVICE_RANGE = "10.96.0.0/12"
_RBAC = "rbac.authorization.k8s.io"
_REGISTRATION = "apiregistration.k8s.io"
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
    """Create an object unless it is there."""
    metadata = object_["metadata"]
    served = server.context.registry.find(group, version, plural)
    assert served is not None, f"{plural}.{group} is served"
    if await server.context.store.get(served.key(metadata.get("namespace", ""), metadata["name"])) is not None:
        return
    request = ApiRequest(
        user=SYSTEM,
        verb="create",
        group=group,
        version=version,
        resource=plural,
        namespace=metadata.get("namespace", ""),
        body=object_,
        user_agent=_AGENT,
    )
    try:
        await server.handle(request)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise


async def bootstrap(server: ApiServer, address: str, port: int) -> None:
    """Make what is missing."""
    for name in NAMESPACES:
        await ensure(server, "", "v1", "namespaces", _object("v1", "Namespace", name))
    async with asyncio.TaskGroup() as tasks:
        # Together, so that they share a commit.
        for plural, object_ in default_objects(server.context.gates):
            tasks.create_task(ensure(server, _RBAC, "v1", plural, object_))
        for name, (value, text) in _PRIORITIES.items():
            priority = _object("scheduling.k8s.io/v1", "PriorityClass", name) | {"value": value, "description": text}
            tasks.create_task(ensure(server, "scheduling.k8s.io", "v1", "priorityclasses", priority))
        cidr = _object("networking.k8s.io/v1", "ServiceCIDR", "kubernetes") | {"spec": {"cidrs": [SERVICE_RANGE]}}
        tasks.create_task(ensure(server, "networking.k8s.io", "v1", "servicecidrs", cidr))
        for group, versions in METRICS_VERSIONS.items():
            for version in versions:
                tasks.create_task(ensure(server, _REGISTRATION, "v1", "apiservices", _own_api(group, version)))
    await _own_service(server, address, port)


async def _own_service(server: ApiServer, address: str, port: int) -> None:
    service = _object("v1", "Service", "kubernetes", "default")
    service["metadata"]["labels"] = {"component": "apiserver", "provider": "kubernetes"}
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    service["spec"] = {"clusterIP": SERVICE_ADDRESS, "ports": ports, "type": "ClusterIP", "sessionAffinity": "None"}
    await ensure(server, "", "v1", "services", service)
    endpoints = _object("v1", "Endpoints", "kubernetes", "default")
    endpoints["metadata"]["labels"] = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    # Loopback addresses may not be endpoints.
    usable = not address.startswith("127.") and address not in ("::1", "0.0.0.0", "::")
    if usable:
        targets = [{"name": "https", "port": port, "protocol": "TCP"}]
        endpoints["subsets"] = [{"addresses": [{"ip": address}], "ports": targets}]
        await ensure(server, "", "v1", "endpoints", endpoints)
        slice_ = _object("discovery.k8s.io/v1", "EndpointSlice", "kubernetes", "default")
        slice_["metadata"]["labels"] = {"kubernetes.io/service-name": "kubernetes"}
        slice_ |= {
            "addressType": "IPv6" if ":" in address else "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": targets,
        }
        await ensure(server, "discovery.k8s.io", "v1", "endpointslices", slice_)


async def furnish_namespace(server: ApiServer, name: str, authority: str) -> None:
    """What every namespace has, at once and also without controllers: nobody can make a pod before it is there."""
    try:
        await ensure(server, "", "v1", "serviceaccounts", account_object(name))
        await ensure(server, "", "v1", "configmaps", root_ca_object(name, authority))
    except StatusError as error:
        # The namespace is being deleted, or is gone already.
        if error.code not in (403, 404):
            raise


def _own_api(group: str, version: str) -> Object:
    """A group that this server serves by itself; elsewhere it may be another server's."""
    service = _object(f"{_REGISTRATION}/v1", "APIService", f"{version}.{group}")
    service["spec"] = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
    local = {
        "type": "Available",
        "status": "True",
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    return {**service, "status": {"conditions": [local]}}


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> Object:
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
