"""Writes the status of other schedulers' groups and queues, in their own words.

The machine knows the status; it is compared with the server's occasionally, after something has happened, and differences
are written. A failed write is retried next time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, NotFound
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import KAI, VOLCANO
from allot.core.model.kai_words import LAST_EVICTION, LAST_START
from allot.core.scheduling import Decision, Machine, dialect_of
from allot.core.scheduling.plan import Victim
from allot.core.scheduling.queues.usage import Usage
from allot.core.workloads.queue_status import kai_queue_status, kai_resources_status, volcano_queue_status
from allot.process.clock import Clock
from allot.scheduler.sources import Sources

_log = logging.getLogger("allot.scheduler")

Object = dict[str, Any]

_EVERY_S = 1.0
_UNSCHEDULABLE = "UnschedulableOnNodePool"
_POOL = "default"
# API group, namespace and name.
_Key = tuple[str, str, str]


class _Told(msgspec.Struct, frozen=True):
    """The status to write for a group. reason: empty if it has what it needs."""

    reason: str = ""
    message: str = ""


class ForeignStatus:
    """Status of other schedulers' objects. Run it beside the scheduler."""

    def __init__(self, client: Client, machine: Machine, sources: Sources, clock: Clock) -> None:
        self._client = client
        self._machine = machine
        self._sources = sources
        self._clock = clock
        self._told: dict[_Key, _Told] = {}
        self._marks: dict[_Key, dict[str, str]] = {}
        self._is_stale = True

    def changed(self) -> None:
        """Something has happened."""
        self._is_stale = True

    def decided(self, decision: Decision) -> None:
        """A unit was decided."""
        self._is_stale = True
        if decision.placements:
            key = self._group(decision.placements[0].pod)
            if key is not None:
                self._told[key] = _Told()
                if key[0] == KAI:
                    self._marks.setdefault(key, {})[LAST_START] = self._clock.now()
            return
        self._evicted(decision.given_up)
        for refusal in decision.refusals:
            self._evicted(refusal.victims)
            key = self._group(refusal.pod)
            if key is None:
                continue
            outcome = decision.group
            reason = refusal.reason or (outcome.reason if outcome is not None else "Unschedulable")
            message = outcome.message if outcome is not None and outcome.message else refusal.message
            self._told[key] = _Told(reason, message)

    def _evicted(self, victims: Iterable[Victim]) -> None:
        for victim in victims:
            loser = self._group(victim.pod)
            if loser is not None and loser[0] == KAI:
                self._marks.setdefault(loser, {})[LAST_EVICTION] = self._clock.now()

    def _group(self, pod: Pod) -> _Key | None:
        found = self._machine.membership.of(pod)
        dialect = dialect_of(found[1]) if found is not None else None
        if found is None or dialect is None or dialect.api_group not in (KAI, VOLCANO):
            return None
        return dialect.api_group, found[0], found[1].split(":")[1]

    # --- writing ---

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._clock.sleep(_EVERY_S)
            if not self._is_stale:
                continue
            self._is_stale = False
            # The status of groups that are gone is dropped with the rest.
            told, self._told = self._told, {}
            marks, self._marks = self._marks, {}
            for group, plural, key, patch, subresource in [*self._queue_patches(), *self._group_patches(told, marks)]:
                if await self._write(group, plural, key, patch, subresource) or plural != "podgroups":
                    continue
                namespace, _, name = key.partition("/")
                about = (group, namespace, name)
                if about in told:
                    self._told.setdefault(about, told[about])
                if about in marks:
                    self._marks[about] = {**marks[about], **self._marks.get(about, {})}

    async def _write(self, group: str, plural: str, key: str, patch: Object, subresource: str) -> bool:
        version = {"podgroups": {KAI: "v2alpha2", VOLCANO: "v1beta1"}, "queues": {KAI: "v2", VOLCANO: "v1beta1"}}
        namespace, _, name = key.rpartition("/")
        resource = self._client.resource(group, version[plural][group], plural, namespaced=bool(namespace))
        try:
            await resource.patch(name, patch, PatchType.MERGE, namespace, subresource=subresource)
        except ApiError as error:
            _log.info("status of %s %s: %s", plural, key, error)
            # The object is gone: nothing to report.
            is_gone = isinstance(error, NotFound)
            self._is_stale |= not is_gone
            return is_gone
        return True

    def _queue_patches(self) -> Iterator[tuple[str, str, str, Object, str]]:
        book = self._machine.book
        if not book:
            return
        shares = book.tree.all()
        for group in (KAI, VOLCANO):
            informer = self._sources.custom(group, "queues")
            phases = self._phases() if group == VOLCANO and informer is not None else {}
            for name, object_ in informer.cache.items() if informer is not None else ():
                queue = shares.get(name)
                if queue is None:
                    continue
                known = object_.get("status") or {}
                if group == KAI:
                    status = kai_queue_status(queue)
                else:
                    status = volcano_queue_status(queue, known.get("state", ""), phases.get(name, {}))
                changed = {
                    key: _merged(known.get(key), value) for key, value in status.items() if known.get(key) != value
                }
                if changed:
                    yield group, "queues", name, _status_patch(object_, changed), "status"

    def _phases(self) -> dict[str, dict[str, int]]:
        """The number of a queue's Volcano groups in each phase."""
        found: dict[str, dict[str, int]] = {}
        informer = self._sources.custom(VOLCANO, "podgroups")
        for group in informer.cache if informer is not None else ():
            queue = (group.get("spec") or {}).get("queue") or "default"
            phase = (group.get("status") or {}).get("phase") or "Pending"
            counts = found.setdefault(queue, {})
            counts[phase] = counts.get(phase, 0) + 1
        return found

    def _group_patches(
        self, all_told: Mapping[_Key, _Told], all_marks: Mapping[_Key, dict[str, str]]
    ) -> Iterator[tuple[str, str, str, Object, str]]:
        usage = self._machine.book.usage_of_groups() if self._machine.book else {}
        for group in (KAI, VOLCANO):
            informer = self._sources.custom(group, "podgroups")
            if informer is None:
                continue
            for key, object_ in informer.cache.items():
                namespace, _, name = key.partition("/")
                known = object_.get("status") or {}
                told = all_told.get((group, namespace, name))
                status: Object = {}
                if group == KAI:
                    used = usage.get((namespace, f"{KAI}:{name}"))
                    status = _kai_status(known, told, used, self._clock.now())
                elif told is not None:
                    status = _volcano_status(known, told, self._clock.now())
                if status:
                    yield group, "podgroups", key, _status_patch(object_, status), "status"
                marks = all_marks.get((group, namespace, name))
                if marks:
                    patch = {"metadata": {"uid": object_["metadata"]["uid"], "annotations": marks}}
                    yield group, "podgroups", key, patch, ""


