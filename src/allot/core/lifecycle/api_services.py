"""APIServices: who serves a group and version, this server or one behind a Service, and whether that one is available.

Decides what is registered for this server's own groups, what can be said about an extension API server without asking it, and
the order of groups in discovery. All texts are upstream's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.json_objects import mapping
from allot.core.network.routes import Endpoint, endpoints_of
from allot.core.validation.fields import quote

Object = Mapping[str, Any]

GROUP = "apiregistration.k8s.io"
# Who keeps a registration: the server at its start, or all the time.
MANAGED = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"
AVAILABLE = "Available"
_PORT = 443

# The place of built-in groups in discovery, and of their versions where these are not the usual ones.
_GROUP_PRIORITIES = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "admissionregistration.k8s.io": 16700,
    "apiextensions.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "internal.apiserver.k8s.io": 16000,
    "storagemigration.k8s.io": 15800,
    "lifecycle.k8s.io": 15700,
}
_VERSION_PRIORITIES = {
    ("", "v1"): 1,
    ("admissionregistration.k8s.io", "v1beta1"): 12,
    ("admissionregistration.k8s.io", "v1alpha1"): 9,
    ("autoscaling", "v2"): 30,
    ("coordination.k8s.io", "v1beta1"): 13,
    ("coordination.k8s.io", "v1alpha2"): 12,
    ("discovery.k8s.io", "v1beta1"): 12,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("internal.apiserver.k8s.io", "v1alpha1"): 9,
    ("resource.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1beta2"): 15,
    ("scheduling.k8s.io", "v1alpha3"): 3,
}
_STAGE_PRIORITIES = (("alpha", 1), ("beta", 9))
_STABLE_PRIORITY = 15
# Custom resources come after everything built in; the group of APIServices itself is always first.
_CUSTOM_PRIORITIES = (1000, 100)
_FIRST = 20_001


class Priority(msgspec.Struct, frozen=True):
    """The place of a group among groups, and of a version in it: higher ones first."""

    group: int
    version: int


def builtin_priority(group: str, version: str) -> Priority | None:
    """The place of a built-in group and version; None for others."""
    if group == GROUP:
        return Priority(_FIRST, _STABLE_PRIORITY)
    if group not in _GROUP_PRIORITIES:
        return None
    by_stage = next((each for stage, each in _STAGE_PRIORITIES if stage in version), _STABLE_PRIORITY)
    return Priority(_GROUP_PRIORITIES[group], _VERSION_PRIORITIES.get((group, version), by_stage))


def group_priority(group: str) -> int:
    """The place of a group that this server serves itself."""
    return _FIRST if group == GROUP else _GROUP_PRIORITIES.get(group, _CUSTOM_PRIORITIES[0])


# --- what is registered ---


def local_api_service(group: str, version: str, managed: str = "", priority: Priority | None = None) -> dict[str, Any]:
    """The registration of a group and version that this server serves."""
    priority = priority or Priority(*_CUSTOM_PRIORITIES)
    metadata: dict[str, Any] = {"name": name_of(group, version)}
    if managed:
        metadata["labels"] = {MANAGED: managed}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "APIService",
        "metadata": metadata,
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": priority.group,
            "versionPriority": priority.version,
        },
    }


def name_of(group: str, version: str) -> str:
    """The name of the only APIService for a group and version."""
    return f"{version}.{group}"


class Registering(msgspec.Struct, frozen=True):
    """What to do about one registration. verb: create, update or delete."""

    verb: str
    object: dict[str, Any]


def registering(
    desired: Object | None, current: Object | None, *, was_there_at_start: bool, is_synced: bool
) -> Registering | None:
    """What brings the current registration to the desired one, by upstream's table: what others have registered stays, and what
    is managed at the start is touched once. is_synced: whether that has happened."""
    if desired is None and current is None:
        return None
    if desired is not None and _managed(desired) == ON_START and is_synced:
        return None
    if current is None:
        assert desired is not None, "one of the two is there"
        return Registering("create", dict(desired))
    how = _managed(current)
    if how not in (ON_START, ALWAYS) or (how == ON_START and (is_synced or not was_there_at_start)):
        return None
    if desired is None:
        return Registering("delete", dict(current))
    if current.get("spec") == desired["spec"]:
        return None
    return Registering("update", {**current, "spec": desired["spec"]})


def _managed(api_service: Object) -> str:
    found = mapping(mapping(api_service.get("metadata")).get("labels")).get(MANAGED)
    return found if isinstance(found, str) else ""


def served_versions(definition: Object) -> list[tuple[str, str]]:
    """The groups and versions that a CustomResourceDefinition asks to be served."""
    spec = mapping(definition.get("spec"))
    versions = [mapping(each) for each in spec.get("versions") or ()]
    return [(str(spec.get("group")), str(each.get("name"))) for each in versions if each.get("served") is True]


# --- where an extension API server is ---


class ServiceReference(msgspec.Struct, frozen=True):
    """The Service of an extension API server."""

    namespace: str
    name: str
    port: int = _PORT

    @property
    def host(self) -> str:
        """The name that the server's certificate must have."""
        return f"{self.name}.{self.namespace}.svc"


