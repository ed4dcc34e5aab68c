"""The autoscaler: every few seconds, and soon after something began to wait, it looks at pools and cluster, buys, and gives back.

All that it has to remember for longer than a process lives is at the provider and in the API: what was asked for, which nodes are marked.
What it forgets when it dies (since when a node is unneeded, which pool is left alone) makes it wait longer, never do more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from allot.autoscaler.backoff import Backoff
from allot.autoscaler.compute_classes import ComputeClasses
from allot.autoscaler.draining import CannotDrain, Draining
from allot.autoscaler.groups import Groups, GroupState, ProfileTemplate, instance_name, upcoming_of
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.priorities import PriorityReader
from allot.autoscaler.provider import Instance, Provider, ProviderError
from allot.autoscaler.reporting import Reporting
from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.events import EventRecorder
from allot.core.autoscaling.classes import Classes
from allot.core.autoscaling.daemons import claim_templates
from allot.core.autoscaling.evictable import SCALE_UP_DELAY
from allot.core.autoscaling.expanders import PRIORITY, Expander
from allot.core.autoscaling.migration import Migration, plan_migration
from allot.core.autoscaling.pools import Limits, Pool
from allot.core.autoscaling.scale_down import Candidate, Removal, plan_scale_down
from allot.core.autoscaling.scale_up import Purchase, ScaleUp, Upcoming, plan_scale_up
from allot.core.autoscaling.templates import TO_BE_DELETED
from allot.core.autoscaling.trying import Memory
from allot.core.cel.data.times import SECOND, parse_duration, parse_timestamp
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.resource_v1 import ResourceClaimTemplate, ResourceSlice
from allot.core.scheduling import Change, Machine, Settings, Unit, under
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_log = logging.getLogger("allot.autoscaler")

# After something began to wait, so that what comes together is looked at together.
_GATHER_S = 0.3
_CONTROLLER = "cluster-autoscaler"
# Of nodes that may go however much of them is used.
_ANY = Fraction(2)
_CODES = {"timeout": "timeout", "error": "cloudProviderError", "drivers": "nodeNotReady"}


class _Seen(msgspec.Struct, kw_only=True):
    """Since when a machine or node is not what it is to become."""

    since: float
    group: str


class Autoscaler:
    """Runs until cancelled. feed: calls the handler with every change that decisions look at, and answers with what waits until all is
    known that was there at the start."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        provider: Provider,
        options: AutoscalerOptions,
        profile_template: ProfileTemplate,
        registry: CollectorRegistry,
        gates: FeatureGates = DEFAULT_GATES,
        *,
        instance: str = "autoscaler",
        machines: Sequence[str] = (),
    ) -> None:
        """machines: types of machines that are known, for those who name one that is not."""
        self._clock = clock
        self._provider = provider
        self._options = options
        settings = under(gates, Settings(preempts=False))
        self.machine = Machine(lambda _name: settings, gates)
        self._memory = Memory()
        self._backoff = Backoff(options)
        self._limits = Limits(nodes_total_max=options.max_nodes_total, per_round_max=options.max_nodes_per_scaleup)
        self._groups = Groups(provider, clock, options, self._backoff, profile_template)
        self._events = EventRecorder(
            client, clock, ids, controller=_CONTROLLER, instance=instance, tells_notes_apart=True
        )
        self._reporting = Reporting(client, clock, self._events, options, registry)
        self._draining = Draining(client, clock, self._events, provider, options)
        self._priorities = PriorityReader(client, options.status_namespace)
        self.compute_classes = ComputeClasses(client, clock, machines)
        self._dice = Random(options.seed)
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._slices: dict[str, ResourceSlice] = {}
        # By key; what they run on every node counts on new ones.
        self.daemons: dict[str, DaemonSet] = {}
        self._claim_templates: dict[str, ResourceClaimTemplate] = {}
        # Nodes that pods are to move to.
        self._awaited: set[str] = set()
        self._wake = asyncio.Event()
        # Machines without a node and nodes without devices, by id and name.
        self._unready: dict[str, _Seen] = {}
        self._unneeded: dict[str, float] = {}
        self._removing: dict[str, asyncio.Task[None]] = {}
        self._bought_at = self._removed_at = self._failed_at = float("-inf")
        self._is_clean = False
        # How many rounds have been done, for tests.
        self.rounds = 0

    # --- what happens in the cluster ---

    def changed(self, change: Change) -> None:
        """For informers."""
        new = change.new if change.new is not None else change.old
        kept = self._kept(new)
        if kept is not None:
            if change.new is None:
                kept.pop(change.key, None)
            else:
                kept[change.key] = change.new
        applied = self.machine.apply(change, self._clock.monotonic())
        if applied.wakes:
            self._wake.set()

    def _kept(self, object_: Any) -> dict[str, Any] | None:
        tables: Mapping[type, dict[str, Any]] = {Node: self._nodes, Pod: self._pods, ResourceSlice: self._slices}
        return tables.get(type(object_))

    def daemons_changed(self, change: Change) -> None:
        """For an informer of DaemonSets, as JSON."""
        if change.new is None:
            self.daemons.pop(change.key, None)
            return
        try:
            self.daemons[change.key] = decode_served(without_managed_fields(change.new), DaemonSet)
        except DecodeError as error:
            _log.warning("DaemonSet %s: %s", change.key, error)

    def classes_changed(self, change: Change) -> None:
        """For an informer of ComputeClasses, as JSON."""
        self.compute_classes.changed(change)
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            self._wake.set()

    def claim_templates_changed(self, change: Change) -> None:
        """For an informer of ResourceClaimTemplates: daemons have claims, too."""
        if change.new is None:
            self._claim_templates.pop(change.key, None)
        else:
            self._claim_templates[change.key] = change.new

    # --- rounds ---

    async def run(self, ready: Callable[[], Any]) -> None:
        """Until cancelled. ready: awaited before the first round."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(supervise("events", self._events.run, self._clock))
            await ready()
            tasks.create_task(supervise("the autoscaler", lambda: self._scan(tasks), self._clock))

    async def _scan(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._wake.clear()
            await self.look(tasks)
            try:
                async with asyncio.timeout(self._options.scan_interval_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
            await self._clock.sleep(min(_GATHER_S, self._options.scan_interval_s))

    async def look(self, tasks: asyncio.TaskGroup) -> None:
        """One round."""
        states: list[GroupState] = []
        problem = ""
        try:
            if not self._is_clean:
                await self._draining.clean_up(list(self._nodes.values()))
                self._is_clean = True
            nodes, daemons = list(self._nodes.values()), list(self.daemons.values())
            templates = claim_templates(self._claim_templates.values())
            states = await self._groups.look(nodes, self._slices.values(), daemons, templates)
            if PRIORITY in self._options.expander:
                await self._prioritize(states)
            self.compute_classes.rank(states)
            await self._give_up_lost(states)
            await self._scale_up(states)
            await self._migrate(states, tasks)
            self._scale_down(states, tasks)
            await self._mark_unneeded(states)
        except (ProviderError, ApiError) as error:
            problem = str(error)
            _log.warning("%s", problem)
            self._reporting.error("cloudProviderError" if isinstance(error, ProviderError) else "apiCallError")
        self._reporting.round(states, len(self._unneeded), is_safe=not problem)
        try:
            await self._reporting.write_status(states, self._backoff, self._unneeded, problem=problem)
        except ApiError as error:
            _log.warning("status not written: %s", error)
        if states:
            await self.compute_classes.write(states, self._backoff)
        self.rounds += 1

    async def _prioritize(self, states: Sequence[GroupState]) -> None:
        priorities = await self._priorities.read()
        for state in states:
            if state.pool is not None:
                state.pool = msgspec.structs.replace(state.pool, priority=priorities.of(state.name))

    # --- what never came ---

    async def _give_up_lost(self, states: Sequence[GroupState]) -> None:
        """Machines that broke, never registered or have drivers that never published are given back, and their pool is left alone."""
        now = self._clock.seconds()
        seen: dict[str, _Seen] = {}
        for state in states:
            for instance in state.broken:
                await self._give_back(state, instance, instance.error_code, instance.error)
            for instance in state.pending:
                entry = seen[instance.id] = self._unready.get(instance.id) or _Seen(since=now, group=state.name)
                if now - entry.since > state.options.provision_s:
                    text = f"machine {instance.id} has not registered within {state.options.provision_s:g} s"
                    await self._give_back(state, instance, _CODES["timeout"], text)
            for node in state.starting:
                name = node.metadata.name
                entry = seen[name] = self._unready.get(name) or _Seen(since=now, group=state.name)
                if now - entry.since > state.options.provision_s and name not in self._removing:
                    await self._give_up_node(state, node)
            key = f"missing:{state.name}"
            if state.missing:
                entry = seen[key] = self._unready.get(key) or _Seen(since=now, group=state.name)
                if now - entry.since > state.options.provision_s:
                    text = (
                        f"of {state.target} machines that the provider was asked for, {state.missing} were never made"
                    )
                    await self._decrease(state, text)
            if state.ready and not state.pending and not state.starting and not state.broken and not state.missing:
                self._came(state, seen)
        self._unready = seen

    def _came(self, state: GroupState, seen: Mapping[str, _Seen]) -> None:
        """All that was asked for is there."""
        if any(each.group == state.name for each in self._unready.values()) and not any(
            each.group == state.name for each in seen.values()
        ):
            self._backoff.succeeded(state.name)

    async def _give_back(self, state: GroupState, instance: Instance, code: str, why: str) -> None:
        self._blame(state, code, why)
        try:
            await self._provider.delete(state.name, [instance_name(instance)])
        except ProviderError as error:
            _log.warning("pool %s: machine %s is not given back: %s", state.name, instance.id, error)

    async def _give_up_node(self, state: GroupState, node: Node) -> None:
        published = {each.spec.driver for each in self._slices.values() if each.spec.node_name == node.metadata.name}
        drivers = state.pool.template.drivers if state.pool is not None else ()
        lacking = [driver for driver in drivers if driver not in published]
        what = f"driver {', '.join(lacking)} has not published devices" if lacking else "it has not become ready"
        text = f"node {node.metadata.name}: {what} within {state.options.provision_s:g} s"
        self._blame(state, _CODES["drivers"], text)
        pods = [pod for pod in self._pods.values() if pod.spec.node_name == node.metadata.name]
        if not any(pod.status.phase == "Running" and pod.metadata.owner_references for pod in pods):
            try:
                await self._draining.remove(state.name, node, ())
            except CannotDrain as error:
                _log.warning("node %s stays: %s", node.metadata.name, error)

    async def _decrease(self, state: GroupState, why: str) -> None:
        self._blame(state, _CODES["error"], why)
        try:
            await self._provider.decrease_target(state.name, state.missing)
        except ProviderError as error:
            _log.warning("pool %s: %s", state.name, error)

    def _blame(self, state: GroupState, code: str, why: str) -> None:
        """Leave a pool alone for a while."""
        pause = self._backoff.failed(state.name, code, why, self._clock.seconds())
        _log.warning("pool %s is left alone for %g s: %s", state.name, pause.duration_s, why)
        self._reporting.failed(state, code)
        if state.pool is not None:
            state.pool = msgspec.structs.replace(state.pool, closed=why)

    # --- up ---

    async def _scale_up(self, states: Sequence[GroupState]) -> None:
        """Buy, and if a pool fails, look again without it."""
        for _ in range(len(states) + 1):
            plan = self._plan(states)
            self._reporting.expectations(plan, self._pods)
            if not plan.purchases or not await self._buy(plan, states):
                return

    def _plan(self, states: Sequence[GroupState]) -> ScaleUp:
        pools = [each.pool for each in states if each.pool is not None]
        dice = {pool.name: self._dice.random() for pool in pools}
        expander = Expander(self._options.expander, {pool.name: pool for pool in pools}, dice)
        slices = list(self._slices.values())
        return plan_scale_up(
            self.machine,
            pools,
            expander,
            seconds=self._clock.seconds(),
            limits=self._limits,
            upcoming=self._upcoming(states, slices),
            units=self._waiting(),
            memory=self._memory,
            classes=self.compute_classes.known,
        )

    def _upcoming(self, states: Sequence[GroupState], slices: Sequence[ResourceSlice]) -> list[Upcoming]:
        return [each for each in upcoming_of(states, slices) if each.template.node.metadata.name not in self._removing]

    def _waiting(self) -> list[Unit]:
        """Those that nothing else is done for: no preemption has promised them a node, they are no daemons, and not too young."""
        return [unit for unit in self.machine.waiting() if not any(self._is_left_alone(pod) for pod in unit.pods)]

    def _is_left_alone(self, pod: Pod) -> bool:
        if pod.status.nominated_node_name or any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
            return True
        delay = self._options.new_pod_scale_up_delay_s
        own = parse_duration(pod.metadata.annotations.get(SCALE_UP_DELAY, ""))
        if own is not None:
            delay = own.nanoseconds / SECOND
        created = parse_timestamp(pod.metadata.creation_timestamp or "") if delay else None
        return created is not None and self._clock.seconds() - created.nanoseconds / SECOND < delay

    async def _buy(self, plan: ScaleUp, states: Sequence[GroupState]) -> bool:
        """Ask for what is planned; whether something failed, so that another plan is needed."""
        by_name = {state.name: state for state in states}
        has_failed = False
        for purchase in plan.purchases:
            state = by_name[purchase.pool]
            try:
                await self._provider.increase(purchase.pool, purchase.count)
                size = await self._provider.target_size(purchase.pool)
            except ProviderError as error:
                self._blame(state, _CODES["error"], str(error))
                has_failed = True
                continue
            wanted = state.target + purchase.count
            self._asked(state, purchase, size)
            if size < wanted:
                why = f"the provider was asked for a size of {wanted} and set {size}"
                self._blame(state, _CODES["error"], why)
                has_failed = True
        return has_failed

    def _asked(self, state: GroupState, purchase: Purchase, size: int) -> None:
        _log.info("scale-up: %s", purchase.text)
        assert state.pool is not None, "it was in the plan"
        more = max(size - state.target, 0)
        state.target, state.missing = size, state.missing + more
        state.pool = msgspec.structs.replace(state.pool, size=size)
        self._bought_at = self._clock.monotonic()
        self._reporting.bought(state, more)

    # --- to a better priority ---

    async def _migrate(self, states: Sequence[GroupState], tasks: asyncio.TaskGroup) -> None:
        """One step for one node, as long as no other node is being emptied."""
        self._awaited = set()
        classes = self.compute_classes.known
        if classes is None or not self._options.scale_down_enabled or self._removing:
            return
        found = self._plan_migration(states, classes)
        if found is None:
            return
        if found.removal is not None:
            self._awaited = {move.to for move in found.removal.moves}
            by_name = {state.name: state for state in states}
            work = self._remove(by_name[found.removal.pool], found.removal)
            self._removing[found.node] = tasks.create_task(work, name="drain")
        elif found.count:
            await self._buy_for(found, states)

    def _plan_migration(self, states: Sequence[GroupState], classes: Classes) -> Migration | None:
        slices = list(self._slices.values())
        known = len(self._nodes) + sum(len(each.pending) + each.missing for each in states)
        return plan_migration(
            self.machine,
            self._candidates(states),
            [state.pool for state in states if state.pool is not None],
            slices,
            classes,
            seconds=self._clock.seconds(),
            rules=self._options.rules,
            upcoming=self._upcoming(states, slices),
            nodes_max=self._limits.room(known),
            memory=self._memory,
        )

    async def _buy_for(self, found: Migration, states: Sequence[GroupState]) -> None:
        pool = next(state.pool for state in states if state.pool is not None and state.name == found.pool)
        size = pool.size + found.count
        _log.info(
            "the pods of node %s can have nodes of a better priority: %d of %s", found.node, found.count, pool.name
        )
        purchase = Purchase(pool=pool.name, count=found.count, size=size, max_size=pool.max_size, price=pool.price)
        await self._buy(ScaleUp(purchases=(purchase,)), states)

    # --- down ---

    def _candidates(self, states: Sequence[GroupState]) -> list[Candidate]:
        """Nodes that are there and not on their way out."""
        return [
            Candidate(node.metadata.name, state.name, self._threshold(state, state.pool))
            for state in states
            if state.pool is not None
            for node in state.ready
            if node.metadata.name not in self._removing
        ]

    def _threshold(self, state: GroupState, pool: Pool) -> Fraction:
        """The part below which a node may go: as its ComputeClass has it, else as its group does."""
        classes, options = self.compute_classes.known, state.options
        own = classes.threshold(pool) if classes is not None else None
        if own is not None:
            return own
        has_devices = bool(pool.template.slices)
        return Fraction(options.gpu_utilization_threshold if has_devices else options.utilization_threshold)

    def _unneeded_time_s(self, state: GroupState, node: str) -> float:
        """How long a node must be unneeded before it goes."""
        if any(each.metadata.name == node for each in state.unready):
            return state.options.unready_s
        classes = self.compute_classes.known
        own = classes.delay_s(state.pool) if classes is not None and state.pool is not None else None
        return state.options.unneeded_s if own is None else own / self._options.time_factor

    async def _mark_unneeded(self, states: Sequence[GroupState]) -> None:
        """So that the scheduler prefers others."""
        nodes = [node for state in states for node in state.ready if node.metadata.name not in self._removing]
        await self._draining.soften(nodes, self._unneeded)

    def _scale_down(self, states: Sequence[GroupState], tasks: asyncio.TaskGroup) -> None:
        options, now = self._options, self._clock.monotonic()
        if not options.scale_down_enabled:
            return
        removals = [each for each in self._removable(states) if each.node not in self._awaited]
        self._unneeded = {each.node: self._unneeded.get(each.node, now) for each in removals}
        waits = (
            (self._bought_at, options.scale_down_delay_after_add_s),
            (self._removed_at, options.scale_down_delay_after_delete_s),
            (self._failed_at, options.scale_down_delay_after_failure_s),
        )
        if any(now - at < pause for at, pause in waits):
            return
        draining = sum(1 for task in self._removing.values() if task.get_name() == "drain")
        by_name = {state.name: state for state in states}
        for removal in removals:
            if now - self._unneeded[removal.node] < self._unneeded_time_s(by_name[removal.pool], removal.node):
                continue
            if len(self._removing) >= options.max_scale_down_parallelism:
                break
            if removal.moves and draining >= options.max_drain_parallelism:
                continue
            draining += bool(removal.moves)
            work = self._remove(by_name[removal.pool], removal)
            name = "drain" if removal.moves else "empty"
            self._removing[removal.node] = tasks.create_task(work, name=name)

    def _removable(self, states: Sequence[GroupState]) -> Sequence[Removal]:
        """With proof. Nodes that are on their way out count as gone from their pool."""
        pools: list[Pool] = []
        for state in states:
            if state.pool is not None:
                leaving = sum(1 for node in state.ready if node.metadata.name in self._removing)
                pools.append(msgspec.structs.replace(state.pool, size=state.target - leaving))
        slices = list(self._slices.values())
        useless = [
            Candidate(node.metadata.name, state.name, _ANY)
            for state in states
            if state.pool is not None
            for node in state.unready
            if node.metadata.name not in self._removing
        ]
        return plan_scale_down(
            self.machine,
            [*self._candidates(states), *useless],
            pools,
            slices,
            seconds=self._clock.seconds(),
            rules=self._options.rules,
            upcoming=[each.template for each in upcoming_of(states, slices)],
            memory=self._memory,
        ).removals

    async def _remove(self, state: GroupState, removal: Removal) -> None:
        node = self._nodes.get(removal.node)
        pods = [self._pods[move.pod] for move in removal.moves if move.pod in self._pods]
        try:
            if node is None or any(taint.key == TO_BE_DELETED for taint in node.spec.taints):
                return
            _log.info("scale-down: node %s of %s, %d pods move", removal.node, removal.pool, len(pods))
            await self._draining.remove(removal.pool, node, pods)
            self._removed_at = self._clock.monotonic()
            self._reporting.removed(state, was_empty=not pods, pods=len(pods))
        except CannotDrain as error:
            self._failed_at = self._clock.monotonic()
            _log.warning("node %s stays: %s", removal.node, error)
        finally:
            self._removing.pop(removal.node, None)
            self._unneeded.pop(removal.node, None)
            self._wake.set()
