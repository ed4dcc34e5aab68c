"""Names and values that remedies mention: found by following the references of a pod to its claims, devices, node and Services."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from allot.core.advice.explain.causes.selecting import without_endpoints
from allot.core.advice.explain.daemons import daemon_sets, left_out, taken_in
from allot.core.advice.explain.devices import taint_rule_text
from allot.core.advice.explain.diagnosis import place_of_claim
from allot.core.advice.explain.events import reboot_of
from allot.core.advice.explain.holding import comes_back
from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.allocation.devices import DeviceID
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity

# What tells one model of device from another, in words that users know.
_TELLING = ("profile", "partitionProfile", "productName", "model", "type")
_MEMORY = ("memory", "hbm", "vram", "memoryBytes")
_IN_NUMBERS = re.compile(r"^[\d.]+$")
_IN_CLUSTER = (".svc", ".svc.cluster.local")
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
_SPARE = 1 << 30

# Who makes the files of the kernel that drivers need.
MODULES = {
    "/sys/class/kfd": "kernel module amdgpu",
    "/dev/kfd": "kernel module amdgpu",
    "/sys/module/amdgpu": "kernel module amdgpu",
    "/dev/nvidia": "NVIDIA kernel driver",
    "/proc/driver/nvidia": "NVIDIA kernel driver",
    "/sys/module/nvidia": "NVIDIA kernel driver",
    "/run/nvidia/driver": "NVIDIA kernel driver",
    "/dev/accel": "accelerator's kernel driver",
    "/sys/class/accel": "accelerator's kernel driver",
    "/dev/dri": "GPU's kernel driver",
    "/sys/class/drm": "GPU's kernel driver",
    "/dev/infiniband": "RDMA kernel driver",
    "/sys/class/infiniband": "RDMA kernel driver",
    "/dev/vfio": "kernel module vfio-pci",
}
_DEV = re.compile(r"/dev(?:/|$)")


class HeldDevice(NamedTuple):
    """A device that a pod's claim has."""

    claim: api.ResourceClaim
    result: api.DeviceRequestAllocationResult

    @property
    def id(self) -> DeviceID:
        """Driver, pool and name."""
        return DeviceID(self.result.driver, self.result.pool, self.result.device)


