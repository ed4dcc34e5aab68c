"""The autoscaler's loop: every few seconds, and soon after a pod becomes pending, it checks pools and cluster, and adds and removes nodes.

All persistent state is at the provider and in the API: requested sizes, tainted nodes.
State that is lost with the process (since when a node is unneeded, pools in backoff) only makes it wait longer, never do more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from allot.autoscaler.backoff import Backoff
from allot.autoscaler.compute_classes import ComputeClasses
from allot.autoscaler.draining import CannotDrain, Draining
from allot.autoscaler.groups import Groups, GroupState, ProfileTemplate, instance_name
from allot.autoscaler.known_cluster import KnownCluster
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.priorities import PriorityReader
from allot.autoscaler.provider import Instance, Provider, ProviderError
from allot.autoscaler.removing import Removing
from allot.autoscaler.reporting import Reporting
from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.events import EventRecorder
from allot.core.autoscaling.evictable import SCALE_UP_DELAY
from allot.core.autoscaling.expanders import PRIORITY, Expander
from allot.core.autoscaling.pools import Limits
from allot.core.autoscaling.scale_up import Purchase, ScaleUp, plan_scale_up
from allot.core.cel.data.times import SECOND, parse_duration, parse_timestamp
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model.core_v1 import Node, Pod
from allot.core.scheduling import Change, Machine, Unit
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_log = logging.getLogger("allot.autoscaler")

# The delay after a pod becomes pending, so that pods created together are handled together.
_GATHER_S = 0.3
_CONTROLLER = "cluster-autoscaler"
_CODES = {"timeout": "timeout", "error": "cloudProviderError", "drivers": "nodeNotReady"}


class _Seen(msgspec.Struct, kw_only=True):
    """When a machine or node was first seen unready."""

    since: float
    group: str


class Autoscaler:
    """Runs until cancelled. feed: calls the handler with every relevant change, and returns a function that waits until everything that
    existed at the start is known."""

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
        """machines: known machine types, for suggestions."""
        self._clock = clock
        self._provider = provider
        self._options = options
        self._known = KnownCluster(clock, gates)
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
        self._wake = asyncio.Event()
        self._removing = Removing(
            self._known, clock, options, self._draining, self._reporting, self.compute_classes, self._wake.set
        )
        # Machines without a node and nodes without devices, by id and name.
        self._unready: dict[str, _Seen] = {}
        self._bought_at = float("-inf")
        self._is_clean = False
        # How many rounds have been done, for tests.
        self.rounds = 0

    # --- what happens in the cluster ---

    @property
    def machine(self) -> Machine:
        """The scheduler's machine, which decides where pods would run."""
        return self._known.machine

    def changed(self, change: Change) -> None:
        """For informers of relevant kinds, and of ResourceClaimTemplates."""
        if self._known.changed(change):
            self._wake.set()

    def daemons_changed(self, change: Change) -> None:
        """For an informer of DaemonSets, as JSON."""
        self._known.daemons_changed(change)

    def classes_changed(self, change: Change) -> None:
        """For an informer of ComputeClasses, as JSON."""
        self.compute_classes.changed(change)
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            self._wake.set()

    # --- rounds ---

    async def run(self, ready: Callable[[], Any]) -> None:
        """Run until cancelled. ready: awaited before the first round."""
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
                await self._draining.clean_up(list(self._known.nodes.values()))
                self._is_clean = True
            known = self._known
            states = await self._groups.look(
                list(known.nodes.values()), known.slices, known.daemons, known.claim_templates
            )
            if PRIORITY in self._options.expander:
                await self._prioritize(states)
            self.compute_classes.rank(states)
            await self._give_up_lost(states)
            await self._scale_up(states)
            await self._migrate(states, tasks)
            self._removing.scale_down(states, tasks, self._bought_at)
            await self._removing.mark(states)
        except (ProviderError, ApiError) as error:
            problem = str(error)
            _log.warning("%s", problem)
            self._reporting.error("cloudProviderError" if isinstance(error, ProviderError) else "apiCallError")
        unneeded = self._removing.unneeded
        self._reporting.round(states, len(unneeded), is_safe=not problem)
        try:
            await self._reporting.write_status(states, self._backoff, unneeded, problem=problem)
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

    # --- machines that never registered ---

    async def _give_up_lost(self, states: Sequence[GroupState]) -> None:
        """Delete machines that broke, never registered or whose drivers never published, and back off from their pool."""
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
                if now - entry.since > state.options.provision_s and not self._removing.is_going(name):
                    await self._give_up_node(state, node)
            key = f"missing:{state.name}"
            if state.missing:
                entry = seen[key] = self._unready.get(key) or _Seen(since=now, group=state.name)
                if now - entry.since > state.options.provision_s:
                    text = f"of {state.target} requested machines, the provider never created {state.missing}"
                    await self._decrease(state, text)
            if state.ready and not state.pending and not state.starting and not state.broken and not state.missing:
                self._came(state, seen)
        self._unready = seen

    def _came(self, state: GroupState, seen: Mapping[str, _Seen]) -> None:
        """End the backoff of a pool once everything requested has registered."""
        if any(each.group == state.name for each in self._unready.values()) and not any(
            each.group == state.name for each in seen.values()
        ):
            self._backoff.succeeded(state.name)

    async def _give_back(self, state: GroupState, instance: Instance, code: str, why: str) -> None:
        self._blame(state, code, why)
        try:
            await self._provider.delete(state.name, [instance_name(instance)])
        except ProviderError as error:
            _log.warning("pool %s: machine %s was not deleted: %s", state.name, instance.id, error)

    async def _give_up_node(self, state: GroupState, node: Node) -> None:
        published = {each.spec.driver for each in self._known.slices if each.spec.node_name == node.metadata.name}
        drivers = state.pool.template.drivers if state.pool is not None else ()
        lacking = [driver for driver in drivers if driver not in published]
        what = f"driver {', '.join(lacking)} has not published devices" if lacking else "it has not become ready"
        text = f"node {node.metadata.name}: {what} within {state.options.provision_s:g} s"
        self._blame(state, _CODES["drivers"], text)
        pods = [pod for pod in self._known.pods.values() if pod.spec.node_name == node.metadata.name]
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
        """Put a pool into backoff."""
        pause = self._backoff.failed(state.name, code, why, self._clock.seconds())
        _log.warning("pool %s is left alone for %g s: %s", state.name, pause.duration_s, why)
        self._reporting.failed(state, code)
        if state.pool is not None:
            state.pool = msgspec.structs.replace(state.pool, closed=why)

    # --- up ---

    async def _scale_up(self, states: Sequence[GroupState]) -> None:
        """Buy nodes; if a pool fails, plan again without it."""
        for _ in range(len(states) + 1):
            plan = self._plan(states)
            self._reporting.expectations(plan, self._known.pods)
            if not plan.purchases or not await self._buy(plan, states):
                return

    def _plan(self, states: Sequence[GroupState]) -> ScaleUp:
        pools = [each.pool for each in states if each.pool is not None]
        dice = {pool.name: self._dice.random() for pool in pools}
        expander = Expander(self._options.expander, {pool.name: pool for pool in pools}, dice)
        return plan_scale_up(
            self.machine,
            pools,
            expander,
            seconds=self._clock.seconds(),
            limits=self._limits,
            upcoming=self._removing.upcoming(states),
            units=self._waiting(),
            memory=self._known.memory,
            classes=self.compute_classes.known,
        )

    def _waiting(self) -> list[Unit]:
        """Pending pods that need help: without a nominated node, not of a DaemonSet, and not too young."""
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
        """Request the planned nodes; returns whether something failed, so that another plan is needed."""
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
                why = f"requested a size of {wanted}, but the provider set {size}"
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

    async def _migrate(self, states: Sequence[GroupState], tasks: asyncio.TaskGroup) -> None:
        """Migrate to a better priority: buy the nodes that a step needs."""
        known = len(self._known.nodes) + sum(len(each.pending) + each.missing for each in states)
        found = self._removing.migrate(states, tasks, self._limits.room(known))
        if found is None:
            return
        pool = next(state.pool for state in states if state.pool is not None and state.name == found.pool)
        size = pool.size + found.count
        _log.info(
            "the pods of node %s can have nodes of a better priority: %d of %s", found.node, found.count, pool.name
        )
        purchase = Purchase(pool=pool.name, count=found.count, size=size, max_size=pool.max_size, price=pool.price)
        await self._buy(ScaleUp(purchases=(purchase,)), states)
