"""The agent's checkpoints: the claims in use on this node, and the health of their devices.

Both files are the kubelet's (1.37): `dra_manager_state`, whose inner JSON text carries a CRC-32, and `dra_health_state`. A node can
thus move between the two.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from allot.core.lifecycle.device_health import TIMEOUT_S, UNKNOWN, DeviceHealth, DriverHealth
from allot.core.lifecycle.preparation import ClaimRecord, DriverRecord, PreparedDevice, Records
from allot.node.state_file import CheckpointCorrupt

CLAIMS_FILE = "dra_manager_state"
HEALTH_FILE = "dra_health_state"
_KIND = "DRACheckpoint"
_API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"


class _Device(msgspec.Struct, frozen=True, kw_only=True):
    pool: str = msgspec.field(name="PoolName", default="")
    device: str = msgspec.field(name="DeviceName", default="")
    share_id: str | None = msgspec.field(name="ShareID", default=None)
    request_names: tuple[str, ...] | None = msgspec.field(name="RequestNames", default=None)
    cdi_ids: tuple[str, ...] | None = msgspec.field(name="CDIDeviceIDs", default=None)


class _Driver(msgspec.Struct, frozen=True, kw_only=True):
    devices: tuple[_Device, ...] | None = msgspec.field(name="Devices", default=None)
    skipped: tuple[str, ...] | msgspec.UnsetType = msgspec.field(name="skipNodeOperations", default=msgspec.UNSET)


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    uid: str = msgspec.field(name="ClaimUID")
    name: str = msgspec.field(name="ClaimName")
    namespace: str = msgspec.field(name="Namespace")
    pod_uids: Mapping[str, Mapping[str, str]] | None = msgspec.field(name="PodUIDs", default=None)
    drivers: Mapping[str, _Driver] | None = msgspec.field(name="DriverState", default=None)


class _Inner(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    claims: tuple[_Claim, ...] | None = msgspec.field(name="ClaimInfoStateList", default=None)


class _Outer(msgspec.Struct, frozen=True, kw_only=True):
    data: str = msgspec.field(name="Data")
    checksum: int = msgspec.field(name="Checksum")


# --- claims ---


def encode_claims(records: Records) -> bytes:
    """The file's content."""
    claims = tuple(
        _Claim(
            uid=record.uid,
            name=record.name,
            namespace=record.namespace,
            pod_uids={uid: {} for uid in record.pod_uids},
            drivers={
                driver: _Driver(
                    devices=tuple(
                        _Device(
                            pool=device.pool,
                            device=device.device,
                            share_id=device.share_id,
                            request_names=device.request_names or None,
                            cdi_ids=device.cdi_ids or None,
                        )
                        for device in part.devices
                    )
                    or None,
                    skipped=part.skipped or msgspec.UNSET,
                )
                for driver, part in record.drivers.items()
            },
        )
        for record in records.values()
    )
    inner = msgspec.json.encode(_Inner(kind=_KIND, api_version=_API_VERSION, claims=claims))
    return msgspec.json.encode(_Outer(data=inner.decode(), checksum=zlib.crc32(inner)))


def decode_claims(path: Path, content: bytes) -> dict[str, ClaimRecord]:
    """The records by key; CheckpointCorrupt if the content is damaged or of another kind."""
    try:
        outer = msgspec.json.decode(content, type=_Outer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(path, str(error)) from error
    raw = outer.data.encode()
    if zlib.crc32(raw) != outer.checksum:
        raise _corrupt(path, f"its checksum is {outer.checksum}, that of its content {zlib.crc32(raw)}")
    try:
        inner = msgspec.json.decode(raw, type=_Inner)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _corrupt(path, str(error)) from error
    if (inner.kind, inner.api_version) != (_KIND, _API_VERSION):
        raise _corrupt(path, f"it is a {inner.kind!r} of {inner.api_version!r}, expected {_KIND} of {_API_VERSION}")
    records = [_record(claim) for claim in inner.claims or ()]
    return {record.key: record for record in records}


def _corrupt(path: Path, why: str) -> CheckpointCorrupt:
    lost = "the claims that are prepared on this node are unknown"
    return CheckpointCorrupt(path, why, lost=lost, first="make sure that its drivers hold no claims")


def _record(claim: _Claim) -> ClaimRecord:
    return ClaimRecord(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        pod_uids=tuple(sorted(claim.pod_uids or ())),
        drivers={
            driver: DriverRecord(
                devices=tuple(
                    PreparedDevice(
                        pool=device.pool,
                        device=device.device,
                        share_id=device.share_id,
                        request_names=device.request_names or (),
                        cdi_ids=device.cdi_ids or (),
                    )
                    for device in part.devices or ()
                ),
                skipped=part.skipped or (),
            )
            for driver, part in sorted((claim.drivers or {}).items())
        },
    )


# --- health ---


class _Health(msgspec.Struct, frozen=True, kw_only=True):
    pool: str = msgspec.field(name="PoolName", default="")
    device: str = msgspec.field(name="DeviceName", default="")
    health: str = msgspec.field(name="Health", default=UNKNOWN)
    updated: datetime = msgspec.field(name="LastUpdated", default=datetime.fromtimestamp(0, UTC))
    timeout_ns: int = msgspec.field(name="HealthCheckTimeout", default=0)
    message: str = msgspec.field(name="Message", default="")


class _Devices(msgspec.Struct, frozen=True, kw_only=True):
    devices: Mapping[str, _Health] | None = msgspec.field(name="Devices", default=None)


def encode_health(health: Mapping[str, DriverHealth]) -> bytes:
    """The file's content."""
    value = {
        driver: _Devices(
            devices={
                f"{pool}/{device}": _Health(
                    pool=pool,
                    device=device,
                    health=said.health,
                    updated=datetime.fromtimestamp(said.updated_at, UTC),
                    timeout_ns=int(said.timeout_s * 1e9),
                    message=said.message,
                )
                for (pool, device), said in devices.items()
            }
        )
        for driver, devices in health.items()
    }
    return msgspec.json.encode(value)


def decode_health(content: bytes) -> dict[str, DriverHealth]:
    """The last known health by driver. ValueError if the content is damaged; nothing depends on it."""
    value = msgspec.json.decode(content, type=dict[str, _Devices])
    return {
        driver: {
            (each.pool, each.device): DeviceHealth(
                health=each.health,
                message=each.message,
                timeout_s=each.timeout_ns / 1e9 if each.timeout_ns > 0 else TIMEOUT_S,
                updated_at=each.updated.timestamp(),
            )
            for each in (devices.devices or {}).values()
        }
        for driver, devices in value.items()
    }
