"""The test bench of a driver: a node, an API server, a kubelet's directories, claims as allocated by a scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.core.allocation.accounting import CounterBalance, CounterKey, consumed_counters, published_counters
from allot.core.model.resource_v1 import Device, ResourceSlice
from allot.driver.conformance.kubelet import ClaimRef, DriverConnection, Entry, KubeletError, registered
from allot.driver.conformance.process import DriverProcess
from allot.driver.run import Description
from allot.process.ids import Ids

NODE = "conformance-node"
NAMESPACE = "default"
CLASS = "conformance"
REQUEST = "req"
RESULTS_MAX = 32
REPAIR_DELAY_S = 0.2
WAIT_S = 15.0
_POLL_S = 0.05
_ON_NODE = {"key": "metadata.name", "operator": "In", "values": [NODE]}


class CheckFailed(Exception):
    """The driver does not do what a check expects."""


class Skipped(Exception):
    """A check that does not apply to this driver."""


class PublishedDevice(msgspec.Struct, frozen=True):
    """A device and its pool."""

    pool: str
    device: Device


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver's claims require. parameters: for each claim; `$(uid of KIND/NAME)` in them is the uid of an object."""

    objects: tuple[Mapping[str, Any], ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()


def expect(condition: bool, text: str) -> None:
    """CheckFailed with the text unless the condition holds."""
    if not condition:
        raise CheckFailed(text)


class Bench:
    """Everything that checks need. whole_claims: a claim of this driver must hold all its devices."""

    def __init__(
        self,
        client: Client,
        kubeconfig: Path,
        directory: Path,
        command: Sequence[str],
        description: Description,
        ids: Ids,
        *,
        whole_claims: bool = False,
        needs: Needs = Needs(),  # noqa: B008
    ) -> None:
        self.client = client
        self.driver = description
        self.root = directory / "kubelet"
        self.registry = self.root / "plugins_registry"
        self.data = self.root / "plugins" / description.name
        self.cdi = directory / "cdi"
        self.whole_claims = whole_claims
        self._needs = needs
        # Parameters of every claim, as in an allocation.
        self._parameters: tuple[Mapping[str, Any], ...] = ()
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._command = tuple(command)
        self._ids = ids
        self._stack = AsyncExitStack()
        self._connection: DriverConnection | None = None
        self._process: DriverProcess | None = None
        self._claims: list[ClaimRef] = []
        self.boot_id_file = directory / "boot_id"
        self.claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        self.slices_api = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)

    async def set_up(self) -> None:
        """The node and the folders."""
        self.registry.mkdir(parents=True)
        self.cdi.mkdir()
        self.boot_id_file.write_text("first-boot\n")
        nodes = self.client.resource("", "v1", "nodes", namespaced=False)
        await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        uids = {}
        for object_ in self._needs.objects:
            made = await self._made(object_)
            uids[f"$(uid of {made['kind']}/{made['metadata']['name']})"] = made["metadata"]["uid"]
        self._parameters = tuple(
            {"source": "FromClaim", "opaque": {"driver": self.driver.name, "parameters": _replaced(each, uids)}}
            for each in self._needs.parameters
        )

    async def _made(self, object_: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object of a manifest, with its status, once the server serves its kind."""
        name = f"{object_['kind']} {object_['metadata']['name']}"

        async def is_served() -> bool:
            found = await self.client.discovery(refresh=True)
            group, _, version = object_["apiVersion"].rpartition("/")
            return found.find_kind(group, version, object_["kind"]) is not None

        await self.until(is_served, f"the kind of {name}")
        resource = await self.client.of_kind(object_["apiVersion"], object_["kind"])
        namespace = object_["metadata"].get("namespace", NAMESPACE) if resource.is_namespaced else ""
        made = await resource.create(dict(object_), namespace)
        if "status" in object_:
            made = await resource.update_status({**made, "status": object_["status"]}, namespace)
        return made

    # --- the driver's process ---

    def process(self, *arguments: str) -> DriverProcess:
        """A driver process that is not started yet."""
        options = {
            "--node-name": NODE,
            "--kubelet-root": self.root,
            "--cdi-dir": self.cdi,
            "--kubeconfig": self._kubeconfig,
            "--boot-id-file": self.boot_id_file,
            "--repair-delay": REPAIR_DELAY_S,
            "--pod-uid": "",
        }
        given = [f"{name}={value}" for name, value in options.items()]
        return DriverProcess((*self._command, *given, *arguments), self._directory / "driver.log")

    @property
    def running(self) -> DriverProcess:
        """The driver's process."""
        assert self._process is not None, "no driver was started"
        return self._process

    async def start(self, *arguments: str) -> None:
        """Start the driver unless it runs, and register it."""
        if self._process is None or not self._process.is_running:
            await self.disconnect()
            self._process = self.process(*arguments)
            await self._process.start()
        sockets = await self._process.until_ready(self.registry)
        if self._connection is None:
            self._connection = await self._stack.enter_async_context(registered(sockets[-1]))

    async def kill(self) -> None:
        """End the driver as a crash would."""
        await self.running.kill()
        await self.disconnect()

    async def stop(self) -> int:
        """Stop the driver cleanly; returns its exit code."""
        code = await self.running.stop()
        await self.disconnect()
        return code

    async def restart(self, *arguments: str) -> None:
        """Kill the driver and start it again."""
        await self.kill()
        await self.start(*arguments)

    async def disconnect(self) -> None:
        """Forget the connection."""
        self._connection = None
        await self._stack.aclose()

    async def close(self) -> None:
        """End everything."""
        await self.disconnect()
        if self._process is not None:
            await self._process.kill()

    @property
    def kubelet(self) -> DriverConnection:
        """The connection to the registered driver."""
        assert self._connection is not None, "the driver is not registered"
        return self._connection

    @property
    def open_claims(self) -> tuple[ClaimRef, ...]:
        """The claims of the check so far."""
        return tuple(self._claims)

    async def clean_up(self) -> None:
        """Unprepare and delete the claims of a check, with a running driver."""
        if not self._claims:
            return
        await self.start()
        claims, self._claims = self._claims, []
        try:
            await self.kubelet.unprepare(claims)
        except KubeletError:
            await self.restart()
        for claim in claims:
            await self.delete(claim)

    # --- slices ---

    async def slices(self) -> tuple[ResourceSlice, ...]:
        """The driver's slices, by name."""
        listed = await self.client.typed(ResourceSlice).list(
            field_selector=f"spec.driver={self.driver.name},spec.nodeName={NODE}"
        )
        return tuple(sorted(listed.items, key=lambda slice_: slice_.metadata.name))

    async def settled_slices(self) -> tuple[ResourceSlice, ...]:
        """The driver's slices once their pools are complete."""
        found: tuple[ResourceSlice, ...] = ()

        async def complete() -> bool:
            nonlocal found
            found = await self.slices()
            return bool(found) and is_complete(found)

        await self.until(complete, "complete pools of ResourceSlices")
        return found

    async def devices(self) -> tuple[PublishedDevice, ...]:
        """Everything that is published."""
        return tuple(
            PublishedDevice(slice_.spec.pool.name, device)
            for slice_ in await self.settled_slices()
            for device in slice_.spec.devices or ()
        )

    async def independent(self, count: int) -> tuple[PublishedDevice, ...]:
        """This number of devices, or all if claims must hold all, that can be allocated together. Skipped if there are fewer."""
        devices = await self.devices()
        published: dict[str, dict[CounterKey, int]] = {}
        for slice_ in await self.slices():
            counters = published_counters(slice_.spec.shared_counters or ())
            published.setdefault(slice_.spec.pool.name, {}).update(counters)
        balances = {pool: CounterBalance(counters) for pool, counters in published.items()}
        chosen: list[PublishedDevice] = []
        for each in devices:
            drawn = consumed_counters(each.device)
            if balances[each.pool].fits(drawn):
                balances[each.pool].take(drawn)
                chosen.append(each)
        if self.whole_claims:
            if count > 1:
                raise Skipped("a claim holds all devices, so there is one at a time")
            return tuple(chosen[:RESULTS_MAX])
        if len(chosen) < count:
            if not chosen:
                raise Skipped("the driver has no devices here")
            raise Skipped(f"needs {count} devices that can be used side by side, the driver has {len(chosen)}")
        return tuple(chosen[:count])

    # --- claims ---

    async def claim(
        self,
        devices: Sequence[PublishedDevice],
        *,
        request: str = REQUEST,
        configs: Sequence[Mapping[str, Any]] = (),
        more_results: Sequence[Mapping[str, Any]] = (),
        result_fields: Mapping[str, Any] | None = None,
        is_allocated: bool = True,
    ) -> ClaimRef:
        """A claim that holds devices, as the scheduler writes it. Deleted after the check."""
        base, _, alternative = request.partition("/")
        exactly = {"deviceClassName": CLASS, "allocationMode": "All"}
        if (result_fields or {}).get("adminAccess"):
            exactly["adminAccess"] = True  # type: ignore[assignment]
        ask: dict[str, Any] = {"name": base, "exactly": exactly}
        if alternative:
            ask = {"name": base, "firstAvailable": [{"name": alternative, **exactly}]}
        metadata = {"name": f"claim-{self._ids.suffix(8)}", "namespace": NAMESPACE}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
        made = await self.claims.create({**body, "spec": {"devices": {"requests": [ask]}}}, NAMESPACE)
        ref = ClaimRef(NAMESPACE, made["metadata"]["name"], made["metadata"]["uid"])
        self._claims.append(ref)
        if is_allocated:
            results = [self._result(device, request, result_fields or {}) for device in devices]
            allocation = {
                "devices": {"results": [*results, *more_results], "config": [*self._parameters, *configs]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [_ON_NODE]}]},
            }
            await self.claims.update_status({**made, "status": {"allocation": allocation}}, NAMESPACE)
        return ref

    def _result(self, device: PublishedDevice, request: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        result = {"request": request, "driver": self.driver.name, "pool": device.pool, "device": device.device.name}
        if device.device.allow_multiple_allocations:
            result["shareID"] = self._ids.new_uid()
            result["consumedCapacity"] = dict.fromkeys(device.device.capacity, "1")  # type: ignore[assignment]
        return {**result, **fields}

    async def release(self, claim: ClaimRef) -> None:
        """Remove the allocation, as after a forced deletion of the pod."""
        made = await self.claims.get(claim.name, claim.namespace)
        await self.claims.update_status({**made, "status": {}}, claim.namespace)

    async def delete(self, claim: ClaimRef) -> None:
        """Delete a claim that may be gone."""
        try:
            await self.claims.delete(claim.name, claim.namespace)
        except NotFound:
            pass

    async def prepared(self, claim: ClaimRef) -> Entry:
        """Prepare a claim, which must succeed."""
        entry = (await self.kubelet.prepare([claim]))[claim.uid]
        expect(not entry.error, f"prepare failed: {entry.error}")
        return entry

    async def refused(self, claim: ClaimRef, what: str) -> str:
        """Prepare a claim, which must fail; returns the error."""
        entry = (await self.kubelet.prepare([claim]))[claim.uid]
        expect(bool(entry.error), f"a claim {what} was prepared")
        return entry.error

    async def unprepared(self, claim: ClaimRef) -> None:
        """Unprepare a claim, which must succeed."""
        error = (await self.kubelet.unprepare([claim]))[claim.uid]
        expect(not error, f"unprepare failed: {error}")

    # --- files ---

    def cdi_files(self) -> frozenset[str]:
        """The names of CDI specs that are not for all containers."""
        return frozenset(
            path.name for path in self.cdi.iterdir() if path.suffix in (".json", ".yaml") and "_common" not in path.name
        )

    def cdi_specs(self) -> dict[str, dict[str, Any]]:
        """All specs by file name."""
        return {path.name: msgspec.json.decode(path.read_bytes()) for path in self.cdi.glob("*.json")}

    # --- waiting ---

    async def until(self, ask: Callable[[], Awaitable[bool]], what: str, seconds: float = WAIT_S) -> None:
        """Wait for a condition; CheckFailed on timeout."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                if await ask():
                    return
            except ApiError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise CheckFailed(f"{what}: {error}") from error
            if asyncio.get_running_loop().time() > deadline:
                raise CheckFailed(f"waited {seconds:g} s for {what}")
            await asyncio.sleep(_POLL_S)


def _replaced(value: Any, words: Mapping[str, str]) -> Any:
    """The value with matching whole strings replaced."""
    match value:
        case str():
            return words.get(value, value)
        case Mapping():
            return {key: _replaced(each, words) for key, each in value.items()}
        case list():
            return [_replaced(each, words) for each in value]
    return value


def is_complete(slices: Sequence[ResourceSlice]) -> bool:
    """Whether every pool has one generation and all its slices."""
    pools: dict[str, list[ResourceSlice]] = {}
    for slice_ in slices:
        pools.setdefault(slice_.spec.pool.name, []).append(slice_)
    return all(
        len({slice_.spec.pool.generation for slice_ in members}) == 1
        and {slice_.spec.pool.resource_slice_count for slice_ in members} == {len(members)}
        for members in pools.values()
    )
