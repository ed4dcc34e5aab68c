"""The node in the API: its Node object, its status, and the agent's lease.

The numbers are the kubelet's: the lease is renewed every 10 s, the status written when it changes and every 5 minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allot.client.api import Client, PatchType
from allot.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from allot.core.lifecycle.plugin_devices import NodeAmounts
from allot.core.quantity import Format, Quantity
from allot.core.validation.pod_resources import is_extended_resource
from allot.node.deviceplugins.device_plugins import DevicePlugins
from allot.node.machine import Machine
from allot.node.runtimes.port import RuntimeStatus
from allot.process.clock import Clock

_log = logging.getLogger("allot.node")

LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40
LEASE_RENEW_S = 10.0
STATUS_CHECK_S = 10.0
STATUS_REPORT_S = 300.0
# Features that the scheduler requires of a node for certain pods; declared if the gates of these names are on.
DECLARED_FEATURES = ("DRANodeAllocatableResources", "DRAOptionalNodeOperations")
PODS_MAX = 110
# A condition of nodes that build containers from the machine's own files.
SANDBOXED = "Sandboxed"
# And one that reports whether their pods have their own network.
POD_NETWORK = "PodNetwork"
_RETRY_S, _RETRY_MAX_S = 1.0, 16.0
_HEALTHY = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a node that its machine does not tell."""

    name: str
    address: str
    version: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    pods_max: int = PODS_MAX
    # Features that the node declares to the scheduler.
    features: tuple[str, ...] = ()
    # The cloud's name for the machine; empty without a cloud.
    provider_id: str = ""


