"""Which claims of a pod to prepare or unprepare on its node, by which drivers, and what its containers get.

Knows: the rules and texts of the kubelet (pkg/kubelet/cm/dra, 1.37). Does not know how a driver is called, where records are
stored, or which drivers are registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allot.core.features import FeatureGates
from allot.core.model.core_v1 import Container, Pod
from allot.core.model.resource_v1 import ResourceClaim
from allot.core.model.scheduling_v1 import GROUP as SCHEDULING_GROUP

PREPARE = "NodePrepareResources"
UNPREPARE = "NodeUnprepareResources"
_ALL_OPERATIONS = "*"


class Refused(Exception):
    """A pod cannot get its claims now. The message is the kubelet's."""


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device as its driver described it when preparing the claim. Without request names, it belongs to every request."""

    pool: str
    device: str
    share_id: str | None = None
    request_names: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()

    def serves(self, request: str) -> bool:
        """Whether a user of a request of the claim gets this device."""
        return not request or not self.request_names or request in self.request_names


class DriverRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a claim that one driver serves."""

    devices: tuple[PreparedDevice, ...] = ()
    skipped: tuple[str, ...] = ()

    def skips(self, operation: str) -> bool:
        """Whether the driver must not be called for an operation."""
        return _ALL_OPERATIONS in self.skipped or operation in self.skipped


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A claim used on this node. is_prepared and is_unpreparing apply only to this run of the agent."""

    namespace: str
    name: str
    uid: str
    pod_uids: tuple[str, ...] = ()
    drivers: Mapping[str, DriverRecord] = {}
    is_prepared: bool = False
    is_unpreparing: bool = False

    @property
    def key(self) -> str:
        """Namespace and name, by which records are kept."""
        return f"{self.namespace}/{self.name}"


Records = Mapping[str, ClaimRecord]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that a pod names. must_own: it was created for the pod, so the pod must own it."""

    name: str
    claim_name: str
    must_own: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to record first, and then which claims to send to each driver."""

    changed: tuple[ClaimRecord, ...] = ()
    batches: Mapping[str, tuple[ClaimRecord, ...]] = {}
    # Drivers that are skipped because the devices do not need them, once per claim.
    skips: tuple[str, ...] = ()
    # The records that are complete when all drivers have answered.
    claims: tuple[ClaimRecord, ...] = ()


# --- the claims of a pod ---


def entries_of(pod: Pod) -> tuple[Entry, ...]:
    """All claims of a pod, that for its extended resources last. Refused if one has not been created yet."""
    found: list[Entry] = []
    where = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name is not None:
            found.append(Entry(name=entry.name, claim_name=entry.resource_claim_name))
            continue
        if entry.resource_claim_template_name is None:
            raise Refused(f'{where}, spec.resourceClaim "{entry.name}": none of the supported fields are set')
        status = next((each for each in pod.status.resource_claim_statuses if each.name == entry.name), None)
        if status is None:
            raise Refused(f"{where}: ResourceClaim not created yet")
        if status.resource_claim_name is not None:
            found.append(Entry(name=entry.name, claim_name=status.resource_claim_name, must_own=True))
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        found.append(Entry(name="", claim_name=extended.resource_claim_name))
    return tuple(found)


def check_claim(pod: Pod, entry: Entry, claim: ResourceClaim, gates: FeatureGates) -> ClaimRecord:
    """The record of the claim for the pod. Refused unless the pod may use the claim and it is allocated."""
    accepts_group = "DRAWorkloadResourceClaims" in gates
    if entry.must_own:
        _check_owner(pod, claim, accepts_group)
    if not _is_reserved(pod, claim, accepts_group):
        raise Refused(
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim "
            f"{entry.claim_name} ({claim.metadata.uid})"
        )
    if claim.status.allocation is None:
        raise Refused(f"ResourceClaim {claim.metadata.name}: not allocated")
    return ClaimRecord(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        drivers=_drivers(claim, gates),
    )


def _group_of(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group is not None else ""


def _check_owner(pod: Pod, claim: ResourceClaim, accepts_group: bool) -> None:
    owner = next((each for each in claim.metadata.owner_references if each.controller), None)
    if owner is not None and owner.uid == pod.metadata.uid:
        return
    text = (
        f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name} was not created for Pod "
        f"{pod.metadata.namespace}/{pod.metadata.name}"
    )
    group = _group_of(pod) if accepts_group else ""
    if not group:
        raise Refused(f"{text} (Pod is not owner)")
    is_group = owner is not None and owner.kind == "PodGroup" and owner.api_version.startswith(f"{SCHEDULING_GROUP}/")
    if owner is None or not is_group or owner.name != group:
        raise Refused(f"{text} (neither Pod nor PodGroup {group} is the owner)")


def _is_reserved(pod: Pod, claim: ResourceClaim, accepts_group: bool) -> bool:
    group = _group_of(pod) if accepts_group else ""
    for consumer in claim.status.reserved_for:
        if consumer.uid == pod.metadata.uid:
            return True
        is_group = consumer.resource == "podgroups" and consumer.api_group == SCHEDULING_GROUP
        if group and is_group and consumer.name == group:
            return True
    return False


def _drivers(claim: ResourceClaim, gates: FeatureGates) -> dict[str, DriverRecord]:
    """All drivers of an allocation. An operation is skipped only if every device of the driver says so."""
    assert claim.status.allocation is not None
    said: dict[str, list[tuple[str, ...]]] = {}
    for result in claim.status.allocation.devices.results:
        said.setdefault(result.driver, []).append(result.skip_node_operations)
    drivers: dict[str, DriverRecord] = {}
    for driver, lists in sorted(said.items()):
        if all(_ALL_OPERATIONS in each for each in lists):
            skipped: tuple[str, ...] = (_ALL_OPERATIONS,)
        else:
            named = sorted({operation for each in lists for operation in each if operation != _ALL_OPERATIONS})
            skipped = tuple(
                operation for operation in named if all(operation in each or _ALL_OPERATIONS in each for each in lists)
            )
        if skipped and "DRAOptionalNodeOperations" not in gates:
            text = "DRAOptionalNodeOperations feature gate is disabled on kubelet"
            raise Refused(f"ResourceClaim {claim.metadata.name}: {text}")
        drivers[driver] = DriverRecord(skipped=skipped)
    return drivers


# --- prepare ---


def plan_prepare(records: Records, pod_uid: str, claims: Sequence[ClaimRecord]) -> Plan:
    """What to record and which drivers to call for claims that passed all checks. Refused before anything is recorded if an older
    claim of that name is still here, or is being unprepared.
    """
    changed: dict[str, ClaimRecord] = {}
    batches: dict[str, list[ClaimRecord]] = {}
    skips: list[str] = []
    for claim in {each.key: each for each in claims}.values():
        known = records.get(claim.key)
        if known is not None and known.uid != claim.uid:
            raise Refused(
                f"old ResourceClaim with same name {claim.name} and different UID {known.uid} still exists "
                "(previous pod force-deleted?!)"
            )
        if known is not None and known.is_unpreparing:
            raise Refused(f"ResourceClaim {claim.name} is being unprepared")
        record = known or claim
        if pod_uid not in record.pod_uids:
            record = msgspec.structs.replace(record, pod_uids=tuple(sorted((*record.pod_uids, pod_uid))))
        changed[record.key] = record
        if record.is_prepared:
            continue
        for driver, part in record.drivers.items():
            if part.skips(PREPARE):
                skips.append(driver)
            else:
                batches.setdefault(driver, []).append(record)
    return Plan(
        changed=tuple(changed.values()),
        batches={driver: tuple(batch) for driver, batch in sorted(batches.items())},
        skips=tuple(skips),
        claims=tuple(record for record in changed.values() if not record.is_prepared),
    )


def with_devices(record: ClaimRecord, driver: str, devices: tuple[PreparedDevice, ...]) -> ClaimRecord:
    """A record with a driver's answer, replacing any earlier one."""
    part = msgspec.structs.replace(record.drivers.get(driver, DriverRecord()), devices=devices)
    return msgspec.structs.replace(record, drivers={**record.drivers, driver: part})


