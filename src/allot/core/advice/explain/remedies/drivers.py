"""Changes to what drivers and administrators say of devices: taints, pools, slices, feature gates."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allot.core.advice.explain.devices import Wanted, device_id
from allot.core.advice.explain.diagnosis import Candidate, ClaimPlace, Rank, delete_of, patch_of, request_path
from allot.core.advice.explain.remedies.nodes import toleration_of
from allot.core.advice.explain.wording import count, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from allot.core.explain import Obstacle
from allot.core.features import GATES
from allot.core.model import resource_v1 as api
from allot.core.model.encoding import encode_struct
from allot.core.selectors import selects_device

_SLICES_MAX = 4


# --- taints ---


def _taints(what_if: WhatIfCluster, wanted: Wanted) -> list[api.DeviceTaint]:
    signature = wanted.leaf.signature
    assert signature is not None, "only requests that were understood are surveyed"
    found: dict[tuple[str, str, str], api.DeviceTaint] = {}
    for tally in wanted.found.of(Obstacle.TAINT):
        for device in tally.devices:
            for entry in what_if.claims.inventory.devices_named(device_id(device)):
                for taint in signature.taints_in_the_way(entry):
                    found[taint.key, taint.value, taint.effect] = taint
    return list(found.values())


def taint_rules(what_if: WhatIfCluster, wanted: Wanted) -> list[api.DeviceTaintRule]:
    """The rules that tainted devices which the request could use."""
    taints = {(taint.key, taint.effect) for taint in _taints(what_if, wanted)}
    devices = [device_id(device) for tally in wanted.found.of(Obstacle.TAINT) for device in tally.devices]
    return [
        rule
        for rule in what_if.all(api.DeviceTaintRule)
        if (rule.spec.taint.key, rule.spec.taint.effect) in taints
        and any(selects_device(rule.spec.device_selector, *device) for device in devices)
    ]


def device_taint(what_if: WhatIfCluster, place: ClaimPlace | None, wanted: Wanted) -> Iterator[Candidate]:
    """A taint tolerated, or taken away."""
    for rule in taint_rules(what_if, wanted):
        name = rule.metadata.name
        yield Candidate(
            rank=Rank.ADMIN, text=f"delete DeviceTaintRule {name}", patches=(delete_of("DeviceTaintRule", name),)
        )
    repaired = list(_repaired(what_if, wanted))
    yield from repaired
    taints = _taints(what_if, wanted)
    if place is None or not taints:
        return
    own = [encode_struct(toleration) for toleration in wanted.leaf.request.tolerations]
    tolerations = [*own, *(toleration_of(taint.key, taint.value, taint.effect) for taint in taints)]
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/tolerations"
    shown = named("taint", [taint.key for taint in taints])
    yield Candidate(
        # What a driver taints is broken.
        rank=Rank.GATE if repaired else Rank.TOLERATE,
        text=f"tolerate {shown} in request {wanted.leaf.full_name} of {place.spoken}",
        patches=(place.patch({"op": "add", "path": path, "value": tolerations}),),
    )


def _repaired(what_if: WhatIfCluster, wanted: Wanted) -> Iterator[Candidate]:
    """Devices that their driver has tainted, without the taints."""
    by_slice: dict[str, list[str]] = {}
    for tally in wanted.found.of(Obstacle.TAINT):
        for device in tally.devices:
            for entry in what_if.claims.inventory.devices_named(device_id(device)):
                if entry.device.taints:
                    by_slice.setdefault(entry.slice.metadata.name, []).append(entry.device.name)
    for name, devices in by_slice.items():
        slice_ = what_if.get(api.ResourceSlice, name)
        assert slice_ is not None, "devices are in slices"
        operations = [
            {"op": "remove", "path": f"/spec/devices/{index}/taints"}
            for index, device in enumerate(slice_.spec.devices or ())
            if device.name in devices and device.taints
        ]
        where = f" of node {slice_.spec.node_name}" if slice_.spec.node_name else ""
        yield Candidate(
            rank=Rank.NODE,
            text=f"get {named('device', devices)}{where} into order, so that driver {slice_.spec.driver} takes the taint away",
            patches=(patch_of("ResourceSlice", name, *operations),),
        )


# --- pools and slices ---


class Pool(msgspec.Struct, frozen=True):
    """A pool that is not complete."""

    driver: str
    name: str
    # Slices of the newest generation, and older ones.
    current: list[api.ResourceSlice]
    old: list[api.ResourceSlice]

    @staticmethod
    def find(what_if: WhatIfCluster, driver: str, name: str) -> Pool:
        """The slices of a pool."""
        slices = [
            each for each in what_if.all(api.ResourceSlice) if (each.spec.driver, each.spec.pool.name) == (driver, name)
        ]
        newest = max((each.spec.pool.generation for each in slices), default=0)
        current = [each for each in slices if each.spec.pool.generation == newest]
        return Pool(driver, name, current, [each for each in slices if each.spec.pool.generation != newest])

    def sentence(self) -> str:
        """What is wrong with it."""
        found = len(self.current)
        expected = self.current[0].spec.pool.resource_slice_count if self.current else 0
        nodes = sorted({each.spec.node_name for each in self.current if each.spec.node_name})
        where = f" (on {named('node', nodes)})" if nodes else ""
        generation = f" of generation {self.current[0].spec.pool.generation}" if self.old else ""
        text = (
            f"pool {self.name} of driver {self.driver}{where} is incomplete: {count(found, 'ResourceSlice')}{generation} "
            f"{'is' if found == 1 else 'are'} published, but resourceSliceCount is {expected}"
        )
        if self.old:
            old = len(self.old)
            generations = listed(str(each.spec.pool.generation) for each in self.old)
            verb = "does" if old == 1 else "do"
            text += f" ({count(old, 'slice')} of generation {generations} {verb} not count any more)"
        return text

    def candidates(self) -> Iterator[Candidate]:
        """What may help."""
        number = len(self.current)
        operation = {"op": "replace", "path": "/spec/pool/resourceSliceCount", "value": number}
        yield Candidate(
            rank=Rank.ADMIN,
            text=(
                f"let driver {self.driver} publish the whole pool; until then resourceSliceCount {number} makes what is there "
                "usable"
            ),
            patches=tuple(patch_of("ResourceSlice", each.metadata.name, operation) for each in self.current),
        )
        if self.old:
            names = [each.metadata.name for each in self.current]
            last = max(each.spec.pool.generation for each in self.old)
            yield Candidate(
                rank=Rank.ADMIN,
                text=f"delete the incomplete {named('slice', names)}, so that generation {last} counts again",
                patches=tuple(delete_of("ResourceSlice", name) for name in names),
            )


def renamed_nodes(what_if: WhatIfCluster) -> Iterator[Candidate]:
    """Slices for nodes that do not exist under that name."""
    names = set(what_if.cluster.nodes)
    slices = what_if.all(api.ResourceSlice)
    without = names - {each.spec.node_name for each in slices}
    for slice_ in [each for each in slices if each.spec.node_name and each.spec.node_name not in names][:_SLICES_MAX]:
        meant = nearest(slice_.spec.node_name or "", without)
        if meant is not None:
            name = slice_.metadata.name
            operation = {"op": "replace", "path": "/spec/nodeName", "value": meant}
            yield Candidate(
                rank=Rank.ADMIN,
                text=f"let the driver publish ResourceSlice {name} for node {meant} instead of {slice_.spec.node_name}",
                patches=(patch_of("ResourceSlice", name, operation),),
            )


# --- feature gates ---


def gates(what_if: WhatIfCluster) -> list[Candidate]:
    """Feature gates that concern devices and are off."""
    return [
        Candidate(
            rank=Rank.GATE,
            text=f"switch feature gate {name} on",
            patches=(Patch(action="gate", name=name, enabled=True),),
        )
        for name in GATES
        if name.startswith("DRA") and name not in what_if.gates
    ]
