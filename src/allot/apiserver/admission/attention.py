"""Warns about objects that no running component acts on. Refuses nothing.

Leases, which the server follows in its store, name the running components: a write costs one lookup in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation
from allot.apiserver.admission.chain import Settle
from allot.apiserver.admission.objects import field, text
from allot.apiserver.resources import Resource
from allot.core.features import FeatureGates
from allot.core.lifecycle.attention import (
    CLAIMS,
    FOLDERS,
    KINDS,
    LOAD_BALANCERS,
    NAMESPACE,
    SCHEDULER,
    UNREAD,
    announced,
    deletion_silence,
    is_announcement,
    pod_silence,
    silence,
    unread_fields,
)
from allot.core.network.unserved import unserved
from allot.core.workloads.folder_volumes import FOLDER_PROVISIONER
from allot.process.clock import Clock
from allot.store.port import Entry, Event, EventType, Store

FOLDER = f"/registry/leases/{NAMESPACE}/"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class Attendance:
    """The running components."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By lease: its expiry on the monotonic clock, and the components that run until then.
        self._leases: dict[str, tuple[float, frozenset[str]]] = {}

    async def load(self, store: Store) -> None:
        """Read the leases."""
        self._leases.clear()
        for entry in (await store.list(FOLDER)).entries:
            self._take(entry)

    def apply_change(self, event: Event) -> None:
        """Apply a change in the store."""
        if not event.entry.key.startswith(FOLDER):
            return
        if event.type is EventType.DELETED:
            self._leases.pop(event.entry.key, None)
        else:
            self._take(event.entry)

    def _take(self, entry: Entry) -> None:
        if not is_announcement(entry.key.removeprefix(FOLDER)):
            return
        names, duration_s = announced(entry.object, self._clock.seconds())
        if names:
            self._leases[entry.key] = (self._clock.monotonic() + duration_s, names)
        else:
            self._leases.pop(entry.key, None)

    def runs(self, name: str) -> bool:
        """Whether a controller or scheduler of that name is running."""
        # For every pod: a loop instead of a generator.
        for until, names in self._leases.values():  # noqa: SIM110
            if name in names and self._clock.monotonic() < until:
                return True
        return False


class UnattendedKinds:
    """Kinds that need a controller or a gate, or that nothing in allot acts on."""

    def __init__(self, attendance: Attendance, gates: FeatureGates) -> None:
        self._attendance = attendance
        self._gates = gates

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Writes of such kinds, and deletions of namespaces."""
        if operation is Operation.DELETE:
            return (resource.group, resource.kind) == ("", "Namespace")
        writes = operation in (Operation.CREATE, Operation.UPDATE) and subresource in ("", "scale")
        key = (resource.group, resource.kind)
        return writes and (key in KINDS or key in UNREAD)

    async def validate(self, admission: Admission) -> Settle | None:
        """Warn."""
        group, kind, runs = admission.resource.group, admission.resource.kind, self._attendance.runs
        if admission.operation is Operation.DELETE:
            told = deletion_silence(runs)
        else:
            needs = KINDS.get((group, kind))
            told = silence(kind, needs, runs, self._gates) if needs is not None else ""
            admission.warnings.extend(unread_fields(group, kind, admission.object or {}))
        if told:
            admission.warnings.append(told)
        return None


class UnattendedPods:
    """New pods that no scheduler handles, or that no controller creates claims for."""

    def __init__(self, attendance: Attendance) -> None:
        self._attendance = attendance

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """New pods."""
        return (resource.group, resource.kind, subresource, operation) == ("", "Pod", "", Operation.CREATE)

    async def validate(self, admission: Admission) -> Settle | None:
        """Warn, unless all components that a pod may need are running."""
        if self._attendance.runs(SCHEDULER) and self._attendance.runs(CLAIMS):
            return None
        told = pod_silence(admission.object or {}, self._attendance.runs)
        if told:
            admission.warnings.append(told)
        return None


class UnprovidedObjects:
    """Volume claims without a running provisioner, and Services with unsupported features: a load balancer, or a routing option."""

    def __init__(self, attendance: Attendance, lookup: Lookup) -> None:
        self._attendance = attendance
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """New volume claims, and services."""
        key = (resource.group, resource.kind)
        if subresource or operation not in (Operation.CREATE, Operation.UPDATE):
            return False
        return key == ("", "Service") or (key == ("", "PersistentVolumeClaim") and operation is Operation.CREATE)

    async def validate(self, admission: Admission) -> Settle | None:
        """Warn."""
        object_ = admission.object or {}
        if admission.resource.kind == "Service":
            admission.warnings.extend(self._service(object_))
        elif told := await self._claim(text(field(object_, "spec", "storageClassName"))):
            admission.warnings.append(told)
        return None

    def _service(self, service: Object) -> Iterator[str]:
        has_balancers = self._attendance.runs(LOAD_BALANCERS)
        wants = field(service, "spec", "type") == "LoadBalancer" and not field(service, "spec", "loadBalancerClass")
        if wants and not has_balancers:
            yield f"nothing gives this Service a load balancer: {LOAD_BALANCERS} does not run"
        # The controller that provides load balancers here also routes, for all pods of the machine.
        yield from unserved(service, is_on_one_machine=has_balancers)

    async def _claim(self, name: str) -> str:
        if not name:
            return ""
        found = await self._lookup.get("storageclasses", "storage.k8s.io", "", name)
        if found is None:
            return f'storage class "{name}" does not exist: the claim waits for it, or for a volume of that class'
        provisioner = text(found.get("provisioner"))
        if provisioner == _NO_PROVISIONER:
            return ""
        if provisioner == FOLDER_PROVISIONER:
            why = "" if self._attendance.runs(FOLDERS) else f"{FOLDERS} does not run, or has no folder"
        else:
            driver = await self._lookup.get("csidrivers", "storage.k8s.io", "", provisioner)
            why = "" if driver is not None else f'there is no CSIDriver "{provisioner}"'
        return f'nothing provisions volumes of storage class "{name}": {why}' if why else ""