def check_answers(operation: str, batch: Sequence[ClaimRecord], errors: Mapping[str, str]) -> None:
    """Refused unless a driver answered for exactly the claims in its request. errors: by claim uid, empty on success."""
    names = {record.uid: record.name for record in batch}
    for uid, error in sorted(errors.items()):
        if uid not in names:
            raise Refused(f"{operation} returned result for unknown claim UID {uid}")
        if error:
            raise Refused(f"{operation} failed for ResourceClaim {names[uid]}: {error}")
    if len(errors) != len(names):
        raise Refused(f"{operation} skipped {len(names) - len(errors)} ResourceClaims")


# --- unprepare ---


def claim_keys_of(records: Records, pod: Pod) -> tuple[str, ...]:
    """The claims that a pod may have prepared: those recorded for it, else those that it names."""
    found = tuple(key for key, record in records.items() if pod.metadata.uid in record.pod_uids)
    if found:
        return found
    try:
        entries = entries_of(pod)
    except Refused:
        # Without its claims it was never prepared, and has no record.
        return ()
    return tuple(f"{pod.metadata.namespace}/{entry.claim_name}" for entry in entries)


def plan_unprepare(records: Records, pod_uid: str, keys: Iterable[str]) -> Plan:
    """What to record and which drivers to call when a pod has ended: only the last user of a claim unprepares it."""
    changed: list[ClaimRecord] = []
    claims: list[ClaimRecord] = []
    batches: dict[str, list[ClaimRecord]] = {}
    skips: list[str] = []
    for key in keys:
        record = records.get(key)
        if record is None or pod_uid not in record.pod_uids:
            continue
        if len(record.pod_uids) > 1:
            rest = tuple(uid for uid in record.pod_uids if uid != pod_uid)
            changed.append(msgspec.structs.replace(record, pod_uids=rest))
            continue
        record = msgspec.structs.replace(record, is_unpreparing=True)
        changed.append(record)
        claims.append(record)
        for driver, part in record.drivers.items():
            if part.skips(UNPREPARE):
                skips.append(driver)
            else:
                batches.setdefault(driver, []).append(record)
    return Plan(
        changed=tuple(changed),
        batches={driver: tuple(batch) for driver, batch in sorted(batches.items())},
        skips=tuple(skips),
        claims=tuple(claims),
    )


