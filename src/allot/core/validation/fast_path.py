"""The fast path of validation.

Most writes in a busy cluster look alike: a claim gets an allocation of plain devices, a pod gets the names of its claims, an
object gets a finalizer. The functions here accept these as JSON, in a tenth of the time of decoding and validating. They
accept only known fields of the right types, in stored form, that would pass validation. A "no" only
means that full validation decides. They accept a subset of what validation accepts
(law in `tests/apiserver/kinds/test_fast_path.py`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from allot.core.memo import Memo
from allot.core.model.resource_v1 import ALLOCATION_RESULTS_MAX, RESERVED_FOR_MAX
from allot.core.validation import formats
from allot.core.validation.object_meta import (
    FIELD_MANAGER_LENGTH_MAX,
    SUBRESOURCE_LENGTH_MAX,
    NameFormat,
    check_annotations,
    check_finalizers,
    check_labels,
    check_qualified,
    masked_prefix,
)

Object = dict[str, Any]

_label = re.compile("[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?").fullmatch
_subdomain = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*").fullmatch
_time = re.compile(r"[12]\d{3}-(?:0[1-9]|1[012])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ").fullmatch


# --- metadata ---

_GIVEN_BY_SERVER = frozenset(("uid", "creationTimestamp", "resourceVersion"))
_KEPT = ("name", "namespace", "uid", "creationTimestamp", "generation")
# Metadata with more goes to full validation, which avoids comparing each with all others.
_FINALIZERS_MAX = 16
_CONDITIONS_MAX = 32
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


def accepts_metadata(metadata: Object, name_format: NameFormat = formats.dns_subdomain) -> bool:
    """Whether the metadata of a new namespaced object is valid."""
    if not _is_label(metadata.get("namespace")):
        return False
    for member, value in metadata.items():
        if member == "name":
            if type(value) is not str or not value or name_format(value):
                return False
        elif member == "generateName":
            if type(value) is not str or not value or name_format(masked_prefix(value)):
                return False
        elif member == "generation":
            if type(value) is not int or value < 0:
                return False
        elif member == "namespace" or member in _GIVEN_BY_SERVER:
            if type(value) is not str or not value:
                return False
        elif not _accepts_member(member, value):
            return False
    return "name" in metadata


def accepts_metadata_change(metadata: Object, old: Object, *, may_end: bool = False) -> bool:
    """Whether metadata that replaces stored metadata is valid. The server itself sets managedFields.

    may_end: also accept an object that is being deleted and gets no new finalizer.
    """
    version = metadata.get("resourceVersion")
    if type(version) is not str or not version:
        return False
    if not _accepts_end(metadata, old, may_end):
        return False
    for member in _KEPT:
        value, before = metadata.get(member), old.get(member)
        if value != before or type(value) is not type(before):
            return False
    for member, value in metadata.items():
        if value is None:
            return False
        if member == "resourceVersion" or member in _KEPT or member in _DELETION or value is old.get(member):
            continue
        if not _accepts_member(member, value):
            return False
    return True


def _accepts_end(metadata: Object, old: Object, may_end: bool) -> bool:
    """Whether the deletion fields are unchanged and an object that is being deleted gets no new finalizers."""
    is_ending = False
    for member in _DELETION:
        value, before = metadata.get(member), old.get(member)
        if value != before or type(value) is not type(before):
            return False
        is_ending = is_ending or before is not None
    if not is_ending:
        return True
    finalizers, held = metadata.get("finalizers", []), old.get("finalizers", [])
    # Objects on the fast path have few; a long list would take long to search.
    if not may_end or type(finalizers) is not list or len(held) > _FINALIZERS_MAX:
        return False
    return all(finalizer in held for finalizer in finalizers)


def _accepts_member(member: str, value: Any) -> bool:
    if not value:
        return False
    if member == "labels":
        return _is_valid(_valid_labels, value, lambda: not check_labels(value, ""))
    if member == "annotations":
        return _is_valid(_valid_annotations, value, lambda: not check_annotations(value, ""))
    if member == "finalizers":
        return _accepts_finalizers(value)
    if member == "ownerReferences":
        return _accepts_owners(value)
    return member == "managedFields" and accepts_managers(value)


_KNOWN_MAX = 1_000
_KNOWN_LENGTH_MAX = 2_000
_valid_labels: Memo[bytes, bool] = Memo(_KNOWN_MAX)
_valid_annotations: Memo[bytes, bool] = Memo(_KNOWN_MAX)
_valid_managers: Memo[tuple[str, str], bool] = Memo(_KNOWN_MAX)


def _is_valid(known: Memo[bytes, bool], value: Any, judged: Any) -> bool:
    """Whether a map of strings is valid; equal maps are validated once."""
    if type(value) is not dict:
        return False
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    if encoded in known:
        return True
    if any(type(name) is not str or type(text) is not str for name, text in value.items()) or not judged():
        return False
    if len(encoded) <= _KNOWN_LENGTH_MAX:
        known.remember(encoded, True)
    return True


def _accepts_finalizers(value: Any) -> bool:
    if type(value) is not list or any(type(each) is not str for each in value):
        return False
    # Caching long lists would let a client fill the memory.
    return len(value) <= _FINALIZERS_MAX and _are_valid_finalizers(tuple(value))


@lru_cache(maxsize=_KNOWN_MAX)
def _are_valid_finalizers(names: tuple[str, ...]) -> bool:
    return not check_finalizers(names, "") and not check_qualified(names, "")


_OWNER_TEXTS = ("apiVersion", "kind", "name", "uid")
_OWNER_FLAGS = frozenset(("controller", "blockOwnerDeletion"))


def _accepts_owners(value: Any) -> bool:
    if type(value) is not list:
        return False
    controllers = 0
    for owner in value:
        if type(owner) is not dict:
            return False
        for name in _OWNER_TEXTS:
            if type(owner.get(name)) is not str or not owner[name]:
                return False
        if len(owner) > len(_OWNER_TEXTS):
            for name, flag in owner.items():
                if name not in _OWNER_TEXTS and (name not in _OWNER_FLAGS or type(flag) is not bool):
                    return False
        group, _, version = owner["apiVersion"].rpartition("/")
        if not version or "/" in group or owner["kind"] == "Event":
            return False
        controllers += owner.get("controller") is True
    return controllers <= 1


def accepts_managers(value: Any) -> bool:
    """Whether managedFields, as computed by the server, have valid manager names."""
    if type(value) is not list:
        return False
    for entry in value:
        # The server never produces entries with invalid fields.
        if type(entry) is not dict or entry.get("operation") not in ("Apply", "Update"):
            return False
        if entry.get("fieldsType") != "FieldsV1":
            return False
        key = entry.get("manager", ""), entry.get("subresource", "")
        if key in _valid_managers:
            continue
        manager, subresource = key
        if type(manager) is not str or type(subresource) is not str or not manager.isprintable():
            return False
        if len(manager.encode()) > FIELD_MANAGER_LENGTH_MAX or len(subresource.encode()) > SUBRESOURCE_LENGTH_MAX:
            return False
        _valid_managers.remember(key, True)
    return True


def _is_same(value: Any, before: Any) -> bool:
    if value is before:
        return True
    try:
        # Equality is not enough: 1, 1.0 and true are equal.
        return bool(value == before) and msgspec.json.encode(value) == msgspec.json.encode(before)
    except (TypeError, ValueError):
        return False


def _is_label(value: Any) -> bool:
    return type(value) is str and _label(value) is not None


def _is_subdomain(value: Any, length_max: int = formats.SUBDOMAIN_LENGTH_MAX) -> bool:
    return type(value) is str and len(value) <= length_max and _subdomain(value) is not None


# --- status of claims ---

_STATUS = frozenset(("allocation", "reservedFor"))
_ALLOCATION = frozenset(("devices", "nodeSelector", "allocationTimestamp"))
_RESULT = frozenset(("request", "driver", "pool", "device"))
_CONSUMER = frozenset(("resource", "name", "uid"))


def accepts_claim_status(status: Any, old: Any, spec: Any) -> bool:
    """Whether a claim's status holds only plain devices and consumers, and is a valid successor of the old one."""
    if type(status) is not dict or not status or not status.keys() <= _STATUS or type(old) is not dict:
        return False
    if not old.keys() <= _STATUS:
        return False
    allocation = status.get("allocation")
    before = old.get("allocation")
    if before is not None:
        # Consumers come and go; an identical allocation need not be understood.
        if not _is_same(allocation, before):
            return False
    elif not _accepts_allocation(allocation, spec):
        return False
    return "reservedFor" not in status or _accepts_consumers(status["reservedFor"])


