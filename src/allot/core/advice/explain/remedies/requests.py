"""Changes to what a claim asks for: fewer devices, fewer constraints, less of a capacity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from allot.core.advice.explain.devices import Tally, Wanted, device_id, expected_drivers
from allot.core.advice.explain.diagnosis import Candidate, ClaimPlace, Rank, patch_of, pointer, request_path
from allot.core.advice.explain.wording import count
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.explain import DeviceReason, Obstacle
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity

# A whole number, in nano units.
_WHOLE = 10**9
ADMIN_ACCESS = "adminAccess: true"
_STANDARD = "resource.kubernetes.io/"
_PCIE_ROOT = re.compile(r"/pcie(?:Root|Switch)\w*$", re.IGNORECASE)
_NUMA = re.compile(r"/numa(?:Node)?\w*$", re.IGNORECASE)
_DEFAULT = re.compile(r"have (?P<name>\S+) .* \(its default\)$")


def lower_count(place: ClaimPlace, wanted: Wanted, numbers: Iterable[int]) -> Iterator[Candidate]:
    """Fewer devices."""
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/count"
    for number in sorted({each for each in numbers if 0 < each < wanted.leaf.count}, reverse=True):
        what = f"ask for {count(number, 'device')} instead of {wanted.leaf.count}"
        yield Candidate(
            rank=rank_of_less(number, wanted.leaf.count),
            text=f"{what} in request {wanted.leaf.full_name} of {place.spoken}",
            patches=(place.patch({"op": "replace", "path": path, "value": number}),),
        )


def rank_of_less(offered: int, asked: int) -> int:
    """Asking for somewhat less is a small change; for less than half is not."""
    return Rank.FEWER if 2 * offered >= asked else Rank.DROP


def not_all(place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """A number of devices instead of all."""
    free = wanted.found.most_free()[1]
    if not free:
        return
    path = request_path(wanted.claim.spec, wanted.leaf.full_name)
    patch = place.patch(
        {"op": "replace", "path": f"{path}/allocationMode", "value": api.EXACT_COUNT},
        {"op": "add", "path": f"{path}/count", "value": free},
    )
    text = f"ask for {count(free, 'device')} instead of all in request {wanted.leaf.full_name} of {place.spoken}"
    yield Candidate(rank=Rank.DROP, text=text, patches=(patch,))


def with_admin_access(what_if: WhatIfCluster, place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """Access to devices that others use, for which their namespace must be labelled."""
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/adminAccess"
    patches = [place.patch({"op": "add", "path": path, "value": True})]
    text = f"set {ADMIN_ACCESS} in request {wanted.leaf.full_name} of {place.spoken}, so that the pod only watches the devices"
    namespace = what_if.get(core_v1.Namespace, place.namespace)
    labels = namespace.metadata.labels if namespace is not None else {}
    if namespace is not None and labels.get(api.ADMIN_ACCESS_LABEL) != "true":
        operation = {"op": "add", "path": "/metadata/labels", "value": {**labels, api.ADMIN_ACCESS_LABEL: "true"}}
        patches.insert(0, patch_of("Namespace", place.namespace, operation))
        text += f"; namespace {place.namespace} needs label {api.ADMIN_ACCESS_LABEL}=true for that"
    yield Candidate(rank=Rank.FIX, text=text, patches=tuple(patches))


def fewer_constraints(place: ClaimPlace, claim: api.ResourceClaim) -> Iterator[Candidate]:
    """Without one of the constraints."""
    found = claim.spec.devices.constraints
    for index, constraint in enumerate(found):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        word = "matchAttribute" if constraint.match_attribute is not None else "distinctAttribute"
        path = "/devices/constraints" if len(found) == 1 else f"/devices/constraints/{index}"
        yield Candidate(
            rank=Rank.DROP,
            text=f"drop constraint {word} {attribute} from {place.spoken}",
            patches=(place.patch({"op": "remove", "path": path}, *_underived(claim, attribute or "", found)),),
        )


def other_attribute(
    what_if: WhatIfCluster, place: ClaimPlace, claim: api.ResourceClaim, classes: Sequence[api.DeviceClass | None]
) -> Iterator[Candidate]:
    """A constraint on another attribute, which the devices of all classes have. classes: of the requests of the claim."""
    shared = _shared_attributes(what_if, classes)
    for index, constraint in enumerate(claim.spec.devices.constraints):
        old = constraint.match_attribute
        for attribute in shared if old is not None and old not in shared else ():
            yield Candidate(
                rank=Rank.RELAX,
                text=f"match {attribute}, which the devices of all requests have, instead of {old} in {place.spoken}",
                patches=(
                    place.patch(
                        {"op": "replace", "path": f"/devices/constraints/{index}/matchAttribute", "value": attribute}
                    ),
                ),
            )


def wider_attribute(
    what_if: WhatIfCluster, place: ClaimPlace, claim: api.ResourceClaim, classes: Sequence[api.DeviceClass | None]
) -> Iterator[Candidate]:
    """Devices of one NUMA node instead of one PCIe root, if all have that attribute: less near, but not anywhere."""
    shared = [name for name in _shared_attributes(what_if, classes) if _NUMA.search(name)]
    for index, constraint in enumerate(claim.spec.devices.constraints):
        old = constraint.match_attribute
        for attribute in shared[:1] if old is not None and _PCIE_ROOT.search(old) else ():
            path = f"/devices/constraints/{index}/matchAttribute"
            yield Candidate(
                # Others, who could leave, come first; dropping the constraint comes after.
                rank=Rank.DROP - 1,
                text=f"match {attribute} instead of {old} in {place.spoken}, if devices of one NUMA node are near enough",
                patches=(place.patch({"op": "replace", "path": path, "value": attribute}),),
            )


def _shared_attributes(what_if: WhatIfCluster, classes: Sequence[api.DeviceClass | None]) -> list[str]:
    """Attributes that some device of each class' drivers has; those that Kubernetes defines first."""
    found: set[str] | None = None
    for class_ in classes:
        drivers = expected_drivers(class_)
        there = {
            name
            for slice_ in what_if.all(api.ResourceSlice)
            if not drivers or slice_.spec.driver in drivers
            for device in (slice_.spec.devices or ())[:1]
            for name in device.attributes
            if "/" in name
        }
        found = there if found is None else found & there
    return sorted(found or (), key=lambda name: (not name.startswith(_STANDARD), name))


