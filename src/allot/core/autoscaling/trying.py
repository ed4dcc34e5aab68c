"""Tries nodes on a cluster: adds template nodes, places units as the scheduler would, and reverts everything."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from allot.core.autoscaling.pools import Pool
from allot.core.autoscaling.templates import Template
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import ClaimFit, Cluster, Machine, Outcome, Placement, Status, Supposing, Unit

_REMEMBERED_MAX = 10_000


class NewNode(msgspec.Struct, frozen=True):
    """A tried node and its pool."""

    name: str
    pool: str


def unit_name(unit: Unit) -> str:
    """A pod's or a group's namespace/name, for display and as a key."""
    if unit.group is not None:
        return f"{unit.group.metadata.namespace}/{unit.group.metadata.name}"
    if unit.tree is not None:
        return f"{unit.tree.group.metadata.namespace}/{unit.tree.group.metadata.name}"
    return f"{unit.pods[0].metadata.namespace}/{unit.pods[0].metadata.name}"


class Memory:
    """Shapes that fit on no node, and as of which change of the cluster. Kept from one plan to the next, so that
    only nodes that have changed since are checked again."""

    def __init__(self) -> None:
        # Positions in the change logs, and nodes on which other pods were tried at the time.
        self._refused: dict[Hashable, tuple[int, int, frozenset[str]]] = {}

    def changed_since(self, cluster: Cluster, shape: Hashable) -> Collection[str] | None:
        """The nodes to check for a shape; None for all."""
        known = self._refused.get(shape)
        # A cancelled nomination is not logged as a change of a node.
        if known is None or cluster.nominated:
            return None
        nodes, devices = cluster.changes.since(known[0]), cluster.device_changes.since(known[1])
        return None if nodes is None or devices is None else nodes | devices | known[2]

    def remember(self, cluster: Cluster, shapes: Iterable[Hashable], but_for: Iterable[str]) -> None:
        """Record shapes that all current nodes refused, except nodes on which other pods had been placed."""
        if len(self._refused) > _REMEMBERED_MAX:
            self._refused.clear()
        known = cluster.changes.position, cluster.device_changes.position, frozenset(but_for)
        if not cluster.nominated:
            self._refused |= dict.fromkeys(shapes, known)


class Trying:
    """Trials on a machine. seconds: since 1970, for decisions that depend on the time."""

    def __init__(self, machine: Machine, seconds: float, memory: Memory | None = None) -> None:
        self.machine = machine
        self._memory = memory if memory is not None else Memory()
        # Shapes without a place on existing nodes, before anything was tried.
        self._refused_there: set[Hashable] = set()
        self._taken_there: set[str] = set()
        self.cluster = machine.cluster
        self.seconds = seconds
        self.supposing = Supposing(machine.cluster, machine.claims)
        self._instances: dict[str, list[Template]] = {}
        self._probes: dict[str, Template] = {}
        self._shapes: dict[str, Hashable | None] = {}
        # Counts queries of the machine, for tests and benchmarks.
        self.questions = 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Everything tried inside the context is reverted at its end."""
        try:
            yield
        finally:
            self.supposing.undo()
            self._memory.remember(self.cluster, self._refused_there, self._taken_there)

    # --- nodes ---

    def add(self, pool: Pool, number: int) -> NewNode:
        """Add the new node of a pool with this number."""
        instances = self._instances.setdefault(pool.name, [])
        while len(instances) <= number:
            instances.append(pool.template.named(pool.instance_name(len(instances))))
        self.add_template(instances[number])
        return NewNode(instances[number].node.metadata.name, pool.name)

    def probe(self, pool: Pool) -> NewNode:
        """Add a separate node of a pool, to check what fits on it."""
        name = f"{pool.instance_name(0)}-probe"
        if name not in self._probes:
            self._probes[name] = pool.template.named(name)
        self.add_template(self._probes[name])
        return NewNode(name, pool.name)

    def made(self, pool: Pool) -> int:
        """How many nodes of a pool have ever been tried."""
        return len(self._instances.get(pool.name, ()))

    def add_again(self, node: NewNode) -> None:
        """Add a node that was tried before."""
        self.add_template(self._template(node))

    def slices(self, node: NewNode) -> tuple[api.ResourceSlice, ...]:
        """The devices of a tried node."""
        return self._template(node).slices

    def _template(self, node: NewNode) -> Template:
        return next(each for each in self._instances[node.pool] if each.node.metadata.name == node.name)

    def add_template(self, template: Template) -> None:
        """Add a node with its devices and its DaemonSet pods."""
        name = template.node.metadata.name
        self.supposing.add_node(template.node, template.slices)
        for claim in template.claims:
            self.supposing.add_claim(claim)
        for pod in template.pods:
            self.supposing.place(self._daemon_placement(pod, name))

    def _daemon_placement(self, pod: core_v1.Pod, node: str) -> Placement:
        """Place a DaemonSet pod on its node; the scheduler chooses the devices for its claims. Without any, the pod waits there."""
        if pod.spec.resource_claims:
            free = replace(pod, spec=replace(pod.spec, node_name=""))
            found = self.machine.consider(Unit(pods=(free,)), self.seconds, (node,)).placements
            if found:
                return found[0]
        return Placement(pod=pod, node=node)

    # --- units ---

    def ask(self, unit: Unit, among: Collection[str] | None = None) -> Outcome:
        """What the scheduler would do with a unit. among: the only nodes for a single pod."""
        self.questions += 1
        return self.machine.consider(unit, self.seconds, among)

    def placed(self, unit: Unit, among: Collection[str] | None = None) -> tuple[Placement, ...]:
        """Place a unit; returns where. Empty if there is no place for it, or not for enough of a gang."""
        outcome = self.ask(unit, among)
        if not self.machine.has_enough(outcome):
            return ()
        for placement in outcome.placements:
            self.supposing.place(placement)
        return outcome.placements

    def place_there(self, units: Sequence[Unit]) -> list[tuple[Placement, ...]]:
        """Place units on existing nodes. Known refusals of identical units are not checked again."""
        found: list[tuple[Placement, ...]] = []
        for unit in units:
            shape = self.shape(unit)
            if shape is not None and shape in self._refused_there:
                found.append(())
                continue
            changed = self._memory.changed_since(self.cluster, shape) if shape is not None else None
            if changed is None:
                placements = self.placed(unit)
            else:
                placements = self.placed(unit, changed) if changed else ()
            self._taken_there |= {placement.node for placement in placements}
            if not placements and shape is not None:
                self._refused_there.add(shape)
            found.append(placements)
        return found

    def place_all(self, units: Sequence[Unit], among: Collection[str] | None = None) -> list[tuple[Placement, ...]]:
        """Place units one after the other. Once one has no place, identical units are not checked."""
        found: list[tuple[Placement, ...]] = []
        hopeless: set[Hashable] = set()
        for unit in units:
            shape = self.shape(unit)
            if shape is not None and shape in hopeless:
                found.append(())
                continue
            placements = self.placed(unit, among if unit.is_lone else None)
            if not placements and shape is not None:
                hopeless.add(shape)
            found.append(placements)
        return found

    def shape(self, unit: Unit) -> Hashable | None:
        """Equal for single pods that every node treats alike, whatever has been placed; None if not comparable."""
        if not unit.is_lone:
            return None
        pod = unit.pods[0]
        uid = pod.metadata.uid or unit_name(unit)
        if uid not in self._shapes:
            self._shapes[uid] = self._shape(pod)
        return self._shapes[uid]

    def _shape(self, pod: core_v1.Pod) -> Hashable | None:
        profile = self.cluster.profile(pod)
        # Mere node preferences (default spreading) do not make pods different.
        depends = profile.affinity_terms or profile.anti_affinity_terms or profile.hard_spreads
        if depends or profile.volume_claims or pod.status.nominated_node_name:
            return None
        if self.cluster.affinity_index.concern(profile):
            return None
        fit = self.machine.claims.fit(pod, None, self.seconds)
        if isinstance(fit, Status):
            return None
        if isinstance(fit, ClaimFit):
            if fit.key is None or fit.nodes is not None or not self._owns(pod):
                return None
            return profile.shape, fit.key
        return (profile.shape,)

    def _owns(self, pod: core_v1.Pod) -> bool:
        """Whether no claim of a pod is shared."""
        claims = self.machine.claims
        found = [claims.claim(*id_) for id_ in claims.claims_of(pod)]
        return all(claim is not None and claim.metadata.owner_references for claim in found)
