"""Changes to what a claim asks for: fewer devices, fewer constraints, less of a capacity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from allot.core.advice.explain.devices import Wanted
from allot.core.advice.explain.diagnosis import Candidate, ClaimPlace, Rank, pointer, request_path
from allot.core.advice.explain.wording import count
from allot.core.explain import Obstacle
from allot.core.model import resource_v1 as api


def lower_count(place: ClaimPlace, wanted: Wanted, numbers: Iterable[int]) -> Iterator[Candidate]:
    """Fewer devices."""
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/count"
    for number in sorted({each for each in numbers if 0 < each < wanted.leaf.count}, reverse=True):
        what = f"ask for {count(number, 'device')} instead of {wanted.leaf.count}"
        yield Candidate(
            rank=Rank.FEWER,
            text=f"{what} in request {wanted.leaf.full_name} of {place.spoken}",
            patches=(place.patch({"op": "replace", "path": path, "value": number}),),
        )


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
    yield Candidate(rank=Rank.FEWER, text=text, patches=(patch,))


def fewer_constraints(place: ClaimPlace, claim: api.ResourceClaim) -> Iterator[Candidate]:
    """Without one of the constraints."""
    found = claim.spec.devices.constraints
    for index, constraint in enumerate(found):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        word = "matchAttribute" if constraint.match_attribute is not None else "distinctAttribute"
        path = "/devices/constraints" if len(found) == 1 else f"/devices/constraints/{index}"
        yield Candidate(
            rank=Rank.RELAX,
            text=f"leave constraint {word} {attribute} out of {place.spoken}",
            patches=(place.patch({"op": "remove", "path": path}),),
        )


def less_capacity(place: ClaimPlace, wanted: Wanted) -> Iterator[Candidate]:
    """Less of a shared capacity: what devices have left."""
    base = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/capacity/requests"
    requested = wanted.leaf.request.capacity.requests if wanted.leaf.request.capacity is not None else {}
    left = {
        (tally.reason.actual, tally.reason.needed)
        for tally in wanted.found.of(Obstacle.CAPACITY)
        if tally.reason.actual not in ("", "0")
    }
    for name, amount in requested.items():
        for actual, needed in sorted(left):
            if needed != str(amount):
                continue
            what = f"ask for {name} {actual} instead of {amount}"
            yield Candidate(
                rank=Rank.FEWER,
                text=f"{what} in request {wanted.leaf.full_name} of {place.spoken}",
                patches=(place.patch({"op": "replace", "path": f"{base}/{pointer(name)}", "value": actual}),),
            )
