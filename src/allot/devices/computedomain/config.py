"""The driver's parameters (`resource.nvidia.com/v1beta1`): ComputeDomainChannelConfig and ComputeDomainDaemonConfig."""

from __future__ import annotations

import re

import msgspec

from allot.core.model.compute_domains import ALL, API_VERSION, CHANNEL_CONFIG, DAEMON_CONFIG, SINGLE
from allot.devices.computedomain.classes import CHANNEL, DAEMON
from allot.driver import AllocatedDevice, PrepareError
from allot.driver.configuration import ConfigKind

# The UID becomes a directory name.
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """domain_id: the uid of a ComputeDomain."""

    domain_id: str = msgspec.field(default="", name="domainID")


class ChannelConfig(_Parameters, frozen=True, kw_only=True):
    """The domain of a channel, and whether the claim gets all channels."""

    allocation_mode: str = SINGLE


class DaemonConfig(_Parameters, frozen=True, kw_only=True):
    """Which domain a daemon serves."""


KINDS = (
    ConfigKind(API_VERSION, CHANNEL_CONFIG, ChannelConfig),
    ConfigKind(API_VERSION, DAEMON_CONFIG, DaemonConfig),
)
_KIND_NAMES = {CHANNEL: CHANNEL_CONFIG, DAEMON: DAEMON_CONFIG}


def config_of(device: AllocatedDevice) -> ChannelConfig | DaemonConfig:
    """The validated parameters of a device; PrepareError. Those for all requests apply if they fit; those for this request must fit."""
    type_ = device.name.partition("-")[0]
    fitting: type[ChannelConfig] | type[DaemonConfig] = ChannelConfig if type_ == CHANNEL else DaemonConfig
    for each in device.configs:
        if each.requests and not isinstance(each.value, fitting):
            raise PrepareError(
                f"request {device.request!r}: these parameters cannot be applied to device {device.name}, "
                f"expected {_KIND_NAMES[type_]}"
            )
    found = device.config(fitting, fitting())
    if not _UID.fullmatch(found.domain_id):
        what = f"domainID {found.domain_id!r}" if found.domain_id else "domainID is empty"
        raise PrepareError(
            f"device {device.name}: {what}: expected the uid of a ComputeDomain in {_KIND_NAMES[type_]}; "
            "use the ResourceClaimTemplate that the ComputeDomain names"
        )
    if isinstance(found, ChannelConfig) and found.allocation_mode not in (SINGLE, ALL):
        raise PrepareError(f"allocationMode {found.allocation_mode!r}: expected {SINGLE} or {ALL}")
    return found