def held_devices(what_if: WhatIfCluster, pod: core_v1.Pod) -> Iterator[HeldDevice]:
    """The devices that the claims of a pod have."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is not None and claim.status.allocation is not None:
            for result in claim.status.allocation.devices.results:
                yield HeldDevice(claim, result)


class _Unknown(KeyError):
    """A name in a text that is not known of this pod."""


class Facts:
    """What is known of a pod and of a message about it, by the names that texts use in braces. Found when a text asks."""

    def __init__(self, what_if: WhatIfCluster, pod: core_v1.Pod, container: str = "", **known: str) -> None:
        self.what_if = what_if
        self.pod = pod
        self.container = next((each for each in _containers(pod) if each.name == container), None)
        self.groups: Mapping[str, str | None] = {}
        self._known = {
            "node": pod.spec.node_name,
            "namespace": pod.metadata.namespace,
            "pod": pod.metadata.name,
            "self": full_name(pod),
            "container": container,
            "image": self.container.image if self.container is not None else "",
            **known,
        }

    def of(self, found: re.Match[str]) -> Facts:
        """With the groups of a match: path1 is another place for path, because a pattern may name a group only once."""
        self.groups = {name.rstrip("0123456789"): value for name, value in found.groupdict().items() if value}
        return self

    def fill(self, text: str) -> str:
        """A text with its names filled in; empty if one is not known."""
        try:
            return text.format_map(self)
        except _Unknown:
            return ""

    def __getitem__(self, name: str) -> str:
        value = self.groups.get(name) or self._known.get(name)
        if not value and name in FACTS:
            value = self._known[name] = FACTS[name](self)
        if not value:
            raise _Unknown(name)
        return value

    @property
    def devices(self) -> list[HeldDevice]:
        """Those that the container may use, or the pod if the container is not known."""
        held = list(held_devices(self.what_if, self.pod))
        if self.container is None or not self.container.resources.claims:
            return held
        mine = {claim.name for claim in self.container.resources.claims}
        names = {each.resource_claim_name for each in self.pod.status.resource_claim_statuses if each.name in mine} | {
            entry.resource_claim_name for entry in self.pod.spec.resource_claims if entry.name in mine
        }
        return [each for each in held if each.claim.metadata.name in names] or held

    def published(self, held: HeldDevice) -> api.Device | None:
        """What its driver publishes of a device."""
        entries = self.what_if.claims.inventory.devices_named(held.id)
        return entries[0].device if entries else None


def _containers(pod: core_v1.Pod) -> list[core_v1.Container]:
    return [*pod.spec.init_containers, *pod.spec.containers]


# --- devices ---


def _first(facts: Facts) -> tuple[HeldDevice, api.Device] | None:
    """The first device that has memory, or else the first."""
    known = [(held, found) for held in facts.devices if (found := facts.published(held)) is not None]
    return next((each for each in known if memory_of(each[1]) is not None), known[0] if known else None)


def memory_of(device: api.Device) -> Quantity | None:
    """The memory of a device; None if it publishes none."""
    for name, capacity in device.capacity.items():
        if name.rpartition("/")[2] in _MEMORY:
            return capacity.value
    return None


def attribute(device: api.Device, *names: str) -> str:
    """The first of some attributes that a device has, as text."""
    for name in names:
        for key, value in device.attributes.items():
            if key.rpartition("/")[2] == name:
                return value.string or value.version or (str(value.int_) if value.int_ is not None else "")
    return ""


def _described(device: api.Device) -> str:
    memory = memory_of(device)
    parts = [attribute(device, *_TELLING), f"{memory} of memory" if memory is not None else ""]
    shown = ", ".join(filter(None, parts))
    return f"device {device.name}{f' ({shown})' if shown else ''}"


def _device(facts: Facts) -> str:
    first = _first(facts)
    return _described(first[1]) if first is not None else ""


def _taint_rule(facts: Facts) -> str:
    """A rule for the device; of several, it is not known which one is meant."""
    held = facts.devices
    return taint_rule_text(held[0].id) if len(held) == 1 else "a DeviceTaintRule of effect NoExecute for the device"


def _place(facts: Facts) -> str:
    first = _first(facts)
    claim = first[0].claim if first is not None else next((each.claim for each in facts.devices), None)
    place = place_of_claim(facts.what_if, facts.pod, claim) if claim is not None else None
    return place.spoken if place is not None else ""


def _larger(facts: Facts) -> str:
    """The next larger kind of device of the same driver that is free, its own node first: `profile 2g.20gb (19968Mi of memory; free ...)`."""
    first = _first(facts)
    own = memory_of(first[1]) if first is not None else None
    if first is None or own is None:
        return ""
    held, device = first
    inventory = facts.what_if.claims.inventory
    taken = _in_use(facts.what_if)
    found: list[tuple[bool, int, str, str, api.Device]] = []
    for slice_ in facts.what_if.all(api.ResourceSlice):
        for other in slice_.spec.devices or () if slice_.spec.driver == held.id.driver else ():
            memory = memory_of(other)
            id_ = DeviceID(slice_.spec.driver, slice_.spec.pool.name, other.name)
            entries = inventory.devices_named(id_)
            if memory is None or memory.nano <= own.nano or id_ in taken or not entries:
                continue
            if any(pool.shortage(entry) is not None for pool, entry in entries[0].state.counters):
                continue
            node = slice_.spec.node_name or other.node_name or ""
            found.append((node != facts.pod.spec.node_name, memory.nano, other.name, node, other))
    if not found:
        return ""
    _, _, _, node, other = min(found, key=lambda each: each[:4])
    where = f" on node {node}" if node else ""
    # By what it differs in: a partition and its whole device are of one model.
    differs = [name for name in _TELLING if attribute(other, name) not in ("", attribute(device, name))]
    what = f"{differs[0]} {attribute(other, differs[0])}" if differs else "a larger device"
    return f"{what} ({memory_of(other)} of memory; {other.name}{where} is free)"


def _in_use(what_if: WhatIfCluster) -> set[DeviceID]:
    return {
        DeviceID(result.driver, result.pool, result.device)
        for claim in what_if.all(api.ResourceClaim)
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    }


def _number(facts: Facts) -> str:
    return str(len(facts.devices)) if facts.devices else ""


def _driver(facts: Facts) -> str:
    return listed(sorted({held.id.driver for held in held_devices(facts.what_if, facts.pod)}))


def _requests(facts: Facts) -> str:
    """The requests of the claims for devices of the network."""
    names = dict.fromkeys(
        held.result.request
        for held in facts.devices
        if "net" in held.id.driver or "rdma" in held.id.driver or "nic" in held.result.request
    )
    return named("request", names) if names else ""


def _of_attribute(*names: str) -> Callable[[Facts], str]:
    def found(facts: Facts) -> str:
        first = _first(facts)
        return attribute(first[1], *names) if first is not None else ""

    return found


def _sharers(facts: Facts) -> str:
    """Other pods that have the same device."""
    own = {held.id for held in facts.devices}
    others = [
        full_name(pod)
        for pod in facts.what_if.all(core_v1.Pod)
        if pod.metadata.uid != facts.pod.metadata.uid
        and pod.spec.node_name == facts.pod.spec.node_name
        and pod.status.phase not in ("Succeeded", "Failed")
        and own & {held.id for held in held_devices(facts.what_if, pod)}
    ]
    return named("pod", others) if others else ""


def _fellow(facts: Facts) -> str:
    """Other containers of the pod that name the same claim."""
    own = {claim.name for claim in facts.container.resources.claims} if facts.container is not None else set()
    others = [
        each.name
        for each in facts.pod.spec.containers
        if each is not facts.container and own & {claim.name for claim in each.resources.claims}
    ]
    return named("container", others) if others else ""


def _entry(facts: Facts) -> str:
    """The entries of spec.resourceClaims that a container shares with others of its pod."""
    container = facts.container
    own = [claim.name for claim in container.resources.claims] if container is not None else []
    others = {claim.name for each in _containers(facts.pod) if each is not container for claim in each.resources.claims}
    return joined([name for name in dict.fromkeys(own) if name in others])


def _owner_of_claim(facts: Facts) -> str:
    """The containers that name the claims of the pod, if the one that fails does not."""
    if facts.container is None or facts.container.resources.claims:
        return ""
    users = [each.name for each in _containers(facts.pod) if each.resources.claims]
    return named("container", users) if users else ""


def _unknown_requests(facts: Facts) -> Iterator[tuple[core_v1.ContainerResourceClaim, list[str]]]:
    """What the container names of its claims that they do not request, and what they do. It gets no device for that, and nobody says so."""
    made = {status.name: status.resource_claim_name for status in facts.pod.status.resource_claim_statuses}
    names = {entry.name: entry.resource_claim_name or made.get(entry.name) for entry in facts.pod.spec.resource_claims}
    for use in facts.container.resources.claims if facts.container is not None else ():
        name = names.get(use.name)
        claim = facts.what_if.get(api.ResourceClaim, name, facts.pod.metadata.namespace) if name else None
        requests = [each.name for each in claim.spec.devices.requests] if claim is not None else []
        if use.request and requests and use.request not in requests:
            yield use, requests


def _unknown_request(facts: Facts) -> str:
    return joined([f'request "{use.request}" of claim {use.name}' for use, _ in _unknown_requests(facts)])


def _known_requests(facts: Facts) -> str:
    return joined([f'"{name}"' for _, requests in _unknown_requests(facts) for name in requests])


def _right_request(facts: Facts) -> str:
    return joined([nearest(use.request, requests) or requests[0] for use, requests in _unknown_requests(facts)])


def _image_with_claims(facts: Facts) -> str:
    """The image of the container, unless it is known why it sees no device: it names no claim and another one does, or no request of the claim."""
    is_known = facts.container is None or _owner_of_claim(facts) or _unknown_request(facts)
    return "" if is_known or facts.container is None else facts.container.image


def _missing_claims(facts: Facts) -> str:
    if not _owner_of_claim(facts):
        return ""
    return ", ".join(f"{{name: {entry.name}}}" for entry in facts.pod.spec.resource_claims)


def _without_claims(facts: Facts) -> str:
    """A pod that asks for no device, but for daemons: drivers reach their devices without a claim."""
    is_daemon = any(owner.kind == "DaemonSet" for owner in facts.pod.metadata.owner_references)
    return "" if facts.pod.spec.resource_claims or is_daemon else facts.pod.metadata.name


# --- memory ---


def _limit(facts: Facts) -> str:
    limit = facts.container.resources.limits.get("memory") if facts.container is not None else None
    return str(limit) if limit is not None else ""


def more_memory(facts: Facts) -> str:
    """`from 24Gi to 48Gi`: twice the limit, if the node has that much left; with what it has, if less. Empty without a limit."""
    limit = facts.container.resources.limits.get("memory") if facts.container is not None else None
    if limit is None or limit.nano <= 0:
        return ""
    twice = Quantity.from_nano(2 * limit.nano, limit.format)
    left = memory_left(facts.what_if, facts.pod)
    room = f" (node {facts.pod.spec.node_name} has {left} left)" if left else ""
    return f"from {limit} to {twice}, for example{room}"


def memory_left(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """The memory of its node that no pod asks for, in whole Gi; empty if unknown."""
    info = what_if.cluster.nodes.get(pod.spec.node_name)
    total = info.node.status.allocatable.get("memory") if info is not None else None
    if info is None or total is None:
        return ""
    asked = sum(
        amount.nano
        for each in info.pods.values()
        for container in each.pod.spec.containers
        if (amount := container.resources.requests.get("memory")) is not None
    )
    left = (total.nano - asked) // 10**9 // _SPARE
    return f"{left}Gi" if left > 0 else ""


# --- Services ---


class Host(NamedTuple):
    """A name or address that a program connects to, as the Service it stands for. service: None if it does not exist."""

    name: str
    namespace: str
    service: core_v1.Service | None


def _host(facts: Facts) -> Host | None:
    """The Service behind group `host`; None if the name is outside of the cluster."""
    host = (facts.groups.get("host") or "").rstrip(".").lower()
    if not host or host in _LOCAL:
        return None
    services = facts.what_if.all(core_v1.Service)
    if _IN_NUMBERS.match(host):
        found = next((each for each in services if each.spec.cluster_ip == host), None)
        return Host(found.metadata.name, found.metadata.namespace, found) if found is not None else None
    for suffix in reversed(_IN_CLUSTER):
        host = host.removesuffix(suffix)
    name, _, namespace = host.partition(".")
    if "." in namespace:
        return None
    found = facts.what_if.get(core_v1.Service, name, namespace or facts.pod.metadata.namespace)
    is_namespace = any(each.metadata.name == namespace for each in facts.what_if.all(core_v1.Namespace))
    if namespace and found is None and not is_namespace and "svc" not in str(facts.groups.get("host")):
        return None
    return Host(name, namespace or facts.pod.metadata.namespace, found)


def _no_service(facts: Facts) -> str:
    """`Service ml/redis does not exist (there is one in namespace infra)`."""
    host = _host(facts)
    if host is None or host.service is not None or core_v1.Service in facts.what_if.unread:
        return ""
    elsewhere, meant = _others(facts, host)
    hint = f" (there is one in namespace {listed(elsewhere)})" if elsewhere else ""
    hint = hint or (f" (did you mean {meant}?)" if meant is not None else "")
    return f"Service {host.namespace}/{host.name} does not exist{hint}"


def _others(facts: Facts, host: Host) -> tuple[list[str], str | None]:
    known = [each.metadata for each in facts.what_if.all(core_v1.Service)]
    elsewhere = sorted(each.namespace for each in known if each.name == host.name)
    return elsewhere, nearest(host.name, [each.name for each in known if each.namespace == host.namespace])


def _other_service(facts: Facts) -> str:
    """The name under which the Service that was meant is reached; empty if there is none."""
    host = _host(facts)
    if host is None or host.service is not None:
        return ""
    elsewhere, meant = _others(facts, host)
    return f"{host.name}.{elsewhere[0]}" if elsewhere else meant or ""


def _unserved(facts: Facts) -> str:
    """Why a Service does not answer: no endpoints, or not on this port."""
    host = _host(facts)
    if host is None or host.service is None:
        return ""
    why, _ = without_endpoints(facts.what_if, host.namespace, host.name)
    if why:
        return f"Service {host.namespace}/{host.name} {why}"
    ports = [str(each.port) for each in host.service.spec.ports]
    asked = facts.groups.get("port")
    if asked and ports and asked not in ports:
        return f"Service {host.namespace}/{host.name} has no port {asked}, but {joined(ports)}"
    return ""


def _serve(facts: Facts) -> str:
    host = _host(facts)
    if host is None or host.service is None:
        return ""
    why, fix = without_endpoints(facts.what_if, host.namespace, host.name)
    if why:
        return (
            fix
            or f"give Service {host.namespace}/{host.name} a ready pod: allot explain svc/{host.name} -n {host.namespace}"
        )
    ports = [str(each.port) for each in host.service.spec.ports]
    return (
        f"connect to port {ports[0]} of Service {host.name} in container {facts['container']}"
        if len(ports) == 1
        else ""
    )


def _outside(facts: Facts) -> str:
    """A host that no Service of the cluster could be."""
    host = facts.groups.get("host") or ""
    return host if "." in host and not _IN_NUMBERS.match(host) and _host(facts) is None else ""


def _locally(facts: Facts) -> str:
    return facts.groups.get("port") or "" if (facts.groups.get("host") or "") in _LOCAL else ""


# --- other objects ---


def _network_elsewhere(facts: Facts) -> str:
    """Where a NetworkAttachmentDefinition of that name is."""
    known = [each.metadata for each in facts.what_if.all(observed_v1.NetworkAttachmentDefinition)]
    found = sorted(each.namespace for each in known if each.name == facts.groups.get("network"))
    return found[0] if found else ""


def _network_meant(facts: Facts) -> str:
    known = [each.metadata for each in facts.what_if.all(observed_v1.NetworkAttachmentDefinition)]
    return (
        nearest(
            str(facts.groups.get("network")),
            [each.name for each in known if each.namespace == facts.pod.metadata.namespace],
        )
        or ""
    )


def _volume_claim(facts: Facts) -> str:
    """The volume claim that a PersistentVolume belongs to."""
    volume = facts.what_if.get(core_v1.PersistentVolume, facts.groups.get("volume") or "")
    user = volume.spec.claim_ref if volume is not None else None
    return f"{user.namespace}/{user.name}" if user is not None else ""


def _disk(facts: Facts) -> str:
    """What a PersistentVolume stands for at its storage system."""
    volume = facts.what_if.get(core_v1.PersistentVolume, facts.groups.get("volume") or "")
    csi = volume.spec.csi if volume is not None else None
    return csi.volume_handle if csi is not None else ""


def _architecture(facts: Facts) -> str:
    info = facts.what_if.cluster.nodes.get(facts.pod.spec.node_name)
    return info.node.status.node_info.architecture if info is not None else ""


def _hosted(facts: Facts) -> str:
    return facts.pod.spec.node_name if facts.pod.spec.host_network else ""


def _own_network(facts: Facts) -> str:
    """The pod whose containers share a network that is not the node's."""
    shares = not facts.pod.spec.host_network and len(_containers(facts.pod)) > 1
    return facts.pod.metadata.name if shares else ""


