"""Combines what the provider and the cluster know about pools: their nodes, nodes that are coming, and nodes that never came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allot.autoscaler.backoff import Backoff
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.provider import (
    PROFILE_LABEL,
    Group,
    GroupOptions,
    Instance,
    NodeName,
    Provider,
    ProviderError,
    State,
)
from allot.core.autoscaling.daemons import ClaimTemplates, with_daemons
from allot.core.autoscaling.pools import MILLION, Pool, price_text
from allot.core.autoscaling.scale_up import Upcoming
from allot.core.autoscaling.templates import Template, like_node
from allot.core.cel.data.times import SECOND, parse_timestamp
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice
from allot.process.clock import Clock, rfc3339

_HOUR_S = 3600.0
# Taints of registered nodes that do not accept pods yet.
_STARTING_TAINTS = ("node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/uninitialized")
_NO_TEMPLATE = "the provider does not describe its nodes, and it has none yet"
# The definition of a profile's node, by name; None if the profile does not exist.
ProfileTemplate = Callable[[str], Template | None]


class GroupState(msgspec.Struct, kw_only=True):
    """The current state of a pool. ready: nodes with all their devices; starting: nodes that were never ready; unready: those that were ready
    before; pending: machines without a node; missing: requested machines that do not exist."""

    group: Group
    target: int
    pool: Pool | None
    options: GroupOptions
    ready: list[Node] = []
    starting: list[Node] = []
    unready: list[Node] = []
    pending: list[Instance] = []
    broken: list[Instance] = []
    missing: int = 0
    problem: str = ""

    @property
    def name(self) -> str:
        """Of the pool."""
        return self.group.id


def name_of(node: Node) -> NodeName:
    """A node, as providers know it."""
    metadata = node.metadata
    return NodeName(
        provider_id=node.spec.provider_id,
        name=metadata.name,
        labels=metadata.labels,
        annotations=metadata.annotations,
    )


def instance_name(instance: Instance) -> NodeName:
    """A machine that has no node, as providers know it."""
    return NodeName(provider_id=instance.id, name=instance.id.rpartition("/")[2])


def is_ready(node: Node) -> bool:
    """Whether a node reports ready, and its taints agree."""
    if any(taint.key in _STARTING_TAINTS for taint in node.spec.taints):
        return False
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


class Groups:
    """Reads pools from the provider. profile_template: for groups with only a known profile."""

    def __init__(
        self,
        provider: Provider,
        clock: Clock,
        options: AutoscalerOptions,
        backoff: Backoff,
        profile_template: ProfileTemplate,
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._options = options
        self._backoff = backoff
        self._profile_template = profile_template
        # By providerID and uid; a node does not change its group.
        self._group_of: dict[tuple[str, str], str] = {}
        self._templates: dict[str, Template] = {}
        self._prices: dict[str, int] = {}
        self._daemons: Sequence[DaemonSet] = ()
        self._claim_templates: ClaimTemplates | None = None
        # Nodes that were ready before or existed at the first look, by uid.
        self._have_been_ready: set[str] = set()
        self._old: set[str] | None = None
        self._tells_options = True

    async def look(
        self,
        nodes: Iterable[Node],
        slices: Iterable[ResourceSlice],
        daemons: Sequence[DaemonSet] = (),
        claim_templates: ClaimTemplates | None = None,
    ) -> list[GroupState]:
        """All pools. daemons, claim_templates: for pods that run on every node, and their claims. ProviderError if the provider does not answer at
        all."""
        self._daemons, self._claim_templates = daemons, claim_templates
        await self._provider.refresh()
        groups = await self._provider.groups()
        by_group: dict[str, list[Node]] = {}
        known = set()
        for node in nodes:
            key = (node.spec.provider_id or node.metadata.name, node.metadata.uid)
            known.add(key)
            if key not in self._group_of:
                self._group_of[key] = await self._provider.group_of(name_of(node))
            by_group.setdefault(self._group_of[key], []).append(node)
        self._group_of = {key: group for key, group in self._group_of.items() if key in known}
        uids = {uid for _, uid in known}
        self._have_been_ready &= uids
        self._old = uids if self._old is None else self._old & uids
        slices_of: dict[str, list[ResourceSlice]] = {}
        for slice_ in slices:
            if slice_.spec.node_name:
                slices_of.setdefault(slice_.spec.node_name, []).append(slice_)
        return [await self._state(group, by_group.get(group.id, []), slices_of) for group in groups]

    async def _state(
        self, group: Group, nodes: Sequence[Node], slices_of: Mapping[str, Sequence[ResourceSlice]]
    ) -> GroupState:
        try:
            target = await self._provider.target_size(group.id)
            instances = await self._provider.instances(group.id)
            pool = await self._pool(group, target, nodes, slices_of)
            options = await self._options_of(group)
        except ProviderError as error:
            self._backoff.failed(group.id, "providerError", str(error), self._clock.seconds())
            options = self._options.of_groups
            return GroupState(
                group=group, target=len(nodes), pool=None, options=options, ready=list(nodes), problem=str(error)
            )
        state = GroupState(group=group, target=target, pool=pool, options=options)
        drivers = pool.template.drivers if pool is not None else ()
        for node in nodes:
            published = {slice_.spec.driver for slice_ in slices_of.get(node.metadata.name, ())}
            if is_ready(node) and all(driver in published for driver in drivers):
                self._have_been_ready.add(node.metadata.uid)
                state.ready.append(node)
            else:
                (state.starting if self._is_starting(node, options) else state.unready).append(node)
        ids = {node.spec.provider_id for node in nodes}
        for instance in instances:
            if instance.error_code:
                state.broken.append(instance)
            elif instance.id not in ids and instance.state is not State.DELETING:
                state.pending.append(instance)
        alive = len(nodes) + len(state.pending) + len(state.broken)
        state.missing = max(target - alive, 0)
        return state

    def _is_starting(self, node: Node, options: GroupOptions) -> bool:
        """Whether an unready node may still be starting. A node older than this process is judged by its age; twice the allowed time,
        because a node is given up only after being watched for that time."""
        uid = node.metadata.uid
        if uid in self._have_been_ready:
            return False
        if self._old is None or uid not in self._old:
            return True
        created = parse_timestamp(node.metadata.creation_timestamp or "")
        age_s = self._clock.seconds() - created.nanoseconds / SECOND if created is not None else 0.0
        return age_s <= 2 * options.provision_s

    async def _options_of(self, group: Group) -> GroupOptions:
        defaults = self._options.of_groups
        if not self._tells_options:
            return defaults
        found = await self._provider.options(group.id, defaults)
        # A provider that lacks this call lacks it for all groups.
        self._tells_options = found is not None
        return found or defaults

    async def _pool(
        self, group: Group, target: int, nodes: Sequence[Node], slices_of: Mapping[str, Sequence[ResourceSlice]]
    ) -> Pool | None:
        template = await self._template(group, nodes, slices_of)
        if template is None:
            return None
        now = self._clock.seconds()
        pause = self._backoff.of(group.id, now)
        closed = f"{pause.reason}; it is asked again after {rfc3339(int(pause.until))}" if pause is not None else ""
        return Pool(
            name=group.id,
            template=with_daemons(template, self._daemons, self._claim_templates),
            size=target,
            min_size=group.min_size,
            max_size=group.max_size,
            price=await self._price(group, template),
            closed=closed,
        )

    async def _template(
        self, group: Group, nodes: Sequence[Node], slices_of: Mapping[str, Sequence[ResourceSlice]]
    ) -> Template | None:
        """The template of a node: from the provider, including devices; or from a profile; or from a live node with all its devices."""
        found = self._templates.get(group.id)
        if found is None:
            told = await self._provider.template(group.id)
            if told is not None:
                found = Template(node=told.node, slices=told.slices or (), source="the provider" if told.slices else "")
            profile = self._options.profiles.get(group.id, "")
            if not profile and found is not None and not found.slices:
                profile = found.node.metadata.labels.get(PROFILE_LABEL, "")
            by_profile = self._profile_template(profile) if profile else None
            if by_profile is not None:
                found = _joined(found, by_profile)
            if found is not None:
                self._templates[group.id] = found
        if found is not None and found.source:
            return found
        ready = sorted((node for node in nodes if is_ready(node)), key=lambda node: node.metadata.name)
        if ready:
            return like_node(ready[0], slices_of.get(ready[0].metadata.name, ()))
        return found

    async def _price(self, group: Group, template: Template) -> int:
        if group.id in self._options.prices:
            return self._options.prices[group.id]
        if group.id not in self._prices:
            now = self._clock.seconds()
            price = await self._provider.price(name_of(template.node), now, now + _HOUR_S)
            self._prices[group.id] = round(max(price or 0.0, 0.0) * MILLION)
        return self._prices[group.id]


def _joined(told: Template | None, profile: Template) -> Template:
    """The provider's node, if it describes one, with a profile's devices."""
    if told is None:
        return profile
    name = told.node.metadata.name or profile.node.metadata.name
    renamed = profile.named(name)
    node = replace(told.node, metadata=replace(told.node.metadata, name=name))
    return Template(node=node, slices=renamed.slices, source=profile.source)


def upcoming_of(states: Iterable[GroupState], slices: Iterable[ResourceSlice]) -> list[Upcoming]:
    """Future nodes as they will be. An existing unready node counts as what it will be."""
    published: dict[str, set[str]] = {}
    for slice_ in slices:
        published.setdefault(slice_.spec.node_name or "", set()).add(slice_.spec.driver)
    found = []
    for state in states:
        if state.pool is None:
            continue
        template = state.pool.template
        for node in state.starting:
            made = template.named(node.metadata.name)
            there = published.get(node.metadata.name, set())
            rest = tuple(each for each in made.slices if each.spec.driver not in there)
            labels = {**made.node.metadata.labels, **node.metadata.labels}
            metadata = replace(made.node.metadata, labels=labels)
            node_then = replace(made.node, metadata=metadata)
            # DaemonSet pods appear by themselves.
            found.append(Upcoming(state.name, replace(made, slices=rest, pods=(), claims=(), node=node_then)))
        for number in range(len(state.pending) + state.missing):
            found.append(Upcoming(state.name, template.named(f"coming-{state.name}-{number}")))
    return found


def described(pool: Pool) -> str:
    """A pool's status, in words."""
    return f"{pool.name} ({pool.size} of {pool.min_size} to {pool.max_size}, {price_text(pool.price)} per hour)"
