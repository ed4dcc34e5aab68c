"""What any object uses, and which quotas apply to it.

Pods, resource claims, services and volume claims have resources of their own; everything else is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.json_objects import mapping
from allot.core.quantity import Quantity
from allot.core.quota import claims, pods
from allot.core.quota.amounts import Amounts, parse_amount, parse_amounts
from allot.core.quota.pods import ONE

Object = Mapping[str, Any]

PODS = ("", "pods")
CLAIMS = ("resource.k8s.io", "resourceclaims")
SERVICES = ("", "services")
VOLUME_CLAIMS = ("", "persistentvolumeclaims")

# Objects that come and go without anyone's doing, and such that are never stored.
IGNORED = frozenset(
    (
        ("", "bindings"),
        ("", "events"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("events.k8s.io", "events"),
    )
)
# Names from before there was count/.
_ALIASES = {
    ("", "configmaps"): "configmaps",
    ("", "resourcequotas"): "resourcequotas",
    ("", "replicationcontrollers"): "replicationcontrollers",
    ("", "secrets"): "secrets",
}
_SERVICE_NAMES = frozenset(("count/services", "services", "services.nodeports", "services.loadbalancers"))
_STORAGE_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
_VOLUME_CLAIM_NAMES = ("persistentvolumeclaims", "requests.storage")
_VOLUME_CLAIM_COUNT = "count/persistentvolumeclaims"


class QuotaContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the usage of an object depends on besides the object. pods and claims: for claims of extended resources."""

    now: str
    classes: claims.DeviceClasses = claims.DeviceClasses()
    pods: Mapping[str, Object] = {}
    claims: Sequence[Object] = ()


def object_count(kind: tuple[str, str]) -> str:
    """The name under which objects of a kind are counted."""
    group, plural = kind
    return f"count/{plural}.{group}" if group else f"count/{plural}"


def concerns(kind: tuple[str, str], subresource: str, operation: str, new: Object | None, old: Object | None) -> bool:
    """Whether a request can change what is used."""
    if kind in IGNORED or operation not in ("CREATE", "UPDATE"):
        return False
    updating = operation == "UPDATE"
    if kind == PODS:
        if subresource == "resize":
            return updating
        moved = updating and pods.is_terminating(new or {}) != pods.is_terminating(old or {})
        return not subresource and (not updating or moved)
    if kind == VOLUME_CLAIMS and subresource == "status":
        return updating
    return not subresource and (not updating or kind in (CLAIMS, SERVICES, VOLUME_CLAIMS))


def matching_names(kind: tuple[str, str], names: Iterable[str], classes: claims.DeviceClasses) -> list[str]:
    """The names of a quota that make it apply to objects of a kind."""
    if kind == PODS:
        return pods.matching_pod_names(names)
    if kind == CLAIMS:
        return claims.matching_claim_names(names, classes)
    if kind == SERVICES:
        return [name for name in names if name in _SERVICE_NAMES]
    if kind == VOLUME_CLAIMS:
        return [name for name in names if _is_volume_claim_name(name)]
    own = (object_count(kind), _ALIASES.get(kind))
    return [name for name in names if name in own]


def _is_volume_claim_name(name: str) -> bool:
    if name == _VOLUME_CLAIM_COUNT or name in _VOLUME_CLAIM_NAMES:
        return True
    return name.endswith(tuple(_STORAGE_CLASS_SUFFIX + one for one in _VOLUME_CLAIM_NAMES))


def in_scope(kind: tuple[str, str], quota_spec: Object, object_: Object) -> bool:
    """Whether an object is in all scopes of a quota; objects without scopes are in none."""
    requirements = pods.scope_requirements(quota_spec)
    if kind == PODS:
        return all(pods.pod_matches_scope(requirement, object_) for requirement in requirements)
    if kind == VOLUME_CLAIMS:
        return all(_volume_claim_in_scope(requirement, object_) for requirement in requirements)
    return not requirements


def _volume_claim_in_scope(requirement: Object, object_: Object) -> bool:
    """The one scope of volume claims: the attributes class that they have or want."""
    if requirement.get("scopeName") != "VolumeAttributesClass":
        return False
    spec, status = mapping(object_.get("spec")), mapping(object_.get("status"))
    named = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"))
    wanted = mapping(status.get("modifyVolumeStatus")).get("targetVolumeAttributesClassName")
    names = [name for name in (*named, wanted) if name]
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return any(name in values for name in names)
        case "NotIn":
            return not names or any(name not in values for name in names)
        case _:
            return False


def usage_of(kind: tuple[str, str], object_: Object, around: QuotaContext) -> Amounts:
    """What an object is charged with."""
    if kind == PODS:
        return pods.pod_usage(object_, around.now)
    if kind == CLAIMS:
        owner = around.pods.get(claims.owning_pod_name(object_))
        pod = claims.charged_pod(object_, owner, around.claims)
        return claims.claim_usage(object_, around.classes, pod, around.now)
    if kind == SERVICES:
        return _service_usage(object_)
    if kind == VOLUME_CLAIMS:
        return _volume_claim_usage(object_)
    usage: Amounts = {object_count(kind): ONE}
    alias = _ALIASES.get(kind)
    if alias is not None:
        usage[alias] = ONE
    return usage


def _service_usage(service: Object) -> Amounts:
    spec = mapping(service.get("spec"))
    ports = [port for port in spec.get("ports") or () if isinstance(port, dict)]
    kind = spec.get("type")
    node_ports = 0
    if kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False):
        node_ports = len(ports)
    elif kind == "LoadBalancer":
        node_ports = sum(1 for port in ports if port.get("nodePort"))
    return {
        "count/services": ONE,
        "services": ONE,
        "services.loadbalancers": ONE if kind == "LoadBalancer" else Quantity.ZERO,
        "services.nodeports": Quantity.from_int(node_ports),
    }


def _volume_claim_usage(claim: Object) -> Amounts:
    spec = mapping(claim.get("spec"))
    usage: Amounts = {_VOLUME_CLAIM_COUNT: ONE, "persistentvolumeclaims": ONE}
    beta = mapping(mapping(claim.get("metadata")).get("annotations")).get("volume.beta.kubernetes.io/storage-class")
    storage_class = beta or spec.get("storageClassName") or ""
    storage = parse_amount(mapping(mapping(spec.get("resources")).get("requests")).get("storage"))
    if storage is not None:
        got = parse_amounts(mapping(claim.get("status")).get("allocatedResources")).get("storage")
        storage = got if got is not None and got > storage else storage
        # Bytes are whole.
        usage["requests.storage"] = (
            storage if storage.is_integer() else Quantity.from_int(storage.value(), storage.format)
        )
    if storage_class:
        for name in _VOLUME_CLAIM_NAMES:
            if name in usage:
                usage[f"{storage_class}{_STORAGE_CLASS_SUFFIX}{name}"] = usage[name]
    return usage