def _alone(facts: Facts) -> str:
    """The only container of a pod with a network of its own."""
    return "" if facts.pod.spec.host_network or _own_network(facts) else facts["container"]


def _device_users(facts: Facts) -> str:
    """The pods of a node that can open its devices: by their claims, extended resources or the host's /dev. Daemons give way by themselves."""
    node, found = facts.pod.spec.node_name, []
    info = facts.what_if.cluster.nodes.get(node)
    for pod in (each.pod for each in info.pods.values()) if info is not None else ():
        if comes_back(pod):
            continue
        mounts = any(volume.host_path is not None and _DEV.match(volume.host_path.path) for volume in pod.spec.volumes)
        asked = any("/" in name for each in _containers(pod) for name in each.resources.requests)
        if mounts or asked or next(held_devices(facts.what_if, pod), None) is not None:
            found.append(full_name(pod))
    return named("pod", found) if found else ""


def _rebooted(facts: Facts) -> str:
    """When the pod's node was rebooted since the pod came there: files in /run are gone since then."""
    found = reboot_of(facts.what_if, facts.pod.spec.node_name)
    return found.seen_at if found is not None and found.seen_at >= (facts.pod.status.start_time or "") else ""


def _plugin_directory(facts: Facts) -> str:
    """Where the kubelet plugin that this pod is keeps its files: its driver is the one that its name or image is about."""
    text = " ".join((full_name(facts.pod), *(each.image for each in facts.pod.spec.containers))).lower()
    drivers = sorted({each.spec.driver for each in facts.what_if.all(api.ResourceSlice)})
    about = [each for each in drivers if each in text or each.split(".")[-2:][0] in text]
    exact = [each for each in about if each.split(".")[0] in (facts.container.name if facts.container else "")]
    found = exact or about
    return f"/var/lib/kubelet/plugins/{found[0]}" if found else "its directory in /var/lib/kubelet/plugins"


