"""Devices as the allocator sees them: what was published, and what is taken.

`DeviceState` is what the ledger knows about one device id (driver, pool, name): it outlives slices, because a claim can hold
a device that is no longer published. `DeviceEntry` is one published device; two entries can have the same id
(the same name in slices of different nodes, which upstream does not detect either) and then share the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from allot.core.cel.data.values import EvaluationError
from allot.core.cel.device import DeviceView
from allot.core.cel.device import view as device_view
from allot.core.memo import Memo
from allot.core.model import resource_v1 as api
from allot.core.semver import Semver, SemverError

if TYPE_CHECKING:
    from allot.core.allocation.constraints import Values
    from allot.core.allocation.counters import PoolCounters
    from allot.core.allocation.index import AvailabilityIndex


class DeviceID(NamedTuple):
    """What identifies a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class ClaimID(NamedTuple):
    """What identifies a claim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Share(NamedTuple):
    """A share of a device that one claim holds."""

    claim: ClaimID
    consumed: Mapping[str, int]


class DeviceState:
    """The holders of a device. Changed only by the ledger."""

    __slots__ = ("claims", "consumed", "counters", "entries", "id", "shares")

    def __init__(self, id_: DeviceID) -> None:
        self.id = id_
        # Claims that hold the device exclusively. More than one only if another scheduler erred.
        self.claims: list[ClaimID] = []
        self.shares: list[Share] = []
        # Capacity taken by all shares, in nano units.
        self.consumed: dict[str, int] = {}
        # Published devices with this id, and the counters that they draw on when allocated.
        self.entries: list[DeviceEntry] = []
        self.counters: list[tuple[PoolCounters, DeviceEntry]] = []

    @property
    def allocated(self) -> bool:
        """Held by anyone, in whole or in part."""
        return bool(self.claims or self.shares)


class DeviceEntry:
    """One published device."""

    __slots__ = (
        "_is_plain",
        "_view",
        "attributes",
        "capacity",
        "device",
        "drawn",
        "id",
        "indexes",
        "plain_capacity",
        "shareable",
        "slice",
        "state",
        "taints",
        "values",
    )

    def __init__(
        self,
        slice_: api.ResourceSlice,
        device: api.Device,
        state: DeviceState,
        taints: tuple[api.DeviceTaint, ...],
        shareable: bool,
    ) -> None:
        self.id = state.id
        self.slice = slice_
        self.device = device
        self.state = state
        self.taints = taints
        self.shareable = shareable
        self.capacity = device.capacity
        # Whether a request that says nothing about capacity just takes all of it.
        self.plain_capacity = not any(
            found.request_policy is not None or found.value.nano < 0 for found in device.capacity.values()
        )
        self.attributes = device.attributes
        # Indexes of free devices that list devices of its slice; shared by all devices of the slice.
        self.indexes: list[AvailabilityIndex]
        # Attributes as constraints see them, filled in by the reader.
        self.values: dict[str, Values | None] = {}
        # What it takes from each counter (`counters.consumption`); None until first needed.
        self.drawn: dict[tuple[str, str], int] | None = None
        self._view: DeviceView | EvaluationError | None = None
        self._is_plain: bool | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every attribute is a single value that can be read."""
        if self._is_plain is None:
            self._is_plain = _are_plain(self.attributes.values())
        return self._is_plain

    @property
    def view(self) -> DeviceView:
        """The device as CEL sees it; EvaluationError if the published attributes cannot be represented."""
        view = self._view
        if view is None:
            try:
                view = view_of(self.id.driver, self.device)
            except EvaluationError as error:
                view = error
            self._view = view
        if isinstance(view, EvaluationError):
            raise view
        return view

    def attribute(self, name: str) -> api.DeviceAttribute | None:
        """A published attribute by its fully qualified name."""
        found = self.attributes.get(name)
        if found is not None:
            return found
        domain, slash, id_ = name.partition("/")
        if slash and domain == self.id.driver:
            return self.attributes.get(id_)
        return None


def view_of(driver: str, device: api.Device) -> DeviceView:
    """A device as CEL sees it; EvaluationError if its attributes cannot be represented.

    Nodes of one kind publish the same devices over and over: devices that look the same share a view.
    """
    shareable = bool(device.allow_multiple_allocations)
    key = (driver, shareable, _ENCODER.encode((device.attributes, device.capacity)))
    found = _views.get(key)
    if found is None:
        found = device_view(
            driver,
            attributes={name: attribute_value(value) or _NO_VALUE for name, value in device.attributes.items()},
            capacity={name: capacity.value for name, capacity in device.capacity.items()},
            allow_multiple_allocations=shareable,
        )
        _views.remember(key, found)
    return found


# Only to tell devices apart, so any faithful text is fine for quantities.
_ENCODER = msgspec.json.Encoder(enc_hook=str)
_views: Memo[tuple[str, bool, bytes], DeviceView] = Memo(4096)


def are_simple(entries: Iterable[DeviceEntry]) -> bool:
    """Whether only selectors decide which requests may use the devices, if these request no capacity. A loop without calls: it runs for
    every device."""
    for entry in entries:
        device = entry.device
        if entry.taints or device.allow_multiple_allocations or not entry.plain_capacity:
            return False
        if device.binding_conditions or device.consumes_counters:
            return False
        if not entry.is_plain:
            return False
    return True


def _are_plain(attributes: Iterable[api.DeviceAttribute]) -> bool:
    """A loop without calls: there are many devices with many attributes."""
    for attribute in attributes:
        if attribute.string is not None or attribute.int_ is not None or attribute.bool_ is not None:
            continue
        if attribute.version is None or not _is_version(attribute.version):
            return False
    return True


@lru_cache(maxsize=4096)
def _is_version(text: str) -> bool:
    try:
        Semver.parse(text)
    except SemverError:
        return False
    return True


# No kind at all: building the view fails, and with it every selector.
_NO_VALUE = ("", None)


def attribute_value(attribute: api.DeviceAttribute) -> tuple[str, object] | None:
    """The member of the one-of that is set, as (kind, value); None if there is none."""
    if attribute.string is not None:
        return "string", attribute.string
    if attribute.int_ is not None:
        return "int", attribute.int_
    if attribute.bool_ is not None:
        return "bool", attribute.bool_
    if attribute.version is not None:
        return "version", attribute.version
    for kind in ("ints", "bools", "strings", "versions"):
        values = getattr(attribute, kind)
        if values:
            return kind, values
    return None