def _status_patch(object_: Object, status: Object) -> Object:
    return {"metadata": {"uid": object_["metadata"]["uid"]}, "status": status}


def _merged(known: Any, value: Any) -> Any:
    """The merge patch from one to the other: removed fields must be named."""
    if not isinstance(known, dict) or not isinstance(value, dict):
        return value
    gone = {key: None for key in known if key not in value}
    return {**gone, **{key: _merged(known.get(key), each) for key, each in value.items()}}


def _kai_status(known: Object, told: _Told | None, used: Usage | None, now: str) -> Object:
    status: Object = {}
    if used is not None:
        resources = kai_resources_status(used)
        if known.get("resourcesStatus") != resources:
            status["resourcesStatus"] = _merged(known.get("resourcesStatus"), resources)
    conditions = known.get("schedulingConditions") or []
    if told is None:
        return status
    if not told.reason:
        if conditions:
            status["schedulingConditions"] = []
        return status
    last = conditions[-1] if conditions else {}
    if (last.get("reason"), last.get("message")) != (told.reason, told.message):
        number = str(last.get("transitionID", ""))
        status["schedulingConditions"] = [
            {
                "type": _UNSCHEDULABLE,
                "nodePool": _POOL,
                "status": "True",
                "reason": told.reason,
                "message": told.message,
                "reasons": [{"reason": told.reason, "message": told.message}],
                "transitionID": str(int(number) + 1) if number.isdigit() else "0",
                "lastTransitionTime": now,
            }
        ]
    return status


def _volcano_status(known: Object, told: _Told, now: str) -> Object:
    """Its conditions; the phase is up to the controller of groups."""
    type_ = "Unschedulable" if told.reason else "Scheduled"
    reason = "NotEnoughResources" if told.reason else "tasks in gang are ready to be scheduled"
    conditions = [
        each for each in known.get("conditions") or () if each.get("type") not in ("Scheduled", "Unschedulable")
    ]
    before: Object = next((each for each in known.get("conditions") or () if each.get("type") == type_), {})
    if (before.get("reason"), before.get("message", "")) == (reason, told.message):
        return {}
    made = {"type": type_, "status": "True", "reason": reason, "message": told.message, "lastTransitionTime": now}
    return {"conditions": [*conditions, made]}
