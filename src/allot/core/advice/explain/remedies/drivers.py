"""Changes to what drivers and administrators declare: taints, pools, slices, feature gates."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from allot.core.advice.explain.devices import Tally, Wanted, device_id
from allot.core.advice.explain.diagnosis import Candidate, ClaimPlace, Rank, delete_of, patch_of, request_path
from allot.core.advice.explain.remedies.nodes import toleration_of
from allot.core.advice.explain.wording import count, joined, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import DeviceID
from allot.core.allocation.signature import BLOCKED
from allot.core.explain import Obstacle
from allot.core.features import GATES
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.encoding import encode_struct
from allot.core.quantity import Quantity
from allot.core.selectors import selects_device, tolerates

# For devices that need a feature of their node.
UNDECLARED = "this node does not declare"
_SLICES_MAX = 4
_NODES_MAX = 4
# Of the pools that a rule should name, each needs a rule of its own.
_POOLS_MAX = 4
_TRAILING_NUMBER = re.compile(r"[0-9]+$")
_WORDS = re.compile(r"[\w.-]+")
# In the keys of what tools keep on objects.
_KUBERNETES = "kubernetes.io/"
_RULE = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule"}


# --- taints ---


def _tainted(what_if: WhatIfCluster, wanted: Wanted) -> Iterator[tuple[DeviceID, tuple[api.DeviceTaint, ...]]]:
    """The devices that a request could use but for their taints, and these taints."""
    signature = wanted.leaf.signature
    assert signature is not None, "only requests that were understood are surveyed"
    homes = {node for tally in wanted.found.of(Obstacle.TAINT) for node in tally.nodes}
    for entry, verdict in what_if.claims.inventory.judged(signature):
        if verdict == BLOCKED and entry.slice.spec.node_name in (None, *homes):
            yield entry.id, signature.taints_in_the_way(entry)


def _taints(what_if: WhatIfCluster, wanted: Wanted) -> list[api.DeviceTaint]:
    found = {
        (taint.key, taint.value, taint.effect): taint for _, taints in _tainted(what_if, wanted) for taint in taints
    }
    return list(found.values())


def taint_rules(what_if: WhatIfCluster, wanted: Wanted) -> list[api.DeviceTaintRule]:
    """The DeviceTaintRules that tainted devices which the request could use, those of most devices first."""
    tainted = [(id_, {(each.key, each.effect) for each in taints}) for id_, taints in _tainted(what_if, wanted)]
    found = []
    for rule in what_if.all(api.DeviceTaintRule):
        taint = (rule.spec.taint.key, rule.spec.taint.effect)
        number = sum(taint in taints and selects_device(rule.spec.device_selector, *id_) for id_, taints in tainted)
        found += [(number, rule)] if number else []
    return [rule for _, rule in sorted(found, key=lambda each: -each[0])]


def is_for_all(rule: api.DeviceTaintRule) -> bool:
    """Whether a rule has no deviceSelector and so taints every device."""
    selector = rule.spec.device_selector
    return selector is None or (selector.driver, selector.pool, selector.device) == (None, None, None)


def rules_text(what_if: WhatIfCluster, rules: Sequence[api.DeviceTaintRule]) -> str:
    """Which rules tainted the devices; empty if none did."""
    if not rules:
        return ""
    found = f"set by {named('DeviceTaintRule', [rule.metadata.name for rule in rules])}"
    every = [rule for rule in rules if is_for_all(rule)]
    if every:
        which = "which" if len(rules) == 1 else named("DeviceTaintRule", [rule.metadata.name for rule in every])
        return f" ({found}, {which} {'has' if len(every) == 1 else 'have'} no deviceSelector and so taint{'s' if len(every) == 1 else ''} every device)"
    wide = [(rule, _pools_meant(what_if, rule).pools) for rule in rules if _is_wide(what_if, rule)]
    for rule, pools in sorted(wide, key=lambda each: not each[1])[:1]:
        which = "which" if len(rules) == 1 else f"of which {rule.metadata.name}"
        such = f", such as {pools[0]}," if pools else ""
        what = f"{device} of every pool" if (device := _device_of(rule)) else "every device of the driver"
        found += f", {which} has no pool in its deviceSelector{such} and so taints {what}"
    return f" ({found})"


def declared(what_if: WhatIfCluster, tally: Tally, names: Sequence[str]) -> Iterator[Candidate]:
    """Kubelets with the feature that the devices need. names: their nodes."""
    feature = tally.reason.text.removeprefix("need ").partition(",")[0]
    patches = []
    for name in names:
        there = what_if.cluster.nodes[name].node.status.declared_features
        operation = {"op": "add", "path": "/status/declaredFeatures", "value": [*there, feature]}
        patches.append(patch_of("Node", name, operation))
    if feature not in what_if.gates:
        patches.append(Patch(action="gate", name=feature, enabled=True))
    kubelets = f"the {'kubelet' if len(names) == 1 else 'kubelets'} of {named('node', names)}"
    scheduler = "" if feature in what_if.gates else ", and of the scheduler"
    text = f"enable feature gate {feature} of {kubelets}{scheduler}"
    yield Candidate(rank=Rank.NODE, text=text, patches=tuple(patches))


def _meant_for_devices(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> bool:
    """Whether the pod tolerates the taints of the devices, although its claim has to."""
    taints = _taints(what_if, wanted)
    own = [each for each in pod.spec.tolerations if each.key]
    return bool(taints) and all(any(tolerates(each, taint) for each in own) for taint in taints)


def near_toleration(what_if: WhatIfCluster, pod: core_v1.Pod, wanted: Wanted) -> str:
    """A near miss: a toleration in the wrong place or with another value; empty if there is none."""
    if _meant_for_devices(what_if, pod, wanted):
        return " (the pod does, but its tolerations are for taints of nodes)"
    taints = _taints(what_if, wanted)
    beside = _tolerated_beside(wanted, taints)
    if beside is not None:
        return f", but {beside.spoken} does"
    for taint in taints:
        for each in wanted.leaf.request.tolerations:
            if each.key == taint.key and each.value and each.value != taint.value:
                return f" (it tolerates value {each.value})"
            if each.key == taint.key and each.effect and each.effect != taint.effect:
                return f" (it tolerates effect {each.effect})"
    return ""


class _Beside(NamedTuple):
    """A request of the same claim, or an alternative, that tolerates what another one does not."""

    spoken: str
    tolerations: list[api.DeviceToleration]


def _tolerated_beside(wanted: Wanted, taints: Sequence[api.DeviceTaint]) -> _Beside | None:
    """Who in the same claim tolerates taints that a request does not; None if no one does. Each alternative has its own tolerations."""
    for request in wanted.claim.spec.devices.requests:
        leaves = [
            (f"{request.name}/{each.name}", f"alternative {each.name}", each.tolerations)
            for each in request.first_available
        ]
        if request.exactly is not None:
            leaves.append((request.name, f"request {request.name}", request.exactly.tolerations))
        for name, spoken, tolerations in leaves:
            matching = [each for each in tolerations if any(tolerates(each, taint) for taint in taints)]
            all_ = all(any(tolerates(each, taint) for each in matching) for taint in taints)
            if matching and all_ and name != wanted.leaf.full_name:
                return _Beside(spoken, matching)
    return None


def device_taint(
    what_if: WhatIfCluster, pod: core_v1.Pod, place: ClaimPlace | None, wanted: Wanted, *, hurry: bool = False
) -> Iterator[Candidate]:
    """A taint tolerated, or removed. hurry: pods that matter less could leave, which takes less time than
    a repair."""
    for rule in taint_rules(what_if, wanted):
        name = rule.metadata.name
        yield from _narrowed(what_if, rule)
        text = f"delete DeviceTaintRule {name}, if the reason for its taint is over"
        # It can be made again at any time; the pod that someone else would have to lose cannot.
        rank = Rank.NODE + 1
        if _is_wide(what_if, rule) and not _pools_meant(what_if, rule).pools:
            device = _device_of(rule)
            if device:
                text = f"set deviceSelector.pool in DeviceTaintRule {name} to the pool whose {device} is meant, or delete it"
                rank = Rank.FEWER - 1
            elif is_for_all(rule):
                text = f"give DeviceTaintRule {name} a deviceSelector for the devices that are meant, or delete it"
        yield Candidate(rank=rank, text=text, patches=(delete_of("DeviceTaintRule", name),))
    yield from _repaired(what_if, wanted, Rank.OTHERS + 2 if hurry else Rank.NODE + 2)
    taints = _taints(what_if, wanted)
    if place is None or not taints:
        return
    own = [encode_struct(toleration) for toleration in wanted.leaf.request.tolerations]
    beside = _tolerated_beside(wanted, taints)
    new = [encode_struct(each) for each in beside.tolerations] if beside is not None else []
    tolerations = [*own, *(new or (toleration_of(taint.key, taint.value, taint.effect) for taint in taints))]
    path = f"{request_path(wanted.claim.spec, wanted.leaf.full_name)}/tolerations"
    shown = named("taint", [taint.key for taint in taints])
    yield Candidate(
        # A driver taints broken devices, and an administrator has reasons for a taint.
        rank=Rank.FIX if beside is not None or _meant_for_devices(what_if, pod, wanted) else Rank.GATE,
        text=f"tolerate {shown} in request {wanted.leaf.full_name} of {place.spoken}"
        + (f", as {beside.spoken} does" if beside is not None else ""),
        patches=(place.patch({"op": "add", "path": path, "value": tolerations}),),
    )


def _device_of(rule: api.DeviceTaintRule) -> str:
    """The only device of a pool that a rule selects; empty if it selects all."""
    selector = rule.spec.device_selector
    return selector.device or "" if selector is not None else ""


def _is_wide(what_if: WhatIfCluster, rule: api.DeviceTaintRule) -> bool:
    """Whether a rule taints devices of several pools, because it names none."""
    selector = rule.spec.device_selector
    return (selector is None or selector.pool is None) and len(_pools_of(what_if, rule)) > 1


def _pools_of(what_if: WhatIfCluster, rule: api.DeviceTaintRule) -> dict[str, str]:
    """The pools with devices that a rule selects, and their nodes."""
    return {
        spec.pool.name: spec.node_name or ""
        for each in what_if.all(api.ResourceSlice)
        for spec in (each.spec,)
        if any(
            selects_device(rule.spec.device_selector, spec.driver, spec.pool.name, device.name)
            for device in spec.devices or ()
        )
    }


class _Meant(NamedTuple):
    """The pools that a rule speaks of, although it taints those of others, too. source: what of it does."""

    pools: tuple[str, ...] = ()
    source: str = ""


def _pools_meant(what_if: WhatIfCluster, rule: api.DeviceTaintRule) -> _Meant:
    """The pools that a rule speaks of: in its name, by their own names or by a label of their nodes (rack7 for rack=r7), or in its
    annotations and labels."""
    pools = _pools_of(what_if, rule)
    if not _is_wide(what_if, rule):
        return _Meant()
    name = f"-{rule.metadata.name}-"
    named_ones = [each for each in pools if f"-{each}-" in name]
    if named_ones:
        return _Meant((max(named_ones, key=lambda each: (len(each), each)),), "name")
    labelled = []
    for pool, node in sorted(pools.items()):
        info = what_if.cluster.nodes.get(node)
        if info is not None and any(_speaks_of(name, *label) for label in info.labels.items()):
            labelled.append(pool)
    if labelled and len(labelled) < len(pools) and len(labelled) <= _POOLS_MAX:
        return _Meant(tuple(labelled), "name")
    for key, note in sorted({**rule.metadata.labels, **rule.metadata.annotations}.items()):
        words = {word.strip(".").lower() for word in _WORDS.findall(note)} if _KUBERNETES not in key else set()
        noted = [pool for pool, node in pools.items() if words & {pool.lower(), node.lower()}]
        if len(noted) == 1:
            return _Meant(tuple(noted), f"{'annotation' if key in rule.metadata.annotations else 'label'} {key}")
    return _Meant()


def _speaks_of(name: str, key: str, value: str) -> bool:
    """Whether a name has the number of a label, after what the label is called: rack7 or rack-7 for acme.io/rack=r7."""
    word = key.rpartition("/")[2].rpartition(".")[2].lower()
    number = _TRAILING_NUMBER.search(value)
    if not word or number is None:
        return False
    return re.search(rf"[-.]{re.escape(word)}[-.]?[a-z]?0*{int(number[0])}[-.]", name.lower()) is not None


def _narrowed(what_if: WhatIfCluster, rule: api.DeviceTaintRule) -> Iterator[Candidate]:
    """A rule only for the pools that its name speaks of; a rule selects one pool, so others need rules like it."""
    (pools, source), name = _pools_meant(what_if, rule), rule.metadata.name
    if not pools:
        return
    selector = encode_struct(rule.spec.device_selector) if rule.spec.device_selector is not None else {}
    drivers = {each.spec.driver for each in what_if.all(api.ResourceSlice) if each.spec.pool.name == pools[0]}
    shown = f"deviceSelector.pool: {pools[0]}"
    if "driver" not in selector and len(drivers) == 1:
        # Drivers name a node's pool after the node: another one may come to use the same name.
        selector["driver"] = next(iter(drivers))
        shown = f"deviceSelector: {{driver: {selector['driver']}, pool: {pools[0]}}}"
    operation = {"op": "add", "path": "/spec/deviceSelector", "value": {**selector, "pool": pools[0]}}
    more = [
        _rule_like(rule, f"{name}-{number}", {**selector, "pool": pool}) for number, pool in enumerate(pools[1:], 2)
    ]
    others = f", and create one like it for {named('pool', pools[1:])}" if more else ""
    aim = f"only what its {source} says is tainted" if more else f"it taints only what its {source} says"
    text = f"set {shown} in DeviceTaintRule {name}{others}, so that {aim}"
    yield Candidate(rank=Rank.FIX, text=text, patches=(patch_of("DeviceTaintRule", name, operation), *more))


def _rule_like(rule: api.DeviceTaintRule, name: str, selector: dict[str, Any]) -> Patch:
    """A new rule with the same taint for other devices."""
    spec = {"deviceSelector": selector, "taint": encode_struct(rule.spec.taint)}
    return Patch(action="create", object={**_RULE, "metadata": {"name": name}, "spec": spec})


def _repaired(what_if: WhatIfCluster, wanted: Wanted, rank: int) -> Iterator[Candidate]:
    """Devices that their driver has tainted, without the taints."""
    nodes = {node for tally in wanted.found.of(Obstacle.TAINT) for node in tally.nodes}
    in_the_way = {(taint.key, taint.value, taint.effect) for taint in _taints(what_if, wanted)}
    found = 0
    for slice_ in what_if.all(api.ResourceSlice):
        # Network-attached devices have no node of their own.
        if slice_.spec.node_name is not None and slice_.spec.node_name not in nodes:
            continue
        repaired = [
            (index, device.name)
            for index, device in enumerate(slice_.spec.devices or ())
            if any((taint.key, taint.value, taint.effect) in in_the_way for taint in device.taints)
        ]
        if not repaired:
            continue
        operations = [{"op": "remove", "path": f"/spec/devices/{index}/taints"} for index, _ in repaired]
        where = f" of node {slice_.spec.node_name}" if slice_.spec.node_name else ""
        what = named("device", [name for _, name in repaired])
        yield Candidate(
            rank=rank,
            text=f"repair or reset {what}{where}: driver {slice_.spec.driver} then removes the taint",
            patches=(patch_of("ResourceSlice", slice_.metadata.name, *operations),),
        )
        found += 1
        if found == _SLICES_MAX:
            return


def of_lost_nodes(what_if: WhatIfCluster, names: Sequence[str]) -> str:
    """Devices that look free but are published for nodes that are gone; empty if there are none."""
    lost = [
        each
        for each in what_if.all(api.ResourceSlice)
        if each.spec.driver in names
        and each.spec.devices
        and each.spec.node_name
        and each.spec.node_name not in what_if.cluster.nodes
    ]
    if not lost or core_v1.Node in what_if.unread:
        return ""
    many = sum(len(each.spec.devices or ()) for each in lost)
    nodes = sorted({each.spec.node_name for each in lost if each.spec.node_name})
    gone = "is gone" if len(nodes) == 1 else "are gone"
    return f"; {count(many, 'more device')} in ResourceSlices of {named('node', nodes)}, which {gone}, cannot be used"


# --- pools and slices ---


class Pool(msgspec.Struct, frozen=True):
    """An incomplete pool."""

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
        counts = sorted({each.spec.pool.resource_slice_count for each in self.current})
        expected = joined([str(each) for each in counts])
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
            text += f" ({count(old, 'slice')} of generation {generations} {verb} not count)"
        return text

    @property
    def names(self) -> set[str]:
        """Its devices, each once."""
        return {device.name for each in (*self.current, *self.old) for device in each.spec.devices or ()}

    @property
    def is_invalid(self) -> bool:
        """Whether a device is published twice; otherwise slices are missing."""
        names = [device.name for each in self.current for device in each.spec.devices or ()]
        return len(names) > len(set(names))

    def deleted(self) -> Iterator[Candidate]:
        """Delete the pool: its driver is gone."""
        names = [each.metadata.name for each in (*self.current, *self.old)]
        yield Candidate(
            rank=Rank.ADMIN,
            text=f"delete {named('ResourceSlice', names)}, if driver {self.driver} is gone",
            patches=tuple(delete_of("ResourceSlice", name) for name in names),
        )

    def candidates(self, first: str = "", plugin: str = "") -> Iterator[Candidate]:
        """Possible remedies. first: what must be done before the driver can publish the rest; plugin: the driver's pod there, if it is
        known."""
        nodes = sorted({each.spec.node_name for each in self.current if each.spec.node_name})
        where = f" on {named('node', nodes)}" if nodes else ""
        stale = [each.metadata.name for each in self._lacking()]
        delete = (
            f", or delete the stale {named('ResourceSlice', stale)}, which it then publishes again" if stale else ""
        )
        there = " there" if where else ""
        restart = f"restart {plugin or f'it{there}'} if it hangs{delete}"
        yield Candidate(
            # This harms no pod.
            rank=Rank.NODE,
            text=f"{first}, so that driver {self.driver}{where} publishes all of pool {self.name}"
            if first
            else f"make driver {self.driver}{where} publish all of pool {self.name}: {restart}",
            patches=tuple(self._completed()),
        )
        if self.old:
            names = [each.metadata.name for each in self.current]
            last = max(each.spec.pool.generation for each in self.old)
            yield Candidate(
                rank=Rank.ADMIN,
                text=f"delete the incomplete {named('slice', names)}: generation {last} counts again",
                patches=tuple(delete_of("ResourceSlice", name) for name in names),
            )

    def _lacking(self) -> list[api.ResourceSlice]:
        """The slices of the last generation before the newest that none of the newest replaces: their driver has not got to them yet."""
        there = {name for each in self.current for name in _contents(each)}
        last = max((each.spec.pool.generation for each in self.old), default=0)
        return [each for each in self.old if each.spec.pool.generation == last and not there & _contents(each)]

    def _completed(self) -> Iterator[Patch]:
        """The pool as its driver would publish it: the slices that it has not got to are of the newest generation, too, and no counters
        are missing."""
        if not self.current:
            return
        rest, counters = self._lacking(), self._counters()
        first = self.current[0].spec
        holder = next((each for each in rest if each.spec.shared_counters), None)
        total = len(self.current) + len(rest) + bool(counters and holder is None)
        number = {"op": "replace", "path": "/spec/pool/resourceSliceCount", "value": total}
        for each in self.current:
            yield patch_of("ResourceSlice", each.metadata.name, number)
        for each in rest:
            operations = [{"op": "replace", "path": "/spec/pool/generation", "value": first.pool.generation}, number]
            if each is holder:
                sets = [*map(encode_struct, each.spec.shared_counters or ()), *counters]
                operations.append({"op": "replace", "path": "/spec/sharedCounters", "value": sets})
            yield patch_of("ResourceSlice", each.metadata.name, *operations)
        if counters and holder is None:
            pool = {**encode_struct(first.pool), "resourceSliceCount": total}
            where = {"nodeName": first.node_name} if first.node_name else {"allNodes": True}
            yield Patch(
                action="create",
                object={
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"{self.current[0].metadata.name}-counters"},
                    "spec": {"driver": self.driver, "pool": pool, **where, "sharedCounters": counters},
                },
            )

    def _counters(self) -> list[dict[str, object]]:
        """The counter sets that the devices draw on and that no slice has, with enough for any one of them."""
        known = {set_.name for each in (*self.current, *self._lacking()) for set_ in each.spec.shared_counters or ()}
        most: dict[str, dict[str, Quantity]] = {}
        for each in (*self.current, *self._lacking()):
            for device in each.spec.devices or ():
                for drawn in device.consumes_counters:
                    amounts = most.setdefault(drawn.counter_set, {})
                    for name, counter in drawn.counters.items():
                        if name not in amounts or counter.value.nano > amounts[name].nano:
                            amounts[name] = counter.value
        return [
            {"name": name, "counters": {each: {"value": str(amount)} for each, amount in amounts.items()}}
            for name, amounts in most.items()
            if name not in known
        ]

    def once(self) -> Iterator[Candidate]:
        """Devices in several slices, kept only in the first."""
        seen: set[str] = set()
        patches, twice, places = [], [], []
        for slice_ in sorted(self.current, key=lambda each: each.metadata.name):
            again = [
                (index, device.name) for index, device in enumerate(slice_.spec.devices or ()) if device.name in seen
            ]
            seen |= {device.name for device in slice_.spec.devices or ()}
            if again:
                places.append(slice_.metadata.name)
                twice += [name for _, name in again]
                operations = [{"op": "remove", "path": f"/spec/devices/{index}"} for index, _ in reversed(again)]
                patches.append(patch_of("ResourceSlice", slice_.metadata.name, *operations))
        if patches:
            text = (
                f"make driver {self.driver} publish {named('device', twice)} only once, without {named('ResourceSlice', places)}: fix or "
                "restart it"
            )
            yield Candidate(rank=Rank.ADMIN, text=text, patches=tuple(patches))


def _contents(slice_: api.ResourceSlice) -> set[tuple[str, str]]:
    """The devices and the counter sets of a slice, by name."""
    devices = {("device", each.name) for each in slice_.spec.devices or ()}
    return devices | {("counters", each.name) for each in slice_.spec.shared_counters or ()}


class Twin(msgspec.Struct, frozen=True):
    """A device that several nodes publish under one name. slices: all of its pool."""

    driver: str
    pool: str
    device: str
    slices: list[api.ResourceSlice]

    @property
    def nodes(self) -> list[str]:
        """The nodes that publish it."""
        return sorted({each.spec.node_name for each in self.slices if each.spec.node_name})

    def renamed(self, homes: Collection[str]) -> Iterator[Candidate]:
        """Each node has a pool of its own name, as drivers should do. homes: where devices are in use, which keep theirs."""
        patches = []
        for node in [each for each in self.nodes if each not in homes] or self.nodes[1:]:
            own = [each for each in self.slices if each.spec.node_name == node]
            for slice_ in own:
                rename = {"op": "replace", "path": "/spec/pool/name", "value": f"{self.pool}-{node}"}
                patches.append(patch_of("ResourceSlice", slice_.metadata.name, rename))
        text = f"let driver {self.driver} give its pool a name of its own on each node, such as the node's, instead of {self.pool}"
        yield Candidate(rank=Rank.NODE, text=text, patches=tuple(patches))


def published_twice(what_if: WhatIfCluster, devices: Sequence[str]) -> Twin | None:
    """A device that several nodes publish under one name; None if there is none."""
    for device in dict.fromkeys(devices):
        id_ = device_id(device)
        entries = what_if.claims.inventory.devices_named(id_)
        if len({entry.slice.spec.node_name for entry in entries if entry.slice.spec.node_name}) > 1:
            slices = Pool.find(what_if, id_.driver, id_.pool)
            return Twin(id_.driver, id_.pool, id_.device, [*slices.current, *slices.old])
    return None


def renamed_nodes(what_if: WhatIfCluster, slices: Sequence[api.ResourceSlice]) -> Iterator[Candidate]:
    """Slices for nodes that do not exist under that name."""
    names = set(what_if.cluster.nodes)
    without = names - {each.spec.node_name for each in slices}
    for slice_ in [each for each in slices if each.spec.node_name and each.spec.node_name not in names][:_SLICES_MAX]:
        wrong = slice_.spec.node_name or ""
        short = wrong.partition(".")[0]
        longer = (name for name in sorted(without) if name.partition(".")[0] == wrong)
        meant = short if short in without else next(longer, None) or nearest(wrong, without - _siblings(wrong, without))
        if meant is not None:
            name = slice_.metadata.name
            operation = {"op": "replace", "path": "/spec/nodeName", "value": meant}
            yield Candidate(
                rank=Rank.ADMIN,
                text=f"make driver {slice_.spec.driver} publish ResourceSlice {name} for node {meant} instead of {wrong}",
                patches=(patch_of("ResourceSlice", name, operation),),
            )


def _siblings(name: str, others: Iterable[str]) -> set[str]:
    """Names of other nodes in the same series: they differ in a number or letter, `gpu-1` and `gpu-2`."""

    def stem(text: str) -> list[str]:
        return [part for part in re.split(r"[-.]|(?<=[a-z])(?=[0-9])", text) if len(part) > 1 and not part.isdigit()]

    return {other for other in others if stem(other) == stem(name)}


# --- feature gates ---


def gates(what_if: WhatIfCluster) -> list[Candidate]:
    """Disabled feature gates that concern devices."""
    return [each for name in GATES if name.startswith("DRA") for each in gate(what_if, name)]


def gate(what_if: WhatIfCluster, name: str) -> list[Candidate]:
    """A feature gate, if it is disabled."""
    if name in what_if.gates:
        return []
    patch = Patch(action="gate", name=name, enabled=True)
    return [Candidate(rank=Rank.GATE, text=f"enable feature gate {name}", patches=(patch,))]