def _stale(facts: Facts) -> str:
    """The UID of a claim for which a driver keeps a device, if that claim is gone."""
    uid = facts.groups.get("uid") or ""
    there = any(uid in (each.metadata.uid, full_name(each)) for each in facts.what_if.all(api.ResourceClaim))
    return "" if there else uid


def _rival(facts: Facts) -> str:
    """The claim for which a driver keeps a device."""
    uid = facts.groups.get("uid") or ""
    found = next(
        (each for each in facts.what_if.all(api.ResourceClaim) if uid in (each.metadata.uid, full_name(each))), None
    )
    return full_name(found) if found is not None else ""


def _free(facts: Facts) -> str:
    """How many devices of the driver are free: `4 others are free`."""
    drivers = {held.id.driver for held in facts.devices}
    taken = _in_use(facts.what_if)
    total = sum(
        DeviceID(slice_.spec.driver, slice_.spec.pool.name, device.name) not in taken
        for slice_ in facts.what_if.all(api.ResourceSlice)
        for device in slice_.spec.devices or ()
        if slice_.spec.driver in drivers
    )
    return f"{total} {'is' if total == 1 else 'are'} free" if total else ""


# Who installs the handlers of RuntimeClasses, if its name does not have the handler's.
_INSTALLERS = {"nvidia": ("container-toolkit",), "runsc": ("gvisor",), "habana": ("habana-container",)}