def inactive_pods(records: Records, active: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
    """Pods that are gone but still recorded, each with the keys of its claims."""
    found: dict[str, list[str]] = {}
    for key, record in records.items():
        for uid in record.pod_uids:
            if uid not in active:
                found.setdefault(uid, []).append(key)
    return {uid: tuple(keys) for uid, keys in sorted(found.items())}


# --- what containers get ---


def claims_of_container(pod: Pod, container: Container) -> tuple[tuple[str, str, str], ...]:
    """(name in the pod, name of the claim, request) for each claim that a container uses; request is empty for all of it.

    Refused if a claim has not been created yet.
    """
    entries = {entry.name: entry.claim_name for entry in entries_of(pod) if entry.name}
    return tuple(
        (claim.name, entries[claim.name], claim.request)
        for claim in container.resources.claims
        if claim.name in entries
    )


def cdi_ids(records: Records, pod: Pod, container: Container) -> tuple[str, ...]:
    """The CDI devices of a container, each once and in a fixed order. Refused if one of its claims is not prepared here."""
    wanted = [(claim, request) for _, claim, request in claims_of_container(pod, container)]
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        asked = {name for name, amount in container.resources.requests.items() if amount.sign()}
        asked |= {name for name, amount in container.resources.limits.items() if amount.sign()}
        wanted += [
            (extended.resource_claim_name, mapping.request_name)
            for mapping in extended.request_mappings
            if mapping.container_name == container.name and mapping.resource_name in asked
        ]
    found: dict[str, None] = {}
    for claim, request in wanted:
        for _, device in _devices(records, pod, claim, request):
            found |= dict.fromkeys(device.cdi_ids)
    return tuple(found)


def _devices(records: Records, pod: Pod, claim: str, request: str) -> list[tuple[str, PreparedDevice]]:
    namespace = pod.metadata.namespace
    record = records.get(f"{namespace}/{claim}")
    if record is None:
        raise Refused(f"unable to get claim info for ResourceClaim {claim} in namespace {namespace}")
    return [
        (driver, device)
        for driver, part in sorted(record.drivers.items())
        for device in part.devices
        if device.serves(request)
    ]


def devices_of_container(
    records: Records, pod: Pod, container: Container
) -> tuple[tuple[str, str, tuple[tuple[str, PreparedDevice], ...]], ...]:
    """(name in the pod with its request, claim, devices with their drivers) for each recorded claim of a container."""
    found = []
    for name, claim, request in claims_of_container(pod, container):
        if f"{pod.metadata.namespace}/{claim}" in records:
            title = f"{name}/{request}" if request else name
            found.append((title, claim, tuple(_devices(records, pod, claim, request))))
    return tuple(found)


def whole_claims_of_container(records: Records, pod: Pod, container: Container) -> tuple[ClaimRecord, ...]:
    """The recorded claims that a container uses at least in part, for device monitoring."""
    names = {claim: None for _, claim, _ in claims_of_container(pod, container)}
    extended = pod.status.extended_resource_claim_status
    if extended is not None and any(each.container_name == container.name for each in extended.request_mappings):
        names[extended.resource_claim_name] = None
    keys = [f"{pod.metadata.namespace}/{name}" for name in names]
    return tuple(records[key] for key in keys if key in records)
