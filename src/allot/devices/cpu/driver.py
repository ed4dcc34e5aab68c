"""The driver: publishes CPUs, assigns each claim its own, and passes them to containers.

Containers find their CPUs in `DRA_CPUSET_<claim UID>`, under the name that dra-driver-cpu's runtime plugin reads. Where a hook may
run on the node, the driver pins the container's first process itself (`pin`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from allot.devices.cpu.choice import NotEnoughCpus, choose
from allot.devices.cpu.config import KINDS, ParametersError, asked_cpus
from allot.devices.cpu.inventory import CAPACITY, DRIVER_NAME, GroupBy, Mode, Offer, Publishing, offers
from allot.devices.cpu.topology import Topology
from allot.devices.sysfs import format_cpu_list, parse_cpu_list
from allot.driver import (
    AllocatedDevice,
    Claim,
    Device,
    DeviceAttribute,
    DeviceHealth,
    Driver,
    Edits,
    Health,
    Hook,
    Preparation,
    Prepared,
    PrepareError,
)


class _Held(msgspec.Struct, frozen=True):
    """What the checkpoint keeps of a claim: the CPUs of all its devices."""

    cpuset: str = ""


class CpuDriver(Driver):
    """CPUs of one machine. read: returns the current CPUs."""

    name = DRIVER_NAME
    configs = KINDS
    cdi_class = "cpu"
    health_timeout_s = 20.0

    def __init__(
        self, read: Callable[[], Topology], publishing: Publishing | None = None, pin_command: tuple[str, ...] = ()
    ) -> None:
        self.publishing = publishing or Publishing()
        self._read = read
        self._pin_command = pin_command
        # The last topology read, and the devices published from it, which are expensive to compute.
        self._known: tuple[Topology, dict[str, Offer]] | None = None
        # All CPUs ever seen: offline ones are reported as unhealthy.
        self._seen: dict[str, None] = {}

    def _offers(self) -> dict[str, Offer]:
        topology = self._read()
        if self._known is None or self._known[0] != topology:
            self._known = (topology, {offer.device.name: offer for offer in offers(topology, self.publishing)})
            self._seen |= dict.fromkeys(self._known[1])
        return self._known[1]

    def devices(self) -> Iterable[Device]:
        """Groups, or single CPUs."""
        return [offer.device for offer in self._offers().values()]

    def health(self) -> Iterable[DeviceHealth]:
        """CPUs are healthy while they are online."""
        present = self._offers()
        for name in self._seen:
            if name in present:
                yield DeviceHealth(name=name)
            else:
                yield DeviceHealth(name=name, health=Health.UNHEALTHY, message="offline")

    def prepare(self, claim: Claim) -> Preparation:
        """Choose free CPUs, and record them before they are announced."""
        present = self._offers()
        taken = {cpu for other in self.node.prepared() if other.uid != claim.uid for cpu in _cpus_of(other.state)}
        chosen: dict[tuple[str, str | None], tuple[int, ...]] = {}
        for device in claim.devices:
            cpus = self._chosen(claim, device, present[device.name], taken)
            if not device.admin_access:
                taken |= set(cpus)
            chosen[device.name, device.share_id] = cpus
        own = {cpu for device in claim.devices if not device.admin_access for cpu in _of(chosen, device)}
        state = {"cpuset": format_cpu_list(own)}
        claim.save(state)
        # A container gets one cpuset for the claim, whichever of its requests it names.
        edits = self._edits(claim, format_cpu_list(cpu for cpus in chosen.values() for cpu in cpus))
        prepared = tuple(
            Prepared(device, edits, metadata=_metadata(device, len(_of(chosen, device)))) for device in claim.devices
        )
        return Preparation(prepared, state)

    def _chosen(self, claim: Claim, device: AllocatedDevice, offer: Offer, taken: set[int]) -> tuple[int, ...]:
        everything = tuple(cpu.id for cpu in offer.cpus)
        if self.publishing.mode is Mode.INDIVIDUAL:
            return everything
        consumed = device.consumed_capacity.get(CAPACITY)
        count = consumed.value() if consumed is not None else len(everything)
        where = f"claim {claim.namespace}/{claim.name}, device {device.name}"
        try:
            asked = asked_cpus(device, self.publishing.group_by is GroupBy.MACHINE, everything, count)
            if asked is None:
                # Admin access may include CPUs in use.
                return choose(offer.cpus, () if device.admin_access else taken, count)
        except (NotEnoughCpus, ParametersError) as error:
            raise PrepareError(f"{where}: {error}") from None
        overlap = sorted(set(asked) & taken)
        if overlap and not device.admin_access:
            raise PrepareError(f"{where}: CPUs {format_cpu_list(overlap)} belong to other claims")
        return asked

    def _edits(self, claim: Claim, cpuset: str) -> Edits:
        hooks: tuple[Hook, ...] = ()
        if self._pin_command:
            arguments = (*self._pin_command, cpuset)
            hooks = (Hook(hook_name="poststart", path=arguments[0], args=arguments),)
        return Edits(env={f"DRA_CPUSET_{claim.uid}": cpuset}, hooks=hooks)


def _cpus_of(state: object) -> tuple[int, ...]:
    if state is None:
        return ()
    return parse_cpu_list(msgspec.convert(state, _Held).cpuset)


def _of(chosen: dict[tuple[str, str | None], tuple[int, ...]], device: AllocatedDevice) -> tuple[int, ...]:
    return chosen[device.name, device.share_id]


def _metadata(device: AllocatedDevice, count: int) -> dict[str, DeviceAttribute]:
    declared = dict(device.declared.attributes) if device.declared is not None else {}
    return {**declared, f"{DRIVER_NAME}/allocatedNumCPUs": DeviceAttribute(int_=count)}