def _accepts_allocation(allocation: Any, spec: Any) -> bool:
    if type(allocation) is not dict or not allocation.keys() <= _ALLOCATION:
        return False
    devices = allocation.get("devices")
    if type(devices) is not dict or len(devices) != 1:
        return False
    results = devices.get("results")
    if type(results) is not list or not 0 < len(results) <= ALLOCATION_RESULTS_MAX:
        return False
    names = _request_names(spec)
    for result in results:
        if type(result) is not dict or result.keys() != _RESULT or result["request"] not in names:
            return False
        if not _is_label(result["device"]) or not _is_subdomain(result["pool"]):
            return False
        if not _is_subdomain(result["driver"], formats.DRIVER_NAME_LENGTH_MAX):
            return False
    if "nodeSelector" in allocation and not _is_one_node(allocation["nodeSelector"]):
        return False
    time = allocation.get("allocationTimestamp", "2000-01-01T00:00:00Z")
    return type(time) is str and _time(time) is not None


def _request_names(spec: Any) -> list[str]:
    """The request names that results of a stored claim may use."""
    names = []
    for request in (spec.get("devices") or {}).get("requests") or ():
        if "exactly" in request:
            names.append(request["name"])
        for subrequest in request.get("firstAvailable") or ():
            names.append(f"{request['name']}/{subrequest['name']}")
    return names


