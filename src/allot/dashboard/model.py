"""The cluster as the pages see it: objects in, changed rows out. Pure.

A change marks what it affects: a claim its devices, a pod its node and its claims. `refresh` rebuilds the marked rows, so
the cost depends on the change, not on the size of the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.usage.published import published_pool
from allot.core.advice.usage.reach import Reach, anybodys_reach, closed_because
from allot.core.advice.what_if import Key, Outgrown, WhatIfCluster, key_of
from allot.core.allocation.devices import ClaimID, DeviceID
from allot.core.allocation.pools import PoolID
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.foreign_groups import CoschedulingPodGroup, KaiPodGroup, VolcanoPodGroup
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.observed_v1 import Event
from allot.core.model.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
from allot.core.model.scheduling_v1 import PodGroup
from allot.dashboard.tables import Table
from allot.dashboard.views.attention import Facts, attention_rows
from allot.dashboard.views.claims import claim_row, held_by, problems_of
from allot.dashboard.views.events import event_row, times_of
from allot.dashboard.views.gangs import UNPLACED, gang_row
from allot.dashboard.views.health import sick_devices
from allot.dashboard.views.nodes import SEVERAL, cells_of, node_facts, pool_facts
from allot.dashboard.views.pods import pod_row, waits
from allot.dashboard.views.timeline import Sample

EVENTS_MAX = 2000
# Below so many percent, for so long, devices are hardly used.
LOW_PERCENT = 5.0
LOW_S = 600.0
# What a pod uses of its devices: percent of their time, and MiB of their memory.
Use = tuple[float, float]
_TRIED = "FailedScheduling"
_ROWS = ("nodes", "pods", "claims", "gangs", "events")
_GROUPS = (PodGroup, KaiPodGroup, VolcanoPodGroup, CoschedulingPodGroup)
Change = tuple[APIStruct | None, APIStruct | None]


class Model:
    """Everything that is known of a cluster. revision: counts the refreshes that changed a row."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.revision = 1
        # Counts changes that may affect answers: everything except events.
        self.decisive = 0
        self.tables: Mapping[str, Table] = {name: Table() for name in (*_ROWS, "attention")}
        self._events: dict[str, Event] = {}
        # By pod: events about failed attempts to schedule it.
        self._tries: dict[str, set[str]] = {}
        self.use: dict[str, Use] = {}
        # Since when the devices of claims are hardly used.
        self._low: dict[str, float] = {}
        self._begin(snapshot)
        self.refresh()

    def _begin(self, snapshot: Snapshot) -> None:
        """From nothing: the first time, and when the cluster turns out to use what it did not use before."""
        # Events change by the thousand and decide nothing.
        lasting = tuple(each for each in snapshot.objects if each.__class__ is not Event)
        self.what_if = WhatIfCluster(Snapshot(lasting, snapshot.taken_at, snapshot.unread))
        self._reach: Reach | None = None
        self._closed: dict[str, str] = {}
        self._slices: dict[PoolID, dict[str, ResourceSlice]] = {}
        # The devices of each pool as rows show them, by node; and the pools of each node.
        self._cells: dict[PoolID, dict[str, dict[str, Any]]] = {}
        self._pools_of: dict[str, set[PoolID]] = {}
        self.named_by: dict[ClaimID, set[str]] = {}
        self._claims_of: dict[str, tuple[ClaimID, ...]] = {}
        self._gang_of: dict[str, str] = {}
        self._members: dict[str, set[str]] = {}
        # Complaints about devices, by source: claims' drivers and pods' nodes; and one sentence per device.
        self._said: dict[str, Mapping[DeviceID, str]] = {}
        self._sick: dict[DeviceID, str] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._waiting: set[str] = set()
        self._running: set[str] = set()
        # States of claims and gangs, for counting.
        self._states: dict[str, dict[str, str]] = {"claims": {}, "gangs": {}}
        self._dirty: dict[str, set[Any]] = {name: set() for name in (*_ROWS, "pools")}
        for object_ in snapshot.objects:
            self._mark(None, object_)

    # --- changes ---

    def apply(self, changes: Iterable[Change]) -> None:
        """What happened, in order."""
        for before, after in changes:
            object_ = after if after is not None else before
            assert object_ is not None, "a change has an object"
            if object_.__class__ is not Event:
                self.decisive += not is_heartbeat(before, after)
                try:
                    self.what_if.follow(before, after)
                except Outgrown:
                    self._begin_again(object_)
                    continue
            self._mark(before, after)

    def _begin_again(self, object_: APIStruct) -> None:
        known = self.what_if.snapshot()
        # Unchanged rows cause no update.
        keys = {name: set(self.tables[name]) for name in _ROWS if name != "events"}
        self._begin(Snapshot((*known.objects, object_), known.taken_at, known.unread))
        for name, kept in keys.items():
            if name != "nodes":
                self._dirty[name] |= kept
        self._dirty["nodes"] |= keys["nodes"]

    def _mark(self, before: APIStruct | None, after: APIStruct | None) -> None:
        """What a change touches."""
        kind = (after if after is not None else before).__class__
        if kind is Pod:
            self._mark_pod(before, after)  # type: ignore[arg-type]
        elif kind is ResourceClaim:
            self._mark_claim(before, after)  # type: ignore[arg-type]
        elif kind is Node:
            self._mark_node(before, after)  # type: ignore[arg-type]
        elif kind is ResourceSlice:
            self._mark_slice(before, after)  # type: ignore[arg-type]
        elif kind is DeviceTaintRule:
            self._dirty["pools"].update(self._slices)
        elif kind is Event:
            self._mark_event(before, after)  # type: ignore[arg-type]
        elif kind in _GROUPS:
            metadata = _meta(after if after is not None else before)
            prefix = f"{metadata.namespace}/"
            self._dirty["gangs"].update(
                f"{namespace}/{key}" for namespace, key in self.what_if.cluster.groups if f"{namespace}/" == prefix
            )
            self._dirty["gangs"].update(key for key in self.tables["gangs"] if key.startswith(prefix))

    def _mark_pod(self, before: Pod | None, after: Pod | None) -> None:
        pod = after if after is not None else before
        assert pod is not None
        key = pod.key
        self._dirty["pods"].add(key)
        self._dirty["nodes"].update(
            each.spec.node_name for each in (before, after) if each is not None and each.spec.node_name
        )
        old = self._claims_of.pop(key, ())
        new: tuple[ClaimID, ...] = ()
        if after is not None and after.status.phase not in FINISHED:
            new = tuple(self.what_if.claims.claims_of(after))
        for id_ in {*old, *new}:
            self._dirty["claims"].add(id_)
        for id_ in old:
            self.named_by.get(id_, set()).discard(pod.metadata.name)
        for id_ in new:
            self.named_by.setdefault(id_, set()).add(pod.metadata.name)
        if new:
            self._claims_of[key] = new
        if key in self.use:
            for id_ in {*old, *new}:
                self._mark_use(id_)
            if after is None:
                del self.use[key]
        self._mark_health(key)
        self._mark_gang(key, self.what_if.cluster.membership.key(after) if after is not None else "")
        self._count_pod(key, after)

    def _mark_gang(self, pod: str, gang: str) -> None:
        was = self._gang_of.pop(pod, "")
        for each in {was, gang} - {""}:
            self._dirty["gangs"].add(each)
        if was:
            self._members[was].discard(pod)
        if gang:
            self._gang_of[pod] = gang
            self._members.setdefault(gang, set()).add(pod)

    def _count_pod(self, key: str, pod: Pod | None) -> None:
        self._waiting.discard(key)
        self._running.discard(key)
        if pod is not None and waits(pod):
            self._waiting.add(key)
        elif pod is not None and pod.status.phase == "Running":
            self._running.add(key)

    def _mark_claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        claim = after if after is not None else before
        assert claim is not None
        self._dirty["claims"].add(ClaimID(claim.metadata.namespace, claim.metadata.name))
        for id_ in (*held_by(before), *held_by(after)):
            self._dirty["pools"].add(PoolID(id_.driver, id_.pool))
        self._hear(
            f"claim {claim.metadata.namespace}/{claim.metadata.name}",
            dict(problems_of(after)) if after is not None else {},
        )
        for name in self.named_by.get(ClaimID(claim.metadata.namespace, claim.metadata.name), ()):
            self._mark_health(f"{claim.metadata.namespace}/{name}")

    def measure(self, use: Mapping[str, Use | None]) -> None:
        """How busy the devices of pods are, by pod; None if no longer known. Other pods keep their values."""
        for key, found in use.items():
            if found is None:
                self.use.pop(key, None)
            else:
                self.use[key] = found
            for id_ in self._claims_of.get(key, ()):
                self._mark_use(id_)

    def _mark_use(self, id_: ClaimID) -> None:
        self._dirty["claims"].add(id_)
        percent = self._use_of(id_)
        if percent is not None and percent[0] < LOW_PERCENT:
            self._low.setdefault(str(id_), self.what_if.now)
        else:
            self._low.pop(str(id_), None)
        for device in held_by(self.what_if.claims.claim(*id_)):
            self._dirty["pools"].add(PoolID(device.driver, device.pool))

    def _use_of(self, id_: ClaimID) -> Use | None:
        """Of the devices of a claim: pods that share a device have the same values."""
        found = [use for name in self.named_by.get(id_, ()) if (use := self.use.get(f"{id_.namespace}/{name}"))]
        return max(found) if found else None

    def _mark_health(self, key: str) -> None:
        """Update the complaints about a pod's devices, which may arrive before or after it."""
        namespace, _, name = key.partition("/")
        pod = self.what_if.get(Pod, name, namespace)
        claims = (self.what_if.claims.claim(*id_) for id_ in self._claims_of.get(key, ()))
        held = [device for claim in claims for device in held_by(claim)] if pod is not None else []
        self._hear(f"pod {key}", sick_devices(pod, held) if pod is not None else {})

    def _hear(self, who: str, said: Mapping[DeviceID, str]) -> None:
        """Replace a source's complaints about devices."""
        before = self._said.pop(who, {})
        if said:
            self._said[who] = said
        if before == said:
            return
        for id_ in {*before, *said}:
            self._dirty["pools"].add(PoolID(id_.driver, id_.pool))
            told = [self._said[each][id_] for each in sorted(self._said) if id_ in self._said[each]]
            if told:
                self._sick[id_] = told[0]
            else:
                self._sick.pop(id_, None)

    def _mark_node(self, before: Node | None, after: Node | None) -> None:
        node = after if after is not None else before
        assert node is not None
        name = node.metadata.name
        self._dirty["nodes"].add(name)
        info = self.what_if.cluster.nodes.get(name)
        closed = closed_because(info) if info is not None and after is not None else None
        if closed != self._closed.get(name) or before is None or before.metadata.labels != node.metadata.labels:
            if closed is None:
                self._closed.pop(name, None)
            else:
                self._closed[name] = closed
            self._reach = None
            self._dirty["pools"].update(self._pools_of.get(name, ()))
            self._dirty["pools"].update(self._pools_of.get(SEVERAL, ()))

    def _mark_slice(self, before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        for slice_ in (before, after):
            if slice_ is not None:
                id_ = PoolID(slice_.spec.driver, slice_.spec.pool.name)
                self._slices.setdefault(id_, {}).pop(slice_.metadata.name, None)
                self._dirty["pools"].add(id_)
        if after is not None:
            self._slices[PoolID(after.spec.driver, after.spec.pool.name)][after.metadata.name] = after

    def _mark_event(self, before: Event | None, after: Event | None) -> None:
        event = after if after is not None else before
        assert event is not None
        key = f"{event.metadata.namespace}/{event.metadata.name}"
        self._events.pop(key, None)
        if after is not None:
            self._events[key] = after
        self._dirty["events"].add(key)
        self._mark_try(key, event, is_there=after is not None)
        if len(self._events) > EVENTS_MAX * 2:
            kept = sorted(self._events.items(), key=lambda item: item[1].seen_at)[-EVENTS_MAX:]
            self._dirty["events"].update(self._events)
            for old in self._events.keys() - dict(kept).keys():
                self._mark_try(old, self._events[old], is_there=False)
            self._events = dict(kept)

    def _mark_try(self, key: str, event: Event, *, is_there: bool) -> None:
        about = event.involved_object
        if event.reason != _TRIED or about.kind != "Pod":
            return
        pod = f"{about.namespace or event.metadata.namespace}/{about.name}"
        if is_there:
            self._tries.setdefault(pod, set()).add(key)
        else:
            self._tries.get(pod, set()).discard(key)
            if not self._tries.get(pod):
                self._tries.pop(pod, None)
        self._dirty["pods"].add(pod)

    # --- rows ---

    def refresh(self) -> bool:
        """Rebuild the marked rows; returns whether one has changed."""
        if not any(self._dirty.values()):
            return False
        revision, news = self.revision + 1, False
        for id_ in self._dirty["pools"]:
            self._refresh_pool(id_)
        for table, make in (
            ("nodes", self._node),
            ("pods", self._pod),
            ("claims", self._claim),
            ("gangs", self._gang),
            ("events", self._event),
        ):
            for mark in self._dirty[table]:
                key, row = str(mark), make(mark)
                rows = self.tables[table]
                if table in self._states:
                    self._count(table, key, row)
                news |= rows.put(key, row, revision) if row is not None else rows.remove(key, revision)
        for marks in self._dirty.values():
            marks.clear()
        news |= self._refresh_attention(revision)
        if news:
            self.revision = revision
        return news

    def _refresh_attention(self, revision: int) -> bool:
        rows, table = attention_rows(self._facts()), self.tables["attention"]
        news = [table.put(about, row, revision) for about, row in rows.items()]
        news += [table.remove(about, revision) for about in set(table) - rows.keys()]
        return any(news)

    def _facts(self) -> Facts:
        """The numbers that sentences are about."""
        claims, gangs = self._states["claims"], self._states["gangs"]
        longest = min(self._waiting, key=lambda key: (self._created(key) or "", key), default="")
        sample = self.sample(0.0)
        now = self.what_if.now
        return Facts(
            nodes=sum(info.node is not None for info in self.what_if.cluster.nodes.values()),
            closed={name: reason for name, reason in self._closed.items() if reason},
            devices=sample.free + sample.partly + sample.in_use + sample.unavailable,
            free=sample.free,
            unavailable=sample.unavailable,
            sick={f"{id_.pool}/{id_.device}": said for id_, said in self._sick.items()},
            waiting=len(self._waiting),
            longest=longest,
            longest_since=self._created(longest) if longest else None,
            pending_claims=sum(state == "pending" for state in claims.values()),
            idle=[self._holding(name) for name, state in claims.items() if state == "idle"],
            unused=[
                (name, self._holding(name)[1], since)
                for name, since in self._low.items()
                if now - since >= LOW_S and claims.get(name) == "in use"
            ],
            gangs=sorted(self._unplaced(key) for key, state in gangs.items() if state in UNPLACED),
            incomplete=[
                (f"{id_.driver} {id_.pool}", facts["incomplete"])
                for id_, by_node in self._cells.items()
                for facts in by_node.values()
                if "incomplete" in facts
            ],
        )

    def _created(self, pod: str) -> str | None:
        namespace, _, name = pod.partition("/")
        found = self.what_if.get(Pod, name, namespace)
        return found.metadata.creation_timestamp if found is not None else None

    def _holding(self, claim: str) -> tuple[str, int, str | None]:
        found = self.what_if.claims.claim(*claim.split("/", 1))
        allocation = found.status.allocation if found is not None else None
        since = allocation.allocation_timestamp if allocation is not None else None
        return claim, sum(1 for _ in held_by(found)), since

    def _unplaced(self, key: str) -> tuple[str, int, int]:
        row = self._gang(key)
        assert row is not None, "its state is known"
        return key, row["placed"], row["min"]

    def _count(self, table: str, key: str, row: dict[str, Any] | None) -> None:
        if row is not None:
            self._states[table][key] = row["s"]
        else:
            self._states[table].pop(key, None)

    def _refresh_pool(self, id_: PoolID) -> None:
        slices = self._slices.get(id_)
        before = self._cells.pop(id_, {})
        if slices:
            if self._reach is None:
                self._reach = anybodys_reach(self.what_if)
            pool = published_pool(self.what_if.claims.inventory, id_, slices.values(), self._reach)
            cells = cells_of(pool, self._sick, self._used)
            self._cells[id_] = {node: pool_facts(pool, found) for node, found in cells.items()}
        else:
            self._slices.pop(id_, None)
        after = self._cells.get(id_, {})
        for node in {*before, *after}:
            self._dirty["nodes"].add(node)
            (self._pools_of.setdefault(node, set()).add if node in after else self._pools_of[node].discard)(id_)

    def _node(self, name: str) -> dict[str, Any] | None:
        devices = [self._cells[id_][name] for id_ in sorted(self._pools_of.get(name, ()))]
        info = self.what_if.cluster.nodes.get(name)
        counts: dict[str, int] = {}
        for pool in devices:
            for cell in pool["d"]:
                counts[cell["s"]] = counts.get(cell["s"], 0) + 1
        self._counts[name] = counts
        # A node may be unknown because it is gone or may not be read, while its devices are still published.
        if (info is None or info.node is None) and not devices:
            self._counts.pop(name, None)
            return None
        facts = node_facts(info) if info is not None and info.node is not None else {"unknown": name != SEVERAL}
        return {**facts, "dev": devices}

    def _pod(self, key: str) -> dict[str, Any] | None:
        namespace, _, name = key.partition("/")
        pod = self.what_if.get(Pod, name, namespace)
        return pod_row(self.what_if, pod, self._tried(key)) if pod is not None else None

    def _tried(self, pod: str) -> tuple[int, str]:
        """How many failed attempts events report for a pod, and the last time."""
        events = [self._events[key] for key in self._tries.get(pod, ()) if key in self._events]
        return sum(times_of(event) for event in events), max((event.seen_at for event in events), default="")

    def _used(self, claim: object) -> float | None:
        """Percent of their time that the devices of a claim are used; None if that is not measured."""
        assert isinstance(claim, ClaimID)
        found = self._use_of(claim)
        return found[0] if found is not None else None

    def _claim(self, id_: ClaimID | str) -> dict[str, Any] | None:
        namespace, name = id_ if isinstance(id_, ClaimID) else id_.split("/", 1)
        claim = self.what_if.claims.claim(namespace, name)
        if claim is None:
            self._low.pop(f"{namespace}/{name}", None)
            return None
        found = ClaimID(namespace, name)
        return claim_row(claim, self.named_by.get(found, ()), self._use_of(found), self._low.get(str(found)))

    def _gang(self, key: str) -> dict[str, Any] | None:
        namespace, _, name = key.partition("/")
        group = self.what_if.cluster.groups.get((namespace, name))
        if group is None:
            return None
        return gang_row(self.what_if, group, list(self.members(key)))

    def _event(self, key: str) -> dict[str, Any] | None:
        event = self._events.get(key)
        return event_row(event) if event is not None else None

    # --- questions that are quick ---

    def known(self, key: Key) -> APIStruct | None:
        """An object, if it is there."""
        type_, namespace, name = key
        if type_ is Event:
            return self._events.get(f"{namespace}/{name}")
        return self.what_if.get(type_, name, namespace)

    def known_as(self, object_: APIStruct) -> APIStruct | None:
        """What is known under the name of an object."""
        return self.known(key_of(object_))

    def users(self) -> Iterator[str]:
        """The pods on nodes that have claims."""
        for key in self._claims_of:
            namespace, _, name = key.partition("/")
            pod = self.what_if.get(Pod, name, namespace)
            if pod is not None and pod.spec.node_name:
                yield key

    def members(self, gang: str) -> Iterator[Pod]:
        """The pods of a gang."""
        for key in sorted(self._members.get(gang, ())):
            namespace, _, name = key.partition("/")
            pod = self.what_if.get(Pod, name, namespace)
            if pod is not None:
                yield pod

    def events(self) -> Iterator[Event]:
        """Those that are kept."""
        return iter(self._events.values())

    def events_about(self, kind: str, namespace: str, name: str) -> list[dict[str, Any]]:
        """Events about an object, the newest first."""
        found = [
            event_row(event)
            for event in self._events.values()
            if event.involved_object.kind == kind
            and event.involved_object.name == name
            and (event.involved_object.namespace or event.metadata.namespace) == (namespace or event.metadata.namespace)
        ]
        return sorted(found, key=lambda row: str(row["at"]), reverse=True)

    def counts(self) -> dict[str, int]:
        """Pods, claims and gangs that need attention."""
        claims, gangs = (Counter(states.values()) for states in self._states.values())
        return {
            "waiting": len(self._waiting),
            "pendingClaims": claims["pending"],
            "idleClaims": claims["idle"],
            "unplacedGangs": sum(gangs[state] for state in UNPLACED),
        }

    def sample(self, at: float) -> Sample:
        """Devices in use, and what waits."""
        totals: dict[str, int] = {}
        for counts in self._counts.values():
            for state, count in counts.items():
                totals[state] = totals.get(state, 0) + count
        return Sample(
            at=at,
            free=totals.get("f", 0),
            partly=totals.get("p", 0),
            in_use=totals.get("u", 0) + totals.get("b", 0),
            unavailable=totals.get("x", 0),
            waiting=len(self._waiting),
            running=len(self._running),
        )

    def device_names(self) -> Iterator[tuple[str, str]]:
        """Every cell: `driver/pool/name`, and its node."""
        for id_, by_node in self._cells.items():
            for node, pool in by_node.items():
                for cell in pool["d"]:
                    yield f"{id_.driver}/{id_.pool}/{cell['n']}", node

    def device_parts(self) -> Iterator[tuple[str, str]]:
        """Every device that claims can hold: `driver/pool/name`, and its node. Of a GPU that is cut these are its parts."""
        for id_, by_node in self._cells.items():
            for node, pool in by_node.items():
                for cell in pool["d"]:
                    if "kn" not in cell:
                        yield f"{id_.driver}/{id_.pool}/{cell['n']}", node


def is_heartbeat(before: APIStruct | None, after: APIStruct | None) -> bool:
    """Whether only a node's heartbeat has changed."""
    if not isinstance(before, Node) or not isinstance(after, Node):
        return False
    return (
        before.spec == after.spec
        and before.metadata.labels == after.metadata.labels
        and before.status.allocatable == after.status.allocatable
        and [(each.type, each.status) for each in before.status.conditions]
        == [(each.type, each.status) for each in after.status.conditions]
    )


def _meta(object_: APIStruct | None) -> ObjectMeta:
    found: ObjectMeta = object_.metadata  # type: ignore[union-attr]
    return found
