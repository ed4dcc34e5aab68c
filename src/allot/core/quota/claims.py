"""What a resource claim uses: the devices that it may get, by device class and by the extended resources of the class.

Only the spec counts; what was allocated does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.quantity import Quantity
from allot.core.quota.amounts import Amounts
from allot.core.quota.pods import IMPLICIT_PREFIX, ONE, REQUESTS_PREFIX, is_extended_quota_name, pod_usage

Object = Mapping[str, Any]

CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"
PER_CLASS_SUFFIX = ".deviceclass.resource.k8s.io/devices"
EXTENDED_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
# The devices that a request for all of them may get at most.
ALL_DEVICES = 32


class DeviceClasses(msgspec.Struct, frozen=True):
    """Device classes and their extended resource names, both ways."""

    extended_of: Mapping[str, str] = {}
    class_of: Mapping[str, str] = {}


def device_classes(objects: Iterable[Object]) -> DeviceClasses:
    """From DeviceClass objects. Of two classes with one name the newer has it, of equally old ones the smaller name."""
    extended: dict[str, str] = {}
    owner: dict[str, str] = {}
    # Sorted so that the one to prefer comes last.
    ordered = sorted(objects, key=_class_name, reverse=True)
    for object_ in sorted(ordered, key=lambda one: str(_at(one, "metadata", "creationTimestamp") or "")):
        name = _class_name(object_)
        explicit = _at(object_, "spec", "extendedResourceName")
        extended[name] = explicit if isinstance(explicit, str) else ""
        if extended[name]:
            owner[extended[name]] = name
    return DeviceClasses(extended, owner)


def _class_name(object_: Object) -> str:
    return str(_at(object_, "metadata", "name"))


def _at(value: Any, *names: str) -> Any:
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def matching_claim_names(names: Iterable[str], classes: DeviceClasses) -> list[str]:
    """The quota's names that make it apply to claims."""
    return [name for name in names if _is_claim_name(name, classes)]


def _is_claim_name(name: str, classes: DeviceClasses) -> bool:
    if name == CLAIM_COUNT or name.endswith(PER_CLASS_SUFFIX):
        return True
    if not is_extended_quota_name(name):
        return False
    resource = name.removeprefix(REQUESTS_PREFIX)
    if resource.startswith(IMPLICIT_PREFIX):
        return resource.removeprefix(IMPLICIT_PREFIX) in classes.extended_of
    return resource in classes.class_of


def claim_usage(claim: Object, classes: DeviceClasses, pod: Object | None, now: str) -> Amounts:
    """What a claim is charged with. pod: the one whose extended resources the claim is for (see `charged_pod`)."""
    devices: dict[str, int] = {}
    for request in _objects(_at(claim, "spec", "devices", "requests")):
        for name, count in _devices(request).items():
            devices[name] = devices.get(name, 0) + count
    usage: Amounts = {CLAIM_COUNT: ONE}
    extended: dict[str, int] = {}
    for name, count in devices.items():
        usage[name + PER_CLASS_SUFFIX] = Quantity.from_int(count)
        extended[REQUESTS_PREFIX + IMPLICIT_PREFIX + name] = count
        explicit = classes.extended_of.get(name)
        if explicit:
            extended[REQUESTS_PREFIX + explicit] = count
    paid = pod_usage(pod, now) if pod is not None else {}
    for name, count in extended.items():
        rest = Quantity.from_int(count).sub(paid.get(name, Quantity.ZERO))
        if rest.sign() > 0:
            usage[name] = rest
    return usage


def _devices(request: Object) -> dict[str, int]:
    """The devices of one request by class: of alternatives the most that any of them takes of a class."""
    alternatives = _objects(request.get("firstAvailable"))
    if not alternatives:
        exactly = request.get("exactly")
        return {_class_of(exactly): _count(exactly)} if isinstance(exactly, dict) else {}
    most: dict[str, int] = {}
    for alternative in alternatives:
        name, count = _class_of(alternative), _count(alternative)
        if count > most.get(name, 0):
            most[name] = count
    return most


def _class_of(request: Object) -> str:
    return str(request.get("deviceClassName") or "")


def _count(request: Object) -> int:
    match request.get("allocationMode"):
        case "ExactCount":
            count = request.get("count")
            return count if isinstance(count, int) else 0
        case "All":
            return ALL_DEVICES
        case _:
            return 0


def _objects(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def owning_pod_name(claim: Object) -> str:
    """The pod for whose extended resources a claim says to be; empty if for none."""
    if _at(claim, "metadata", "annotations", EXTENDED_CLAIM_ANNOTATION) != "true":
        return ""
    owner = _controller(claim)
    if owner.get("kind") != "Pod" or owner.get("apiVersion") != "v1":
        return ""
    return str(owner.get("name") or "")


def _controller(claim: Object) -> Object:
    owners = _objects(_at(claim, "metadata", "ownerReferences"))
    return next((owner for owner in owners if owner.get("controller") is True), {})


def charged_pod(claim: Object, pod: Object | None, claims: Sequence[Object]) -> Object | None:
    """The pod if it has already paid for what the claim wants: it is the owner and the claim is its claim."""
    if pod is None or _controller(claim).get("uid") != _at(pod, "metadata", "uid"):
        return None
    name = _at(claim, "metadata", "name") or ""
    recorded = _at(pod, "status", "extendedResourceClaimStatus")
    if isinstance(recorded, dict):
        return pod if recorded.get("resourceClaimName") == name else None
    mine = (str(_at(claim, "metadata", "creationTimestamp") or "\uffff"), name)
    for other in claims:
        if _controller(other).get("uid") != _at(pod, "metadata", "uid") or not owning_pod_name(other):
            continue
        if (str(_at(other, "metadata", "creationTimestamp") or ""), _at(other, "metadata", "name") or "") < mine:
            return None
    return pod
