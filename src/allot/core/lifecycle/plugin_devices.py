"""The devices of device plugins: which container of a pod holds which, which ones a container gets, and what the node offers.

Knows: the rules and texts of the kubelet (pkg/kubelet/cm/devicemanager, 1.37). Does not know how a plugin is called or where
records are stored. There is no topology manager: NUMA nodes are reported, but do not decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allot.core.lifecycle.device_health import HEALTHY, UNHEALTHY, UNKNOWN
from allot.core.model.core_v1 import Container, Pod, ResourceHealth, ResourceStatus
from allot.core.quoting import quoted
from allot.core.validation.pod_resources import is_extended_resource

VERSION = "v1beta1"
_NAME_CHARACTERS_MAX = 253 + 1 + 63
_PERMISSIONS = frozenset("rwm")


class Refused(Exception):
    """A plugin cannot be registered, or a container cannot get its devices. The message is the kubelet's where it has one."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device as its plugin describes it."""

    id: str
    is_healthy: bool = True
    numa_nodes: tuple[int, ...] = ()


class HostPath(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the node in a container: a mount, or a device node with its permissions."""

    host_path: str
    container_path: str
    read_only: bool = False
    permissions: str = ""


class Edits(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin adds to a container."""

    environment: Mapping[str, str] = {}
    mounts: tuple[HostPath, ...] = ()
    devices: tuple[HostPath, ...] = ()
    annotations: Mapping[str, str] = {}
    cdi_devices: tuple[str, ...] = ()


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one resource that a container holds, and what they add to it."""

    devices: tuple[Device, ...]
    edits: Edits = Edits()

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the devices."""
        return tuple(each.id for each in self.devices)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of device plugins. is_connected: whether a plugin serves it; without one, no device is healthy."""

    devices: Mapping[str, Device] = {}
    is_connected: bool = False

    @property
    def healthy(self) -> frozenset[str]:
        """The devices that containers can get."""
        return frozenset(id_ for id_, each in self.devices.items() if self.is_connected and each.is_healthy)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Devices for a container: those that it takes over from init containers, those that are free, and how many of the latter it needs."""

    reused: tuple[str, ...]
    free: tuple[str, ...]
    needed: int


# --- who holds what ---


class Ledger:
    """The holdings of all containers, by pod, container and resource."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, dict[str, Holding]]] = {}

    def __iter__(self) -> Iterator[tuple[str, str, str, Holding]]:
        for uid, containers in self._pods.items():
            for container, resources in containers.items():
                for resource, holding in resources.items():
                    yield uid, container, resource, holding

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def hold(self, uid: str, container: str, resource: str, holding: Holding) -> None:
        """A container has got devices."""
        self._pods.setdefault(uid, {}).setdefault(container, {})[resource] = holding

    def let_go(self, uid: str, container: str, resource: str) -> None:
        """A container has not got its devices after all."""
        resources = self._pods.get(uid, {}).get(container, {})
        resources.pop(resource, None)
        if not resources:
            self._pods.get(uid, {}).pop(container, None)
        if not self._pods.get(uid):
            self._pods.pop(uid, None)

    def forget(self, uid: str) -> bool:
        """A pod no longer uses its devices. Returns whether it had any."""
        return self._pods.pop(uid, None) is not None

    def uids(self) -> tuple[str, ...]:
        """All pods that hold devices."""
        return tuple(self._pods)

    def of(self, uid: str, container: str) -> Mapping[str, Holding]:
        """The holdings of a container, by resource."""
        return self._pods.get(uid, {}).get(container, {})

    def in_use(self) -> dict[str, set[str]]:
        """The devices that are held, by resource."""
        found: dict[str, set[str]] = {}
        for _, _, resource, holding in self:
            found.setdefault(resource, set()).update(holding.ids)
        return found

    def users(self, resource: str, devices: Iterable[str]) -> tuple[str, ...]:
        """The pods that hold any of these devices."""
        wanted = frozenset(devices)
        return tuple(
            dict.fromkeys(
                uid for uid, _, name, holding in self if name == resource and wanted.intersection(holding.ids)
            )
        )

    def reusable(self, pod: Pod, resource: str) -> tuple[str, ...]:
        """Devices that later containers of a pod can take over: init containers have ended by then, unless they are sidecars."""
        passed: dict[str, None] = {}
        kept: set[str] = set()
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            holding = self.of(pod.metadata.uid, container.name).get(resource)
            if holding is None:
                continue
            if container in pod.spec.init_containers and not container.is_sidecar:
                passed |= dict.fromkeys(holding.ids)
            else:
                kept.update(holding.ids)
        return tuple(sorted(each for each in passed if each not in kept))


# --- what a container asks for ---


def amounts(pod: Pod, container: Container) -> dict[str, int]:
    """The extended resources of a container that are not devices of claims. Requests equal limits: these resources are not overcommitted."""
    mapped = pod.status.extended_resource_claim_status
    claimed = {
        each.resource_name
        for each in (mapped.request_mappings if mapped is not None else ())
        if each.container_name == container.name
    }
    return {
        name: amount.value()
        for name, amount in sorted(container.resources.limits.items())
        if "/" in name and name not in claimed and amount.value() > 0
    }


def plan(
    pod: Pod, container: Container, resource: str, required: int, offer: Offer | None, ledger: Ledger
) -> Plan | None:
    """Which devices a container can get; None if it has them already. Refused with the kubelet's texts, in its order."""
    uid, held = pod.metadata.uid, ledger.of(pod.metadata.uid, container.name).get(resource)
    if held is not None and len(held.devices) != required:
        raise Refused(
            f'pod "{uid}" container "{container.name}" changed request for resource "{resource}" '
            f"from {len(held.devices)} to {required}"
        )
    if offer is None:
        raise Refused(f"cannot allocate unregistered device {resource}")
    if not offer.healthy:
        raise Refused(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if held is not None:
        if not offer.healthy.issuperset(held.ids):
            raise Refused(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return None
    reused = ledger.reusable(pod, resource)[:required]
    needed = required - len(reused)
    free = sorted(offer.healthy - ledger.in_use().get(resource, set()))
    if needed > len(free):
        raise Refused(
            f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {len(free)}"
        )
    return Plan(reused=reused, free=tuple(free), needed=needed)


def pick(plan_: Plan, preferred: Sequence[str]) -> tuple[str, ...]:
    """The devices: first what the plugin prefers, as far as that is free. A preference is not binding."""
    free = frozenset(plan_.free)
    ordered = dict.fromkeys((*(each for each in preferred if each in free), *plan_.free))
    return (*plan_.reused, *tuple(ordered)[: plan_.needed])


# --- what a container gets ---


def merged(holdings: Mapping[str, Holding]) -> tuple[Edits, tuple[str, ...]]:
    """What all plugins of a container add to it, and where two contradict each other: the first by resource name wins."""
    environment: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, HostPath] = {}
    devices: dict[str, HostPath] = {}
    cdi: dict[str, None] = {}
    conflicts: list[str] = []
    for resource, holding in sorted(holdings.items()):
        edits = holding.edits
        for what, known, own in (
            ("variable", environment, edits.environment),
            ("annotation", annotations, edits.annotations),
        ):
            for name, value in own.items():
                if known.setdefault(name, value) != value:
                    conflicts.append(f"{what} {name} of {resource}")
        for kind, paths, given in (("mount", mounts, edits.mounts), ("device", devices, edits.devices)):
            for path in given:
                if paths.setdefault(path.container_path, path).host_path != path.host_path:
                    conflicts.append(f"{kind} {path.container_path} of {resource}")
        cdi |= dict.fromkeys(edits.cdi_devices)
    return Edits(
        environment=environment,
        annotations=annotations,
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        cdi_devices=tuple(cdi),
    ), tuple(conflicts)


def check_edits(edits: Edits) -> None:
    """Refused if no runtime could apply them."""
    for name, value in edits.environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise Refused(f"variable {name[:100]!r}: expected a name without '=', and text without zero bytes")
    for kind, paths in (("mount", edits.mounts), ("device", edits.devices)):
        for path in paths:
            for each in (path.host_path, path.container_path):
                if not each.startswith("/") or "\0" in each:
                    raise Refused(
                        f"{kind} of {path.host_path[:100]!r} at {path.container_path[:100]!r}: expected absolute paths"
                    )
    for path in edits.devices:
        if not _PERMISSIONS.issuperset(path.permissions):
            raise Refused(
                f"device {path.host_path!r}: permissions {path.permissions[:100]!r}: expected letters of 'rwm'"
            )


# --- what a node offers ---


def check_resource_name(name: str) -> None:
    """Refused unless a plugin can serve a resource of this name."""
    if len(name) > _NAME_CHARACTERS_MAX or not is_extended_resource(name):
        raise Refused(f"the ResourceName {quoted(name[:_NAME_CHARACTERS_MAX])} is invalid")


def check_version(version: str) -> None:
    """Refused unless the agent speaks this version."""
    if version != VERSION:
        raise Refused(
            f"requested API version {quoted(version[:100])} is not supported by kubelet. Supported version is [{quoted(VERSION)}]"
        )


class NodeAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has of each resource, and how many of these devices are healthy."""

    capacity: Mapping[str, int] = {}
    allocatable: Mapping[str, int] = {}


def node_amounts(offers: Mapping[str, Offer], gone: Iterable[str]) -> NodeAmounts:
    """The amounts of a node. gone: resources that no plugin has served for long. They become 0 instead of disappearing, to be told from
    resources that belong to the whole cluster."""
    capacity, allocatable = dict.fromkeys(gone, 0), dict.fromkeys(gone, 0)
    for resource, offer in sorted(offers.items()):
        capacity[resource], allocatable[resource] = len(offer.devices), len(offer.healthy)
    return NodeAmounts(capacity=capacity, allocatable=allocatable)


def changed_devices(before: Mapping[str, Device], now: Mapping[str, Device]) -> tuple[str, ...]:
    """The devices whose health is reported anew: it has changed, or they are new, or gone."""
    return tuple(
        id_
        for id_ in dict.fromkeys((*before, *now))
        if id_ not in before or id_ not in now or before[id_].is_healthy != now[id_].is_healthy
    )


def container_statuses(ledger: Ledger, offers: Mapping[str, Offer], pod: Pod) -> dict[str, tuple[ResourceStatus, ...]]:
    """allocatedResourcesStatus of the regular containers of a pod that hold devices, by their names."""
    found = {}
    for container in pod.spec.containers:
        holdings = ledger.of(pod.metadata.uid, container.name)
        if holdings:
            found[container.name] = tuple(
                ResourceStatus(
                    name=resource,
                    resources=tuple(
                        ResourceHealth(resource_id=id_, health=_health(offers.get(resource), id_))
                        for id_ in holding.ids
                    ),
                )
                for resource, holding in sorted(holdings.items())
            )
    return found


def _health(offer: Offer | None, id_: str) -> str:
    """As last reported. The kubelet calls a device healthy that nobody has reported about; that is not known."""
    device = offer.devices.get(id_) if offer is not None else None
    if device is None:
        return UNKNOWN
    return HEALTHY if device.is_healthy else UNHEALTHY