def _is_one_node(selector: Any) -> bool:
    """Whether a selector has one term with one field, the name of a node."""
    for name in ("nodeSelectorTerms", "matchFields"):
        items = selector.get(name) if type(selector) is dict and len(selector) == 1 else None
        if type(items) is not list or len(items) != 1:
            return False
        selector = items[0]
    if type(selector) is not dict or len(selector) != 3:
        return False
    values = selector.get("values")
    if selector.get("key") != "metadata.name" or selector.get("operator") != "In" or type(values) is not list:
        return False
    return len(values) == 1 and _is_subdomain(values[0])


def _accepts_consumers(consumers: Any) -> bool:
    if type(consumers) is not list or not 0 < len(consumers) <= RESERVED_FOR_MAX:
        return False
    uids = set()
    for consumer in consumers:
        if type(consumer) is not dict or consumer.keys() != _CONSUMER:
            return False
        for text in consumer.values():
            if type(text) is not str or not text:
                return False
        uids.add(consumer["uid"])
    return len(uids) == len(consumers)


# --- status of pods ---

_CLAIM_STATUS = frozenset(("name", "resourceClaimName"))
_EXTENDED = frozenset(("requestMappings", "resourceClaimName"))
_MAPPING = frozenset(("containerName", "resourceName", "requestName"))
_CONTAINER_STATUSES = frozenset(("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"))
_CONDITION_TEXTS = frozenset(("type", "status", "reason", "message"))
_CONDITION_TIMES = frozenset(("lastProbeTime", "lastTransitionTime"))
_STATUS_TEXTS = frozenset(("message", "reason", "nominatedNodeName"))


def accepts_pod_status(status: Any, old: Any, spec: Any) -> bool:
    """Whether a pod's status differs from the old one only in the names of its claims, conditions and a few
    valid texts."""
    if type(status) is not dict or type(old) is not dict or not status.get("qosClass"):
        return False
    for name, value in status.items():
        if name in old and _is_same(value, old[name]):
            continue
        if name == "resourceClaimStatuses":
            if "nodeAllocatableResourceClaimStatuses" in status or not _accepts_claims(value, spec):
                return False
        elif name == "extendedResourceClaimStatus":
            # Containers may report the health of devices from these claims.
            if name in old or not status.keys().isdisjoint(_CONTAINER_STATUSES) or not _accepts_extended(value, spec):
                return False
        elif name == "conditions":
            if not _accepts_conditions(value, old.get(name)):
                return False
        elif name not in _STATUS_TEXTS or type(value) is not str or not value:
            return False
    # Removals without a replacement have their own rules.
    return all(name in status or name in _STATUS_TEXTS for name in old)


def _accepts_claims(statuses: Any, spec: Any) -> bool:
    if type(statuses) is not list or not statuses:
        return False
    known = {claim["name"] for claim in spec.get("resourceClaims") or ()}
    for each in statuses:
        if type(each) is not dict or each.keys() != _CLAIM_STATUS:
            return False
        if type(each["name"]) is not str or each["name"] not in known or not _is_subdomain(each["resourceClaimName"]):
            return False
        known.remove(each["name"])
    return True


def _accepts_extended(value: Any, spec: Any) -> bool:
    """Whether the extended resource claim is valid for containers that request such resources."""
    if type(value) is not dict or value.keys() != _EXTENDED or not _is_subdomain(value["resourceClaimName"]):
        return False
    mappings = value["requestMappings"]
    if type(mappings) is not list or not mappings:
        return False
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    requests = {each["name"]: (each.get("resources") or {}).get("requests") or {} for each in containers}
    seen = set()
    for mapping in mappings:
        if type(mapping) is not dict or mapping.keys() != _MAPPING:
            return False
        container, resource, request = mapping["containerName"], mapping["resourceName"], mapping["requestName"]
        if type(container) is not str or type(resource) is not str or not _is_label(request):
            return False
        if resource not in requests.get(container, ()):
            return False
        seen.add((container, resource, request))
    return len(seen) == len(mappings)


def _accepts_conditions(conditions: Any, old: Any) -> bool:
    if type(conditions) is not list or not 0 < len(conditions) <= _CONDITIONS_MAX:
        return False
    for condition in conditions:
        if type(condition) is not dict:
            return False
        if type(old) is list and any(_is_same(condition, before) for before in old):
            continue
        if not condition.get("type") or not condition.get("status"):
            return False
        for name, value in condition.items():
            if name == "observedGeneration":
                if type(value) is not int or not 0 < value < 2**63:
                    return False
            elif type(value) is not str or not value:
                return False
            elif name in _CONDITION_TIMES:
                if _time(value) is None:
                    return False
            elif name not in _CONDITION_TEXTS:
                return False
    return True