def _underived(
    claim: api.ResourceClaim, attribute: str, constraints: Sequence[api.DeviceConstraint]
) -> Iterator[dict[str, Any]]:
    """Drop a derived attribute together with the only constraint that needs it."""
    if sum(attribute in (each.match_attribute, each.distinct_attribute) for each in constraints) > 1:
        return
    for request in claim.spec.devices.requests:
        subs = [(f"{request.name}/{each.name}", each) for each in request.first_available]
        for name, leaf in [(request.name, request.exactly)] if request.exactly is not None else subs:
            names = [each.name for each in leaf.derived_attributes]
            if attribute in names:
                path = f"{request_path(claim.spec, name)}/derivedAttributes"
                yield {"op": "remove", "path": path if len(names) == 1 else f"{path}/{names.index(attribute)}"}


def _valid_below(what_if: WhatIfCluster, reasons: Sequence[DeviceReason], name: str) -> Iterator[str]:
    """Smaller amounts that the devices' policies allow, if one was rounded up to more than is left."""
    for reason in reasons:
        for entry in what_if.claims.inventory.devices_named(device_id(reason.device)):
            capacity = entry.device.capacity.get(name)
            policy = capacity.request_policy if capacity is not None else None
            if policy is None or reason.actual == "":
                continue
            left = Quantity.parse(reason.actual).nano
            yield from (str(value) for value in policy.valid_values if value.nano <= left)
            range_ = policy.valid_range
            if range_ is not None and range_.min is not None and range_.step is not None and left >= range_.min.nano:
                steps = (left - range_.min.nano) // range_.step.nano
                yield str(Quantity.from_nano(range_.min.nano + steps * range_.step.nano, range_.step.format))


