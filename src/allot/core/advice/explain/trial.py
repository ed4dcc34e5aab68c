"""Whether a pod or a gang could be scheduled now: the scheduler's decision, and what comes before and right after it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from allot.core.advice.explain.aftermath import settle
from allot.core.advice.explain.report import Patch
from allot.core.advice.world import SETTINGS, Journal, World
from allot.core.lifecycle.claim_owners import claim_name, is_reserved_for
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.patching import PatchError
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.binding_conditions import Binding, binding_state, has_conditions
from allot.core.scheduling.decide import decide
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.groups import minimum_of
from allot.core.scheduling.plan import Decision, Placement, Unit
from allot.core.scheduling.status import Status, Verdict

DEFAULT_SCHEDULER = "default-scheduler"
PodKey = tuple[str, str]


class Subject(msgspec.Struct, frozen=True):
    """What is asked about: one pod, or the pods of a gang that wait."""

    pods: tuple[PodKey, ...]
    # Namespace and name of the gang.
    group: PodKey | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision is. Placements that are not enough for a gang are there all the same."""

    schedulable: bool
    placements: tuple[Placement, ...] = ()
    # Of a lone pod.
    failure: Failure | None = None
    # Of a gang.
    decision: Decision | None = None


def known_schedulers(world: World) -> set[str]:
    """Schedulers that certainly run: the usual one, and those that have placed a pod."""
    return {DEFAULT_SCHEDULER} | {info.pod.spec.scheduler_name for info in world.cluster.pods.values()}


def is_full(claim: api.ResourceClaim, pod: core_v1.Pod) -> bool:
    """Whether a claim takes no more users, and the pod is none of them."""
    users = claim.status.reserved_for
    return len(users) >= api.RESERVED_FOR_MAX and not is_reserved_for(pod, claim, accepts_group=True)


def gate(world: World, pod: core_v1.Pod) -> Status | None:
    """Why the scheduler does not even try the pod."""
    if pod.spec.scheduling_gates:
        names = " ".join(found.name for found in pod.spec.scheduling_gates)
        return _stop("SchedulingGates", f"waiting for scheduling gates: [{names}]")
    if pod.spec.scheduler_name not in known_schedulers(world):
        return _stop("", f"no scheduler is called {pod.spec.scheduler_name}")
    status = world.claims.gate(pod)
    if status is not None:
        return status
    for entry in pod.spec.resource_claims:
        claim = world.get(api.ResourceClaim, claim_name(pod, entry), pod.metadata.namespace)
        if claim is not None and is_full(claim, pod):
            return _stop("DynamicResources", f"claim {claim.metadata.name} takes no more users")
    return None


def unready(world: World, pod: core_v1.Pod) -> api.ResourceClaim | None:
    """A claim of the pod whose devices have been allocated, but are not ready to be used."""
    for namespace, name in world.claims.claims_of(pod):
        claim = world.get(api.ResourceClaim, name, namespace)
        if claim is None or not has_conditions(claim):
            continue
        if binding_state(claim, world.now).binding is Binding.PENDING:
            return claim
    return None


def _stop(plugin: str, text: str) -> Status:
    return Status(verdict=Verdict.UNRESOLVABLE, plugin=plugin, reasons=(text,))


def try_out(world: World, subject: Subject, among: Collection[str] | None = None) -> Outcome:
    """The decision on the world as it is. among: the only nodes to look at for a lone pod."""
    pods = [pod for namespace, name in subject.pods if (pod := world.get(core_v1.Pod, name, namespace)) is not None]
    for pod in pods:
        if pod.spec.node_name:
            return Outcome(schedulable=False)
        status = gate(world, pod)
        if status is not None:
            return Outcome(schedulable=False, failure=Failure(status=status, early=True))
    if not pods:
        return Outcome(schedulable=False)
    if subject.group is None:
        found = attempt(world.cluster, pods[0], None, SETTINGS, world.now, among)
        if isinstance(found, Placement):
            return Outcome(schedulable=unready(world, pods[0]) is None, placements=(found,))
        return Outcome(schedulable=False, failure=found)
    group = world.get(PodGroup, subject.group[1], subject.group[0])
    if group is None:
        return Outcome(schedulable=False)
    decision = decide(world.cluster, Unit(pods=tuple(pods), group=group), SETTINGS, world.now)
    enough = len(decision.placements) + world.cluster.scheduled_count(group) >= minimum_of(group)
    return Outcome(schedulable=bool(decision.placements) and enough, placements=decision.placements, decision=decision)


def would_help(
    world: World, subject: Subject, patches: tuple[Patch, ...], among: Collection[str] | None = None
) -> Outcome | None:
    """The decision after changes; None if they cannot be made. among: the only nodes to look at for a lone pod."""

    def after(changed: World, journal: Journal) -> None:
        settle(changed, journal, list(subject.pods))

    try:
        with world.changed(patches, after) as changed:
            return try_out(changed, subject, among)
    except (PatchError, KeyError, ValueError):
        return None