def is_local(api_service: Object) -> bool:
    """Whether this server serves it."""
    return not isinstance(mapping(api_service.get("spec")).get("service"), dict)


def service_of(api_service: Object) -> ServiceReference | None:
    """The Service behind which the server is; None for a local one."""
    found = mapping(api_service.get("spec")).get("service")
    if not isinstance(found, dict):
        return None
    port = found.get("port")
    return ServiceReference(
        str(found.get("namespace") or ""),
        str(found.get("name") or ""),
        port if isinstance(port, int) else _PORT,
    )


class NoEndpoint(Exception):
    """A Service does not lead to any server; the text says why."""


def service_endpoints(
    reference: ServiceReference, service: Object | None, slices: Iterable[Object]
) -> Sequence[Endpoint]:
    """Where a server may be asked; NoEndpoint if nowhere. slices: those of the Service."""
    if service is None:
        raise NoEndpoint(f"service {quote(reference.name)} not found")
    spec = mapping(service.get("spec"))
    if spec.get("type") == "ExternalName":
        return (Endpoint(address=str(spec.get("externalName") or ""), port=reference.port),)
    port = _port_of(service, reference.port)
    if port is None:
        raise NoEndpoint(f"no service port {reference.port} found for service {quote(reference.name)}")
    found = endpoints_of(slices, port)
    if not found:
        raise NoEndpoint(f"no endpoints available for service {quote(reference.name)}")
    return found


def _port_of(service: Object, number: int) -> str | None:
    """The name of a Service's port; None if it has none with that number."""
    ports = (mapping(each) for each in mapping(service.get("spec")).get("ports") or ())
    return next((str(each.get("name") or "") for each in ports if each.get("port") == number), None)


# --- whether it is available ---


def _condition(status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": AVAILABLE, "status": status, "reason": reason, "message": message}


LOCAL: Object = _condition("True", "Local", "Local APIServices are always available")
# Ours: upstream passes requests for built-in groups on, too.
BUILT_IN: Object = _condition(
    "False", "BuiltIn", "the group is built in, and this server serves it whatever the Service"
)
PASSED: Object = _condition("True", "Passed", "all checks passed")


def failed_check(why: str) -> Object:
    """The server does not answer as it should."""
    return _condition("False", "FailedDiscoveryCheck", why)


def unreachable(reference: ServiceReference, service: Object | None, slices: Sequence[Object]) -> Object | None:
    """Why a server is not available, as far as its Service tells; None if it has to be asked. slices: those of the Service."""
    place = f"service/{reference.name} in {quote(reference.namespace)}"
    if service is None:
        return _condition("False", "ServiceNotFound", f"{place} is not present")
    if mapping(service.get("spec")).get("type", "ClusterIP") != "ClusterIP":
        return None
    port = _port_of(service, reference.port)
    if port is None:
        return _condition("False", "ServicePortError", f"{place} is not listening on port {reference.port}")
    if not slices:
        return _condition("False", "EndpointsNotFound", f"cannot find endpointslices for {place}")
    if not any(_has_endpoint(each, port) for each in slices):
        text = f"endpointslices for {place} have no addresses with port name {quote(port)}"
        return _condition("False", "MissingEndpoints", text)
    return None


def _has_endpoint(slice_: Object, port: str) -> bool:
    endpoints = (mapping(each) for each in slice_.get("endpoints") or ())
    if not any(mapping(each.get("conditions")).get("ready") is not False for each in endpoints):
        return False
    ports = (mapping(each) for each in slice_.get("ports") or ())
    return any((each.get("name") or "") == port and each.get("port") is not None for each in ports)


def availability(api_service: Object) -> Object | None:
    """The condition that tells whether it is available."""
    conditions = mapping(api_service.get("status")).get("conditions") or ()
    return next((each for each in map(mapping, conditions) if each.get("type") == AVAILABLE), None)


def is_available(api_service: Object) -> bool:
    """Whether its condition says so."""
    found = availability(api_service)
    return found is not None and found.get("status") == "True"