def requested(wanted: Wanted) -> dict[str, Quantity]:
    """The capacities that a request names, with their amounts."""
    capacity = wanted.leaf.request.capacity
    return dict(capacity.requests) if capacity is not None else {}


def published_as(what_if: WhatIfCluster, tally: Tally, name: str) -> str | None:
    """The devices' name for a capacity that the request misnames: with or without the domain, or spelled
    differently."""
    entries = [entry for device in tally.devices for entry in what_if.claims.inventory.devices_named(device_id(device))]
    there = sorted({each for entry in entries for each in entry.device.capacity})
    if name in there:
        return None
    short = name.rpartition("/")[2]
    same = [each for each in there if each.rpartition("/")[2] == short]
    return same[0] if same else nearest(name, there)


def _renamed_capacity(
    what_if: WhatIfCluster, place: ClaimPlace, wanted: Wanted, name: str, amount: Quantity
) -> Iterator[Candidate]:
    base = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/capacity/requests"
    for tally in wanted.found.of(Obstacle.CAPACITY):
        meant = published_as(what_if, tally, name) if tally.reason.text.endswith(f" capacity {name}") else None
        if meant is not None:
            patch = place.patch(
                {"op": "remove", "path": f"{base}/{pointer(name)}"},
                {"op": "add", "path": f"{base}/{pointer(meant)}", "value": str(amount)},
            )
            text = f"ask for capacity {meant} instead of {name} in request {wanted.leaf.full_name} of {place.spoken}"
            yield Candidate(rank=Rank.FIX, text=text, patches=(patch,))


def less_capacity(what_if: WhatIfCluster, place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """Less of a shared capacity: what devices have left or allow; or drop one that no device has."""
    base = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/capacity/requests"
    where = f"in request {wanted.leaf.full_name} of {place.spoken}"
    asked = requested(wanted)
    reasons = [tally.reason for tally in wanted.found.of(Obstacle.CAPACITY)]
    yield from _explicit(place, wanted, where, reasons)
    amounts = {(each.actual, each.needed) for each in reasons if each.actual not in ("", "0")}
    for name, amount in asked.items():
        yield from _renamed_capacity(what_if, place, wanted, name, amount)
        path = f"{base}/{pointer(name)}"
        offered = [actual for actual, needed in amounts if needed == str(amount)]
        # Where fractions are rounded up, the next lower whole number.
        offered += _valid_below(what_if, reasons, name)
        fractions = [nano for each in offered if (nano := Quantity.parse(each).nano) % _WHOLE and nano > _WHOLE]
        offered += [str(nano // _WHOLE) for nano in fractions]
        for actual in _largest_first({each for each in offered if Quantity.parse(each).nano < amount.nano}):
            yield Candidate(
                rank=rank_of_less(Quantity.parse(actual).nano, amount.nano),
                text=f"ask for {name} {actual} instead of {amount} {where}",
                patches=(place.patch({"op": "replace", "path": path, "value": actual}),),
            )
        if any(not each.actual and each.text.endswith(f" {name}") for each in reasons):
            removed = base.removesuffix("/requests") if len(asked) == 1 else path
            yield Candidate(
                rank=Rank.RELAX,
                text=f"do not ask for capacity {name} {where}",
                patches=(place.patch({"op": "remove", "path": removed}),),
            )


def _explicit(place: ClaimPlace, wanted: Wanted, where: str, reasons: Sequence[DeviceReason]) -> Iterator[Candidate]:
    """A capacity that the request does not name and whose default exceeds what a device has left."""
    if wanted.leaf.request.capacity is not None:
        return
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/capacity"
    for reason in reasons:
        found = _DEFAULT.match(reason.text)
        if found is None or reason.actual in ("", "0"):
            continue
        yield Candidate(
            rank=Rank.FEWER,
            text=f"ask for {found['name']} {reason.actual} instead of the default {reason.needed} {where}",
            patches=(place.patch({"op": "add", "path": path, "value": {"requests": {found["name"]: reason.actual}}}),),
        )


def _largest_first(amounts: Iterable[str]) -> list[str]:
    return sorted(amounts, key=lambda amount: -Quantity.parse(amount).nano)