def _idle_installer(facts: Facts) -> tuple[str, str]:
    """The DaemonSet that installs a handler of RuntimeClasses and skips the pod's node, in words, and what makes it run there."""
    handler = facts.groups.get("handler") or ""
    words = _INSTALLERS.get(handler, (handler.partition("-")[0],))
    info = facts.what_if.cluster.nodes.get(facts.pod.spec.node_name)
    for set_, placement in daemon_sets(facts.what_if, *words) if info is not None and handler else ():
        assert info is not None
        for why in left_out(placement, info.node):
            name = f"DaemonSet {full_name(set_)}"
            return f"{name}, which installs it, skips the node: it {why}", taken_in(placement, info.node, name)
    return "", ""


def _kernel_driver(facts: Facts) -> str:
    """Who makes a file of the kernel; empty if unknown."""
    path = facts.groups.get("path") or ""
    return next((module for start, module in MODULES.items() if path.startswith(start)), "")


FACTS: Mapping[str, Callable[[Facts], str]] = {
    "alone": _alone,
    "architecture": _architecture,
    "cuda": _of_attribute("cudaDriverVersion"),
    "device": _device,
    "device_users": _device_users,
    "disk": _disk,
    "driver": _driver,
    "taint_rule": _taint_rule,
    "driver_version": _of_attribute("driverVersion"),
    "entry": _entry,
    "fellow": _fellow,
    "free": _free,
    "hosted": _hosted,
    "image_with_claims": _image_with_claims,
    "kernel_driver": _kernel_driver,
    "larger": _larger,
    "known_requests": _known_requests,
    "limit": _limit,
    "locally": _locally,
    "missing_claims": _missing_claims,
    "more_memory": more_memory,
    "network_elsewhere": _network_elsewhere,
    "network_meant": _network_meant,
    "no_service": _no_service,
    "number": _number,
    "other_service": _other_service,
    "outside": _outside,
    "own_network": _own_network,
    "owner_of_claim": _owner_of_claim,
    "place": _place,
    "plugin_directory": _plugin_directory,
    "product": _of_attribute("productName", "model"),
    "requests": _requests,
    "rebooted": _rebooted,
    "right_request": _right_request,
    "rival": _rival,
    "runtime_installed": lambda facts: _idle_installer(facts)[1],
    "runtime_installer": lambda facts: _idle_installer(facts)[0],
    "serve": _serve,
    "sharers": _sharers,
    "stale": _stale,
    "unknown_request": _unknown_request,
    "unserved": _unserved,
    "volume_claim": _volume_claim,
    "without_claims": _without_claims,
}
