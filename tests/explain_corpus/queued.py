"""What would become of pods where there are queues: a scheduler's machine decides, and an API server that does what it says is played,
pods that are evicted included. They do not come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from allot.core.advice.snapshot import NotInSnapshots, read_object
from allot.core.features import FeatureGates
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.foreign_groups import KAI, VOLCANO
from allot.core.scheduling import Bound, Decision, Machine, ObjectChange
from allot.core.scheduling.settings import DEFAULT_SETTINGS, under

JSON = Mapping[str, Any]
# So many decisions, and so long after the dump was taken: who waits for longer is told to wait.
_DECISIONS_MAX = 200
_WAIT_S = 10.0


class Played:
    """A cluster whose scheduler goes on."""

    def __init__(self, objects: Iterable[JSON], gates: FeatureGates, now: float) -> None:
        settings = under(gates, DEFAULT_SETTINGS)
        self._machine = Machine(lambda _: settings, gates)
        self._start = now
        self._pods: dict[str, core_v1.Pod] = {}
        self._claims: dict[tuple[str, str], api.ResourceClaim] = {}
        self._told: dict[str, str] = {}
        for dialect in (KAI, VOLCANO):
            self._machine.serve(dialect)
        for value in objects:
            try:
                found = read_object(dict(value))
            except NotInSnapshots:
                continue
            if isinstance(found, core_v1.Pod):
                self._pods[_key(found)] = found
            if isinstance(found, api.ResourceClaim):
                self._claims[found.metadata.namespace, found.metadata.name] = found
            self._machine.apply(ObjectChange(None, found), 0.0)

    def run(self) -> None:
        """Until nothing is left to do soon."""
        now = 0.0
        for _ in range(_DECISIONS_MAX):
            decision = self._machine.next(now, self._start + now)
            if decision is not None:
                self._carry_out(decision, now)
                continue
            due = self._machine.next_at()
            if due is None or due > _WAIT_S:
                return
            now = max(now, due)

    def node_of(self, pod: str) -> str:
        """Where a pod is by now, by namespace/name."""
        return self._pods[pod].spec.node_name

    def told(self, pod: str) -> str:
        """Why a pod waits."""
        unit = self._machine.unit_of(pod)
        closed = self._machine.closed(pod) if unit is not None else None
        return "; ".join(closed.status.reasons) if closed is not None else self._told.get(pod, "")

    def _carry_out(self, decision: Decision, now: float) -> None:
        for placement in decision.placements:
            for step in placement.claims:
                before = self._claims[step.claim.metadata.namespace, step.claim.metadata.name]
                users = (step.consumer,) if step.consumer is not None else before.status.reserved_for
                status = api.ResourceClaimStatus(
                    allocation=step.allocation or before.status.allocation, reserved_for=users
                )
                self._put_claim(before, replace(before, status=status), now)
            before_pod = self._pods[_key(placement.pod)]
            bound = replace(before_pod, spec=replace(before_pod.spec, node_name=placement.node))
            self._pods[_key(bound)] = bound
            self._machine.settled(placement, Bound(placement.node), now)
            self._machine.apply(ObjectChange(before_pod, bound), now)
        for refusal in decision.refusals:
            self._told[_key(refusal.pod)] = f"{refusal.message} {refusal.explanation}".strip()
        for victim in decision.victims:
            gone = self._pods.pop(_key(victim.pod))
            self._machine.apply(ObjectChange(gone, None), now)
            for claim in [each for each in self._claims.values() if _uses(gone, each)]:
                self._put_claim(claim, replace(claim, status=api.ResourceClaimStatus()), now)

    def _put_claim(self, before: api.ResourceClaim, after: api.ResourceClaim, now: float) -> None:
        self._claims[after.metadata.namespace, after.metadata.name] = after
        self._machine.apply(ObjectChange(before, after), now)


def _key(pod: core_v1.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _uses(pod: core_v1.Pod, claim: api.ResourceClaim) -> bool:
    return any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)
