"""ResourceQuota: charges new objects to the quotas of their namespace, and refuses excess ones.

A charge is a compare-and-swap on the quota's status, so several servers can share a store without exceeding it. Within this
process charges of one namespace queue up behind a lock instead of colliding.

Usage is what the status says. With `recalculate` (a single server, no quota controller needed) two things are done here
that upstream leaves to a controller: a quota with unknown usage is measured, and before a request is refused
the usage is measured again, because nothing else subtracts what was deleted meanwhile. Objects that were charged
but are not stored yet count as stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation, StatusWriter
from allot.apiserver.admission.chain import Settle
from allot.apiserver.admission.objects import metadata, text
from allot.apiserver.errors import StatusError, internal
from allot.apiserver.resources import Resource
from allot.core.json_objects import mapping
from allot.core.quota.amounts import Amounts, as_json, increase, parse_amounts, plus
from allot.core.quota.charge import Quota, Refusal, Request, charge, quota_of
from allot.core.quota.claims import device_classes, owning_pod_name
from allot.core.quota.measure import measure, measured_kinds
from allot.core.quota.usage import CLAIMS, IGNORED, PODS, VOLUME_CLAIMS, QuotaContext, concerns

# Another server may win the race for a quota; each time, one makes progress.
_ATTEMPTS = 10


class _Charge(msgspec.Struct, frozen=True):
    """Something that was charged to a quota for an object that is not stored yet."""

    quota: str
    added: Mapping[str, Any]


class ResourceQuota:
    """The plugin. now: the time of day."""

    idle_by = (("resourcequotas", ""),)

    def __init__(
        self, lookup: Lookup, writer: StatusWriter, now: Callable[[], str], *, recalculate: bool = True
    ) -> None:
        self._lookup = lookup
        self._writer = writer
        self._now = now
        self._recalculate = recalculate
        self._locks: dict[str, asyncio.Lock] = {}
        self._pending: dict[str, list[_Charge]] = {}

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Writes in namespaces."""
        if not resource.namespaced or operation not in (Operation.CREATE, Operation.UPDATE):
            return False
        kind = (resource.group, resource.plural)
        if kind in IGNORED:
            return False
        return not subresource or (kind, subresource) in ((PODS, "resize"), (VOLUME_CLAIMS, "status"))

    def idle(self, namespace: str) -> bool:
        """Whether the namespace has no quota."""
        return self._lookup.known_list("resourcequotas", "", namespace) == []

    async def validate(self, admission: Admission) -> Settle | None:
        """Charge every quota that applies, or refuse."""
        new, old, kind = admission.object, admission.old, admission.key
        if new is None or not concerns(kind, admission.subresource, admission.operation, new, old):
            return None
        namespace = admission.namespace
        if not await self._lookup.list("resourcequotas", "", namespace):
            return None
        may_exceed = admission.subresource == "status"
        request = Request(kind=kind, object=new, old=old, may_exceed=may_exceed)
        lock = self._locks.setdefault(namespace, asyncio.Lock())
        async with lock:
            charges = await self._charge_all(admission, request)
        if not charges:
            return None
        self._pending.setdefault(namespace, []).extend(charges)

        async def settle(stored: bool) -> None:
            await self._settle(namespace, charges, stored)

        return settle

    async def _charge_all(self, admission: Admission, request: Request) -> list[_Charge]:
        """Check all quotas before charging the first; revert the charges if a later one refuses."""
        around = await self._surroundings(admission.namespace, request)
        charges: list[_Charge] = []
        try:
            quotas = await self._lookup.list("resourcequotas", "", admission.namespace)
            for quota in quotas:
                await self._added(admission, quota, request, around)
            if admission.dry_run:
                return []
            for quota in quotas:
                added = await self._charge_one(admission, quota, request, around)
                if added:
                    charges.append(_Charge(text(metadata(quota).get("name")), added))
        except BaseException:
            await self._give_back(admission.namespace, charges)
            raise
        return charges

    async def _added(
        self, admission: Admission, object_: Object, request: Request, around: QuotaContext
    ) -> tuple[Quota, Amounts]:
        """The quota with its current usage and what the request adds; refuses if that is too much."""
        quota = await self._measured(object_, around) if self._recalculate else quota_of(object_)
        added = charge(quota, request, around)
        if isinstance(added, Refusal) and added.exceeded and self._recalculate:
            quota = msgspec.structs.replace(quota, used=await self._usage(admission.namespace, quota, around))
            added = charge(quota, request, around)
        if isinstance(added, Refusal):
            raise admission.forbidden(added.message)
        return quota, added

    async def _charge_one(
        self, admission: Admission, object_: Object, request: Request, around: QuotaContext
    ) -> Amounts:
        name = text(metadata(object_).get("name"))
        present: Object | None = object_
        for _ in range(_ATTEMPTS):
            if present is None:
                return {}
            quota, added = await self._added(admission, present, request, around)
            if not added:
                return {}
            try:
                await self._write(present, quota, plus(quota.used, added))
                return added
            except StatusError as error:
                if error.code not in (404, 409):
                    raise
            present = await self._lookup.get("resourcequotas", "", admission.namespace, name)
        raise internal(f"resource quota {admission.namespace}/{name}: charging it lost the race {_ATTEMPTS} times")

    async def _write(self, object_: Object, quota: Quota, used: Amounts) -> None:
        meta = metadata(object_)
        status = {"hard": as_json(quota.hard), "used": as_json(used)}
        changed = {**object_, "status": {**mapping(object_.get("status")), **status}}
        place = (text(meta.get("namespace")), text(meta.get("name")))
        await self._writer.update_status("resourcequotas", "", *place, changed)

    # --- after the write ---

    async def _settle(self, namespace: str, charges: list[_Charge], stored: bool) -> None:
        pending = self._pending[namespace]
        for one in charges:
            pending.remove(one)
        if not pending:
            del self._pending[namespace]
        if not stored:
            lock = self._locks.setdefault(namespace, asyncio.Lock())
            async with lock:
                await self._give_back(namespace, charges)

    async def _give_back(self, namespace: str, charges: list[_Charge]) -> None:
        for one in charges:
            for _ in range(_ATTEMPTS):
                object_ = await self._lookup.get("resourcequotas", "", namespace, one.quota)
                if object_ is None:
                    break
                quota = quota_of(object_)
                try:
                    await self._write(object_, quota, increase(quota.used, one.added))
                    break
                except StatusError as error:
                    if error.code not in (404, 409):
                        raise

    # --- measuring ---

    async def _surroundings(self, namespace: str, request: Request) -> QuotaContext:
        if request.kind != CLAIMS:
            return QuotaContext(now=self._now())
        classes = device_classes(await self._lookup.list("deviceclasses", "resource.k8s.io"))
        owner = owning_pod_name(request.object)
        if not owner:
            return QuotaContext(now=self._now(), classes=classes)
        pod = await self._lookup.get("pods", "", namespace, owner)
        claims = await self._lookup.list("resourceclaims", "resource.k8s.io", namespace)
        return QuotaContext(now=self._now(), classes=classes, pods={owner: pod} if pod else {}, claims=claims)

    async def _measured(self, object_: Object, around: QuotaContext) -> Quota:
        """The quota with spec.hard in force; measured if its status does not cover that."""
        quota = quota_of(object_)
        wanted = parse_amounts(quota.spec.get("hard"))
        if quota.hard == wanted and all(name in quota.used for name in wanted):
            return quota
        quota = msgspec.structs.replace(quota, hard=wanted)
        used = await self._usage(text(metadata(object_).get("namespace")), quota, around)
        return msgspec.structs.replace(quota, used=used)

    async def _usage(self, namespace: str, quota: Quota, around: QuotaContext) -> Amounts:
        """What the objects of a namespace use, including those not stored yet."""
        classes = device_classes(await self._lookup.list("deviceclasses", "resource.k8s.io"))
        kinds = measured_kinds(quota.hard, classes)
        objects = {kind: await self._lookup.list(kind[1], kind[0], namespace) for kind in kinds}
        used = measure(quota, objects, classes, around.now)
        for one in self._pending.get(namespace, ()):
            if one.quota == quota.name:
                used = plus(used, one.added)
        return used