class Registration:
    """Maintains the node's objects. port: where the agent serves, once it does."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        options: NodeOptions,
        machine: Machine,
        port: Callable[[], int],
        plugins: DevicePlugins | None = None,
    ) -> None:
        self._nodes = client.resource("", "v1", "nodes", namespaced=False)
        self._leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
        self._clock = clock
        self._options = options
        self._machine = machine
        self._port = port
        self._plugins = plugins
        self._uid = ""
        self._outdated: dict[str, str] = {}
        self._written: dict[str, Any] = {}
        self._written_at = 0.0
        self._conditions: dict[str, dict[str, Any]] = {}
        self._lease_held: dict[str, Any] | None = None
        self._renewed_at: float | None = None

    async def register(self, runtime: RuntimeStatus) -> None:
        """Create the Node, or take over an existing one; retries until it works."""
        pause = _RETRY_S
        while True:
            try:
                await self._register(runtime)
                return
            except ApiError as error:
                _log.warning("node %s cannot register: %s; next try in %g s", self._options.name, error, pause)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _RETRY_MAX_S)

    async def _register(self, runtime: RuntimeStatus) -> None:
        try:
            node = await self._nodes.create(self._node())
        except AlreadyExists:
            node = await self._nodes.patch(
                self._options.name, {"metadata": {"labels": self._labels()}}, PatchType.STRATEGIC
            )
        self._uid = node["metadata"]["uid"]
        self._outdated = self._outdated_amounts(node.get("status") or {})
        for condition in (node.get("status") or {}).get("conditions") or ():
            self._conditions[condition["type"]] = condition
        await self._write_status(runtime)

    def _labels(self) -> dict[str, str]:
        machine = self._machine
        return {
            "kubernetes.io/hostname": self._options.name,
            "kubernetes.io/os": machine.operating_system,
            "kubernetes.io/arch": machine.architecture,
            "beta.kubernetes.io/os": machine.operating_system,
            "beta.kubernetes.io/arch": machine.architecture,
            **self._options.labels,
        }

    def _node(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        if self._options.taints:
            spec["taints"] = [dict(each) for each in self._options.taints]
        if self._options.provider_id:
            spec["providerID"] = self._options.provider_id
        metadata: dict[str, Any] = {"name": self._options.name, "labels": self._labels()}
        if self._options.annotations:
            metadata["annotations"] = dict(self._options.annotations)
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}

    async def withdraw(self) -> None:
        """The machine is gone: delete the Node, and with it the objects that it owns."""
        try:
            await self._nodes.delete(self._options.name)
        except NotFound:
            pass

    # --- status ---

    async def keep_status(self, look: Callable[[], Any]) -> None:
        """Write the status when it changes, and periodically. look: returns the runtime's status."""
        while True:
            await self._clock.sleep(STATUS_CHECK_S)
            await self.refresh(await look())

    async def refresh(self, runtime: RuntimeStatus) -> bool:
        """Write the status if it is due; returns whether the node had to be recreated because it was deleted."""
        try:
            await self._write_status(runtime)
        except NotFound:
            await self.register(runtime)
            return True
        except ApiError as error:
            _log.warning("node %s: status not written: %s", self._options.name, error)
        return False

    @property
    def uid(self) -> str:
        """The uid of the Node, once registered."""
        return self._uid

    async def _write_status(self, runtime: RuntimeStatus) -> None:
        status = self._status(runtime)
        now = self._clock.monotonic()
        fixed = {name: value for name, value in status.items() if name != "conditions"}
        states = [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]
        told = {"fixed": fixed, "states": states}
        if told == self._written and now - self._written_at < STATUS_REPORT_S:
            return
        node = await self._nodes.patch(
            self._options.name, {"status": status}, PatchType.STRATEGIC, subresource="status"
        )
        for condition in (node.get("status") or {}).get("conditions") or ():
            self._conditions[condition["type"]] = condition
        self._written, self._written_at = told, now

    def _status(self, runtime: RuntimeStatus) -> dict[str, Any]:
        machine, options = self._machine, self._options
        plugged = self._plugins.amounts() if self._plugins is not None else NodeAmounts()
        amounts = {
            "cpu": str(machine.processors),
            "memory": str(Quantity.from_int(machine.memory_bytes // 1024 * 1024, Format.BINARY_SI)),
            "ephemeral-storage": str(Quantity.from_int(machine.disk_bytes // 1024 * 1024, Format.BINARY_SI)),
            "pods": str(options.pods_max),
            **{name: str(amount) for name, amount in machine.huge_page_resources.items()},
        }
        free = machine.allocatable["memory"].value() // 1024 * 1024
        status: dict[str, Any] = {
            "capacity": {**amounts, **self._outdated, **_texts(plugged.capacity)},
            "allocatable": {
                **amounts,
                # Huge pages are set aside.
                "memory": str(Quantity.from_int(free, Format.BINARY_SI)),
                **self._outdated,
                **_texts(plugged.allocatable),
            },
            "addresses": [
                {"type": "InternalIP", "address": options.address},
                {"type": "Hostname", "address": options.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port()}},
            "nodeInfo": {
                "architecture": machine.architecture,
                "operatingSystem": machine.operating_system,
                "kernelVersion": machine.kernel_version,
                "osImage": machine.os_image,
                "machineID": machine.machine_id,
                "systemUUID": machine.system_uuid,
                "bootID": machine.boot_id,
                "kubeletVersion": options.version,
                "kubeProxyVersion": "",
                "containerRuntimeVersion": f"{runtime.name}://{runtime.version}",
            },
            "conditions": self._told_conditions(runtime),
        }
        if options.features:
            status["declaredFeatures"] = list(options.features)
        return status

    def _outdated_amounts(self, status: Mapping[str, Any]) -> dict[str, str]:
        """Devices of an existing Node that this agent has never had: as with the kubelet there are none until a plugin offers them."""
        if self._plugins is None or not self._plugins.is_new_node:
            return {}
        return {name: "0" for name in status.get("capacity") or () if is_extended_resource(name)}

    def _told_conditions(self, runtime: RuntimeStatus) -> list[dict[str, Any]]:
        told = [self._condition(type_, "False", reason, message) for type_, reason, message in _HEALTHY]
        for type_, found in ((SANDBOXED, runtime.isolation), (POD_NETWORK, runtime.network)):
            if found is not None:
                told.append(self._condition(type_, "True" if found.is_on else "False", found.reason, found.message))
        if runtime.ready and runtime.network_ready:
            told.append(self._condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
        else:
            told.append(
                self._condition("Ready", "False", "KubeletNotReady", runtime.message or "container runtime is down")
            )
        return told

    def _condition(self, type_: str, status: str, reason: str, message: str) -> dict[str, Any]:
        before, now = self._conditions.get(type_), self._clock.now()
        changed = before["lastTransitionTime"] if before is not None and before.get("status") == status else now
        return {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": changed,
        }

    # --- lease ---

    async def keep_lease(self) -> None:
        """Renew the lease."""
        while True:
            await self._clock.sleep(LEASE_RENEW_S if await self.renew() else _RETRY_S)

    async def renew(self) -> bool:
        """Renew the lease once; returns whether that worked."""
        try:
            try:
                self._lease_held = await self._renew(self._lease_held)
            except Conflict:
                # Another writer was faster; the second attempt starts from its version.
                self._lease_held = await self._renew(None)
        except ApiError as error:
            self._lease_held = None
            _log.warning("node %s: lease not renewed: %s", self._options.name, error)
            return False
        now = self._clock.monotonic()
        if self._renewed_at is not None and now - self._renewed_at > LEASE_DURATION_S:
            # By now the node may count as dead; only a new status can correct that.
            self._written = {}
        self._renewed_at = now
        return True

    async def _renew(self, lease: dict[str, Any] | None) -> dict[str, Any]:
        name = self._options.name
        if lease is None:
            try:
                lease = await self._leases.get(name, LEASE_NAMESPACE)
            except NotFound:
                return await self._leases.create(self._lease({"name": name, "namespace": LEASE_NAMESPACE}))
        return await self._leases.update(self._lease(lease["metadata"]), LEASE_NAMESPACE)

    def _lease(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        name = self._options.name
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self._uid}
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": self._clock.now_micro(),
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "ownerReferences": [owner]},
            "spec": spec,
        }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
