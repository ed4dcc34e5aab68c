"""Mirrors manually written Endpoints of a Service without a selector to EndpointSlices, which all readers use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from allot.core.lifecycle.actions import WARNING, Action, Create, Delete, Emit, Update
from allot.core.workloads.endpoint_slices import MANAGED_BY, SERVICE_NAME, SLICES
from allot.core.workloads.legacy_endpoints import is_lock
from allot.core.workloads.service_endpoints import TRIGGER_TIME, Object, family_of

JSON = Mapping[str, Any]

MIRROR = "endpointslicemirroring-controller.k8s.io"
ADDRESSES_MAX = 1000
_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_NOT_COPIED = (TRIGGER_TIME, "kubectl.kubernetes.io/last-applied-configuration")


def is_mirrored(endpoints: JSON | None, service: JSON | None) -> bool:
    """Whether to mirror Endpoints: not those of a controller, nor those that opt out."""
    if endpoints is None or service is None or (service.get("spec") or {}).get("selector"):
        return False
    return (endpoints["metadata"].get("labels") or {}).get(_SKIP) != "true" and not is_lock(endpoints)


def reconcile_mirror(endpoints: JSON | None, service: JSON | None, slices: Iterable[Object]) -> tuple[Action, ...]:
    """Make this controller's slices match the Endpoints, one slice per list of ports and address family."""
    present = sorted(slices, key=lambda slice_: str(slice_["metadata"]["name"]))
    if not is_mirrored(endpoints, service):
        return tuple(_delete(slice_) for slice_ in present)
    assert endpoints is not None
    wanted, invalid, skipped = _wanted(endpoints)
    actions: list[Action] = []
    # A slice keeps its family; everything else may change.
    for slice_ in present:
        fitting = next((one for one in wanted if one["addressType"] == slice_["addressType"]), None)
        if fitting is None or slice_["metadata"].get("deletionTimestamp"):
            actions.append(_delete(slice_))
            continue
        exact = next((one for one in wanted if _same_ports(one, slice_)), fitting)
        wanted = [one for one in wanted if one is not exact]
        changed = {**slice_, **exact, "metadata": {**slice_["metadata"], **exact["metadata"]}}
        changed["metadata"].pop("generateName", None)
        if "generateName" in slice_["metadata"]:
            changed["metadata"]["generateName"] = slice_["metadata"]["generateName"]
        if changed != slice_:
            actions.append(Update(resource=SLICES, object=changed))
    if not endpoints["metadata"].get("deletionTimestamp"):
        namespace = endpoints["metadata"]["namespace"]
        actions = [Create(resource=SLICES, object=one, namespace=namespace) for one in wanted] + actions
    if actions:
        actions += _warnings(endpoints, invalid, skipped)
    return tuple(actions)


def _same_ports(one: JSON, other: JSON) -> bool:
    return (one["addressType"], one["ports"]) == (other["addressType"], other.get("ports") or [])


def _wanted(endpoints: JSON) -> tuple[list[Object], int, int]:
    """The slices, how many addresses are invalid, and how many exceed the limit."""
    groups: dict[tuple[str, str], Object] = {}
    invalid = skipped = 0
    for subset in endpoints.get("subsets") or ():
        ports = [
            {"name": port.get("name", ""), **port, "protocol": port.get("protocol", "TCP")}
            for port in subset.get("ports") or ()
        ]
        added = 0
        for is_ready, kind in ((True, "addresses"), (False, "notReadyAddresses")):
            for address in subset.get(kind) or ():
                family = family_of(address["ip"])
                if not family:
                    invalid += 1
                elif added == ADDRESSES_MAX:
                    skipped += 1
                else:
                    added += 1
                    slice_ = groups.setdefault((family, repr(ports)), _new_slice(endpoints, family, ports))
                    slice_["endpoints"].append(_endpoint(address, is_ready=is_ready))
    return [groups[key] for key in sorted(groups)], invalid, skipped


def _endpoint(address: JSON, *, is_ready: bool) -> Object:
    made: Object = {"addresses": [str(ip_address(address["ip"]))], "conditions": {"ready": is_ready}}
    return made | {name: address[name] for name in ("hostname", "targetRef", "nodeName") if address.get(name)}


def _new_slice(endpoints: JSON, family: str, ports: list[Object]) -> Object:
    metadata = endpoints["metadata"]
    annotations = metadata.get("annotations") or {}
    owner = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made: Object = {
        "generateName": f"{metadata['name']}-",
        "namespace": metadata["namespace"],
        "labels": {**(metadata.get("labels") or {}), SERVICE_NAME: metadata["name"], MANAGED_BY: MIRROR},
        "ownerReferences": [owner],
    }
    copied = {key: value for key, value in annotations.items() if key not in _NOT_COPIED}
    if copied:
        made["annotations"] = copied
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": made,
        "addressType": family,
        "endpoints": [],
        "ports": ports,
    }


def _delete(slice_: JSON) -> Delete:
    metadata = slice_["metadata"]
    return Delete(resource=SLICES, name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])


def _warnings(endpoints: JSON, invalid: int, skipped: int) -> list[Action]:
    notes = []
    if invalid:
        notes.append(("InvalidIPAddress", f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"))
    if skipped:
        text = (
            f"A max of {ADDRESSES_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. "
            f"{skipped + invalid} addresses were skipped"
        )
        notes.append(("TooManyAddressesToMirror", text))
    return [
        Emit(regarding=endpoints, type=WARNING, reason=reason, action="Mirror", note=note) for reason, note in notes
    ]
