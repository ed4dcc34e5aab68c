"""The question and the answer: what is asked about, where in its life it is, why, and what would help."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allot.core.advice.explain.causes import late
from allot.core.advice.explain.causes.early import before_scheduling
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.refused import refused
from allot.core.advice.explain.causes.waiting import fits, not_ready
from allot.core.advice.explain.devices import users_of
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.nodes import NodeChecks, grouped
from allot.core.advice.explain.report import Change, Explanation, Reason, State, UsedDevice
from allot.core.advice.explain.trial import Subject, try_out, would_help
from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.explain.world import SETTINGS, World
from allot.core.advice.nearest import nearest
from allot.core.advice.snapshot import Snapshot
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.claim_owners import claim_name, group_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.devices import DeviceQuestion
from allot.core.scheduling.groups import minimum_of
from allot.core.scheduling.plan import Placement

CHANGES_MAX = 4
# Of changes of one kind.
_CHANGES_PER_RANK_MAX = 2
_TRIES_MAX = 40
# On a large cluster a try takes long.
_LARGE = 500
_TRIES_MAX_LARGE = 6
_FINISHED = ("Succeeded", "Failed")


class NotFound(Exception):
    """What is asked about is not in the snapshot."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Explainer:
    """A snapshot that questions are asked about."""

    def __init__(self, snapshot: Snapshot, gates: FeatureGates = DEFAULT_GATES) -> None:
        self.world = World(snapshot, gates)

    # --- what is asked about ---

    def pod(self, namespace: str, name: str) -> Explanation:
        """Why a pod waits, or where it is."""
        pod = self.world.get(core_v1.Pod, name, namespace)
        if pod is None:
            raise self._not_found("pod", core_v1.Pod, namespace, name)
        if pod.status.phase in _FINISHED:
            cause = f"{namespace}/{name} has ended ({pod.status.phase})"
            return _said("Pod", namespace, name, State.ENDED, Reason.ENDED, cause)
        if pod.spec.node_name:
            return self._bound(pod)
        group = group_name(pod)
        if group and self.world.get(PodGroup, group, namespace) is not None:
            early = before_scheduling(self.world, pod)
            if early is None:
                return replace(self._gang(namespace, group), kind="Pod", name=name)
        return self._pending(pod, Subject(((namespace, name),)))

    def group(self, namespace: str, name: str) -> Explanation:
        """Why a gang waits."""
        if self.world.get(PodGroup, name, namespace) is None:
            raise self._not_found("podgroup", PodGroup, namespace, name)
        return self._gang(namespace, name)

    def claim(self, namespace: str, name: str) -> Explanation:
        """Why a claim has no devices, or which."""
        claim = self.world.get(api.ResourceClaim, name, namespace)
        if claim is None:
            raise self._not_found("claim", api.ResourceClaim, namespace, name)
        if claim.status.allocation is not None:
            results = claim.status.allocation.devices.results
            shown = named("device", [f"{each.driver}/{each.pool}/{each.device}" for each in results])
            users = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in users_of(self.world, claim)]
            used = f", used by {named('pod', users)}" if users else ", which no pod uses"
            cause = f"claim {namespace}/{name} is allocated: {shown}{used}"
            return _said("ResourceClaim", namespace, name, State.PLACED, Reason.PLACED, cause)
        for pod in self.world.all(core_v1.Pod):
            if pod.metadata.namespace == namespace and name in [
                claim_name(pod, entry) for entry in pod.spec.resource_claims
            ]:
                found = self.pod(namespace, pod.metadata.name)
                cause = f"claim {namespace}/{name} has no devices yet: pod {found.cause}"
                return replace(found, kind="ResourceClaim", name=name, cause=cause)
        cause = f"claim {namespace}/{name} has no devices because no pod uses it: devices are allocated when a pod that names it is scheduled"
        return _said("ResourceClaim", namespace, name, State.PENDING, Reason.UNUSED, cause)

    def pending(self, namespace: str | None) -> list[tuple[str, str]]:
        """Pods that wait, by namespace and name. None: of all namespaces."""
        return sorted(
            (pod.metadata.namespace, pod.metadata.name)
            for pod in self.world.all(core_v1.Pod)
            if namespace in (None, pod.metadata.namespace) and pod.status.phase not in (*_FINISHED, "Running")
        )

    def _not_found(
        self, word: str, type_: type[core_v1.Pod | api.ResourceClaim | PodGroup], namespace: str, name: str
    ) -> NotFound:
        objects = self.world.all(type_)
        here = [found.metadata.name for found in objects if found.metadata.namespace == namespace]
        elsewhere = sorted({found.metadata.namespace for found in objects if found.metadata.name == name})
        hint = ""
        if elsewhere:
            hint = f"there is one in namespace {listed(elsewhere)}: -n {elsewhere[0]}"
        elif (meant := nearest(name, here)) is not None:
            hint = f"did you mean {meant}?"
        return NotFound(f"{word} {namespace}/{name}: not found", hint)

    # --- pods ---

    def _pending(self, pod: core_v1.Pod, subject: Subject) -> Explanation:
        diagnosis = before_scheduling(self.world, pod) or not_ready(self.world, pod)
        placing: Placing | None = None
        if diagnosis is None:
            outcome = try_out(self.world, subject)
            if outcome.schedulable:
                diagnosis = fits(outcome.placements[0].node)
            else:
                assert outcome.failure is not None, "a pod that is not placed has a reason"
                diagnosis, placing = refused(self.world, pod, outcome.failure)
        return self._explained(pod, subject, diagnosis, placing)

    def _explained(
        self, pod: core_v1.Pod, subject: Subject, diagnosis: Diagnosis, placing: Placing | None
    ) -> Explanation:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        return Explanation(
            kind="Pod",
            namespace=namespace,
            name=name,
            state=State.PENDING,
            reason=diagnosis.reason,
            cause=f"{namespace}/{name} is pending because {diagnosis.text}",
            details=diagnosis.details,
            changes=self._changes(subject, diagnosis),
            requests=placing.requests() if placing is not None else (),
            nodes=placing.groups() if placing is not None else (),
            node_count=len(self.world.cluster.nodes),
            nearest=placing.miss() if placing is not None else None,
            scheduler_said=_scheduler_said(pod),
        )

    # --- gangs ---

    def _gang(self, namespace: str, name: str) -> Explanation:
        world = self.world
        group = world.get(PodGroup, name, namespace)
        assert group is not None
        members = [
            pod
            for pod in world.all(core_v1.Pod)
            if pod.metadata.namespace == namespace and group_name(pod) == name and pod.status.phase not in _FINISHED
        ]
        waiting = [pod for pod in members if not pod.spec.node_name]
        if not waiting:
            cause = f"gang {namespace}/{name}: all {len(members)} pods have a node"
            return _said("PodGroup", namespace, name, State.PLACED, Reason.PLACED, cause)
        subject = Subject(tuple((pod.metadata.namespace, pod.metadata.name) for pod in waiting), (namespace, name))
        for pod in waiting:
            early = before_scheduling(world, pod)
            if early is not None:
                cause = f"gang {namespace}/{name} is pending because of pod {pod.metadata.name}: {early.text}"
                said = _said("PodGroup", namespace, name, State.PENDING, early.reason, cause)
                return replace(said, details=early.details, changes=self._changes(subject, early))
        outcome = try_out(world, subject)
        if outcome.schedulable:
            cause = f"gang {namespace}/{name} is pending because {fits(outcome.placements[0].node).text}"
            return _said("PodGroup", namespace, name, State.PENDING, Reason.FITS, cause)
        return self._gang_refused(group, waiting, subject)

    def _gang_refused(self, group: PodGroup, waiting: list[core_v1.Pod], subject: Subject) -> Explanation:
        world = self.world
        placed = world.cluster.scheduled_count(group)
        diagnosis: Diagnosis | None = None
        placing: Placing | None = None
        with world.cluster.trying() as tried:
            for pod in waiting:
                found = attempt(world.cluster, pod, group, SETTINGS, world.now)
                if isinstance(found, Placement):
                    world.cluster.assume(found)
                    tried.append(found)
                elif diagnosis is None:
                    diagnosis, placing = refused(world, pod, found)
                    parts = (
                        (placing.requests(), placing.groups(), placing.miss())
                        if placing is not None
                        else ((), (), None)
                    )
            count = placed + len(tried)
        assert diagnosis is not None
        name = f"{group.metadata.namespace}/{group.metadata.name}"
        cause = f"gang {name} is pending because only {count} of the {minimum_of(group)} pods that it needs at once can be placed: {diagnosis.text}"
        said = _said("PodGroup", group.metadata.namespace, group.metadata.name, State.PENDING, Reason.GANG, cause)
        return replace(
            said,
            details=diagnosis.details,
            changes=self._changes(subject, diagnosis),
            requests=parts[0],
            nodes=parts[1],
            node_count=len(world.cluster.nodes),
            nearest=parts[2],
        )

    # --- pods that have a node ---

    def _bound(self, pod: core_v1.Pod) -> Explanation:
        namespace, name, node = pod.metadata.namespace, pod.metadata.name, pod.spec.node_name
        devices = late.devices_of(self.world, pod)
        if pod.status.phase != "Running":
            diagnosis = late.after_scheduling(self.world, pod)
            return Explanation(
                kind="Pod",
                namespace=namespace,
                name=name,
                state=State.STARTING,
                reason=diagnosis.reason,
                cause=f"{namespace}/{name} is pending because {diagnosis.text}",
                details=diagnosis.details,
                changes=tuple(Change(text=text) for text in diagnosis.advice),
                node=node,
                devices=devices,
            )
        return self._placed(pod, devices)

    def _placed(self, pod: core_v1.Pod, devices: tuple[UsedDevice, ...]) -> Explanation:
        """Why a pod is where it is, as far as that can still be known: what other nodes would say now."""
        world = self.world
        namespace, name, node = pod.metadata.namespace, pod.metadata.name, pod.spec.node_name
        with world.cluster.without([pod]):
            question = world.claims.question(pod, None, world.now)
            asked = question if isinstance(question, DeviceQuestion) else None
            checks = NodeChecks(world, pod, asked)
        texts = {
            other: [check.text for check in found] or ["would do as well: the scheduler preferred another one"]
            for other, found in checks.checks.items()
            if other != node
        }
        has = f" with {named('device', [each.device for each in devices])}" if devices else ""
        return Explanation(
            kind="Pod",
            namespace=namespace,
            name=name,
            state=State.PLACED,
            reason=Reason.PLACED,
            cause=f"{namespace}/{name} runs on node {node}{has}",
            nodes=grouped(texts),
            node_count=len(world.cluster.nodes),
            node=node,
            devices=devices,
        )

    # --- what would help ---

    def _changes(self, subject: Subject, diagnosis: Diagnosis) -> tuple[Change, ...]:
        """Candidates that have been tried and help, the smallest first; and advice that cannot be tried."""
        tries = _TRIES_MAX if len(self.world.cluster.nodes) <= _LARGE else _TRIES_MAX_LARGE
        found: list[Change] = []
        seen: set[bytes] = set()
        helped: dict[int, int] = {}
        for candidate in sorted(diagnosis.candidates, key=lambda each: each.rank):
            key = msgspec.json.encode(candidate.patches)
            if key in seen or helped.get(candidate.rank, 0) >= _CHANGES_PER_RANK_MAX:
                continue
            seen.add(key)
            if len(found) >= CHANGES_MAX or len(seen) > tries:
                break
            outcome = would_help(self.world, subject, candidate.patches)
            if outcome is not None and outcome.schedulable:
                helped[candidate.rank] = helped.get(candidate.rank, 0) + 1
                nodes = list(dict.fromkeys(placement.node for placement in outcome.placements))
                found.append(
                    Change(
                        text=candidate.text,
                        verified=True,
                        node=joined(nodes[:1]),
                        patches=candidate.patches,
                        expression=candidate.expression,
                    )
                )
        return (*found, *(Change(text=text) for text in diagnosis.advice))


def _scheduler_said(pod: core_v1.Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def _said(kind: str, namespace: str, name: str, state: State, reason: Reason, cause: str) -> Explanation:
    return Explanation(kind=kind, namespace=namespace, name=name, state=state, reason=reason, cause=cause)
