"""Reports and actions for pods that were not placed: the condition, the event, cleanup, and victims of preemption."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, Conflict, NotFound
from allot.client.events import EventRecorder
from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling.groups.dialects import ForeignGroup
from allot.core.scheduling.plan import CleanUp, Deallocate, DeleteClaim, GroupOutcome, Refusal, Victim
from allot.core.scheduling.status import Status, Verdict
from allot.process.clock import Clock
from allot.scheduler.claim_writes import ClaimWrites

_log = logging.getLogger("allot.scheduler")

NOTE_BYTES_MAX = 1024
_SUFFIX = " ..."
_POD_SCHEDULED = "PodScheduled"
_GROUP_SCHEDULED = "PodGroupInitiallyScheduled"
_TOLD_S = 5.0
_TOLD_MAX = 1_000
_DISRUPTION_TARGET = "DisruptionTarget"


class Reporter:
    """Reports refusals and acts on them. A failure is logged and otherwise ignored: the pod's next
    attempt repeats it."""

    def __init__(self, client: Client, claim_writes: ClaimWrites, clock: Clock, recorder: EventRecorder) -> None:
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._groups = client.typed(PodGroup).resource
        self._composites = client.typed(CompositePodGroup).resource
        # What was recently written about groups, by uid, and when; the most recently used comes last.
        self._told: dict[str, tuple[tuple[str, str, str], float]] = {}
        self._claim_writes = claim_writes
        self._clock = clock
        self._recorder = recorder

    def event(self, refusal: Refusal) -> None:
        """The event of a refusal; costs no write here."""
        note = _shortened(text_of(refusal))
        self._recorder.record(refusal.pod, "Warning", "FailedScheduling", "Scheduling", note)

    def gated(self, pod: core_v1.Pod, status: Status) -> None:
        """A pod is not even tried, and its user should know why; kube-scheduler has no event for this."""
        note = _shortened(f"not scheduled yet: {'; '.join(status.reasons)}")
        self._recorder.record(pod, "Warning", "FailedScheduling", "Scheduling", note)

    def needs_writing(self, refusal: Refusal) -> bool:
        """Whether there is anything to write besides the event."""
        return bool(refusal.victims or refusal.clean_ups or self._status_patch(refusal))

    async def write(self, refusal: Refusal) -> bool:
        """Victims first, so that they are already terminating when the pod names its future node. Claims are cleared away after
        the pod's status is written, which makes bindings that an earlier scheduler left in progress fail (`commit`).
        Returns whether everything that the pod now waits for is in progress."""
        pod = refusal.pod
        done = True
        for victim in refusal.victims:
            done &= await self._attempt(f"preempting {_name(victim.pod)}", self._preempt(victim, refusal))
        still_waits = True
        status = self._status_patch(refusal)
        if status:
            try:
                still_waits = await self._patch_pod(pod, status)
            except NotFound:
                return True
            except ApiError as error:
                _log.warning("status of %s: %s", _name(pod), error)
                return not refusal.clean_ups and done
        for clean_up in refusal.clean_ups if still_waits else ():
            done &= await self._attempt(f"clearing away after {_name(pod)}", self._clean_up(clean_up))
            # No event tells a pod that its own leftover claim is gone.
            done &= not isinstance(clean_up, DeleteClaim)
        return done

    async def write_group(self, outcome: GroupOutcome) -> None:
        """Write the condition of a group, unless it is already set; once true, it stays true."""
        group = outcome.group
        if isinstance(group, ForeignGroup):
            # Its status is up to the controller of its dialect.
            return
        message = f"{outcome.message}. {outcome.explanation}" if outcome.explanation else outcome.message
        told = (outcome.status, outcome.reason, message)
        for condition in group.status.conditions:
            if condition.type == _GROUP_SCHEDULED and (
                condition.status == "True" or (condition.status, condition.reason, condition.message) == told
            ):
                return
        if self._is_just_told(group.metadata.uid, told):
            return
        condition_patch = {
            "type": _GROUP_SCHEDULED,
            "status": outcome.status,
            "reason": outcome.reason,
            "message": message,
            "observedGeneration": group.metadata.generation,
            "lastTransitionTime": self._clock.now(),
        }
        # Conditions of custom and of built-in kinds merge by type; others of the group are kept by naming them.
        patch = {"metadata": {"uid": group.metadata.uid}, "status": {"conditions": [condition_patch]}}
        resource = self._composites if isinstance(group, CompositePodGroup) else self._groups
        write = resource.patch(
            group.metadata.name, patch, PatchType.STRATEGIC, group.metadata.namespace, subresource="status"
        )
        if not await self._attempt(f"status of pod group {group.metadata.namespace}/{group.metadata.name}", write):
            self._told.pop(group.metadata.uid, None)

    def _is_just_told(self, uid: str, told: tuple[str, str, str]) -> bool:
        """Whether the same was just written, or is being written. Pods of a group are decided much faster than the
        watch shows what was written for the first one."""
        now = self._clock.monotonic()
        last = self._told.pop(uid, None)
        is_told = last is not None and last[0] == told and now - last[1] < _TOLD_S
        self._told[uid] = last if is_told and last is not None else (told, now)
        if len(self._told) > _TOLD_MAX:
            del self._told[next(iter(self._told))]
        return is_told

    # --- parts ---

    def _status_patch(self, refusal: Refusal) -> dict[str, object]:
        """What has to change in the pod's status; empty if it is up to date."""
        pod = refusal.pod
        patch: dict[str, object] = {}
        reason = "SchedulerError" if refusal.verdict is Verdict.ERROR else "Unschedulable"
        message = text_of(refusal)
        known = next((each for each in pod.status.conditions if each.type == _POD_SCHEDULED), None)
        # If claims are cleared away, the write itself matters, so it must change something.
        is_forced = bool(refusal.clean_ups)
        says_so = known is not None and (known.status, known.reason, known.message) == ("False", reason, message)
        if is_forced or not says_so:
            condition: dict[str, object] = {
                "type": _POD_SCHEDULED,
                "status": "False",
                "reason": reason,
                "message": message,
                # Alternately set and unset if the write has to change something even within the same second.
                "lastProbeTime": self._clock.now() if is_forced and not (known and known.last_probe_time) else None,
            }
            if is_forced or known is None or known.status != "False":
                condition["lastTransitionTime"] = self._clock.now()
            # Only where generations are tracked at all, as in kube-scheduler.
            if pod.status.observed_generation or (known is not None and known.observed_generation):
                condition["observedGeneration"] = pod.metadata.generation
            patch["conditions"] = [condition]
        if any(isinstance(clean_up, DeleteClaim) for clean_up in refusal.clean_ups):
            patch["extendedResourceClaimStatus"] = None
        if refusal.nominated_node and refusal.nominated_node != pod.status.nominated_node_name:
            patch["nominatedNodeName"] = refusal.nominated_node
        return patch

    async def _patch_pod(self, pod: core_v1.Pod, status: dict[str, object]) -> bool:
        """Whether the pod still has no node."""
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        answer = await self._pods.patch(
            pod.metadata.name, patch, PatchType.STRATEGIC, pod.metadata.namespace, subresource="status"
        )
        return not answer["spec"].get("nodeName")

    async def give_up(self, victim: Victim) -> None:
        """Evict a pod of a group that has had too few pods for too long."""
        condition = f"{victim.pod.spec.scheduler_name}: its group has fewer pods than it needs"
        await self._attempt(f"evicting {_name(victim.pod)}", self._evict(victim.pod, condition, victim.why, None))

    async def _preempt(self, victim: Victim, refusal: Refusal) -> None:
        pod, by = victim.pod, refusal.pod
        whom = victim.by or f"pod {by.metadata.uid} on node {refusal.nominated_node or pod.spec.node_name}"
        note = f"Preempted by {whom}"
        note = f"{note}: {victim.gives}" if victim.gives else note
        note = f"{victim.why[0].upper()}{victim.why[1:]}" if victim.why else note
        what = "podgroup" if victim.by else "pod"
        condition = f"{by.spec.scheduler_name}: preempting to accommodate a higher priority {what}"
        await self._evict(pod, condition, note, by)

    async def _evict(self, pod: core_v1.Pod, message: str, note: str, related: core_v1.Pod | None) -> None:
        condition = {
            "type": _DISRUPTION_TARGET,
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": self._clock.now(),
        }
        await self._patch_pod(pod, {"conditions": [condition]})
        await self._pods.delete(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        self._recorder.record(pod, "Normal", "Preempted", "Preempting", _shortened(note), related=related)

    async def _clean_up(self, clean_up: CleanUp) -> None:
        if isinstance(clean_up, Deallocate):
            await self._claim_writes.deallocate(clean_up.claim)
        elif isinstance(clean_up, DeleteClaim):
            await self._claim_writes.delete(clean_up.claim)
        else:
            await self._claim_writes.unreserve(clean_up.claim, clean_up.uid)

    async def _attempt(self, what: str, write: Awaitable[object]) -> bool:
        try:
            await write
        except NotFound:
            return True
        except Conflict as error:
            # It has changed since the decision.
            _log.info("%s: %s", what, error)
            return False
        except ApiError as error:
            _log.warning("%s: %s", what, error)
            return False
        return True


def text_of(refusal: Refusal) -> str:
    """kube-scheduler's text, plus what we can add."""
    if not refusal.explanation:
        return refusal.message
    return f"{refusal.message}{' ' if refusal.message.endswith('.') else '. '}{refusal.explanation}"


def _shortened(note: str) -> str:
    data = note.encode(errors="replace")
    if len(data) <= NOTE_BYTES_MAX:
        return note
    return data[: NOTE_BYTES_MAX - len(_SUFFIX)].decode(errors="ignore") + _SUFFIX


def _name(pod: core_v1.Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
