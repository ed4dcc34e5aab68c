"""A small language for tests of a whole site: publish devices, make claims and pods; wait for what must come.

Every test has a namespace and drivers of its own; what has no namespace is named after it, and deleted when the test ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client, PatchType, ResourceClient
from allot.client.errors import ApiError, NotFound
from allot.core.model.codec import encode
from e2e.scenarios.device_process import DeviceProcess
from e2e.scenarios.objects import END, KINDS, RESOURCE, SHOW, Object, container
from e2e.scenarios.site import Agent, DriverHandle, DriverHost, Site
from e2e.scenarios.wanted import Wanted
from node.cluster import sharing
from node.dra.plugin import DriverOnSockets
from waiting import WAIT_S

_POLL_S = 0.05
# Variables that drivers give.
_OWN = ("user_", "admin_", "claim_", "container_", "device_", "capacity_")


class World:
    """Objects of one test."""

    def __init__(self, client: Client, site: Site, namespace: str) -> None:
        self.client = client
        self.site = site
        self.namespace = namespace
        self.driver = f"{namespace}.example.com"
        self.class_name = f"{namespace}.gpu"
        self.folder = site.folder / namespace
        self._cluster_objects: list[tuple[ResourceClient, str]] = []
        self._drivers: dict[tuple[str, str, str], DriverHandle] = {}
        self._hosts: list[DriverHost] = []
        self._plugins: list[DriverOnSockets] = []
        self._devices: list[tuple[DeviceProcess, str]] = []
        self._amounts: dict[str, Object] = {}

    # --- kinds ---

    def kind(self, plural: str) -> ResourceClient:
        """Access to a kind of resource.k8s.io or of the core."""
        group, version, namespaced = KINDS[plural]
        return self.client.resource(group, version, plural, namespaced=namespaced)

    async def make(self, plural: str, object_: Object) -> Object:
        """Create an object; one outside of namespaces is deleted when the test ends."""
        resource = self.kind(plural)
        if resource.is_namespaced:
            return await resource.create(object_, self.namespace)
        made = await resource.create(object_)
        self._cluster_objects.append((resource, made["metadata"]["name"]))
        return made

    async def begin(self) -> None:
        """The namespace, with its service account."""
        self.folder.mkdir()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.client.resource("", "v1", "namespaces", namespaced=False).create(namespace)

        async def account() -> Object | None:
            return await self.find("serviceaccounts", "default")

        await self.until(account, "the service account")

    async def end(self) -> None:
        """Delete everything, pods first, and see that nothing of it is left on the nodes. May be called twice."""
        for driver in self._drivers.values():
            if driver.is_wanted:
                driver.want(refuses="", refuses_unprepare="", blocks=False)
        for plugin in self._plugins:
            plugin.around = None
        try:
            await self.kind("pods").delete_collection(self.namespace)

            async def no_pods() -> bool:
                return not await self.all("pods")

            await self.until(no_pods, "the end of all pods")
            for agent in self.site.agents.values():
                await self.no_claims_on(agent)
        finally:
            for driver in self._drivers.values():
                if driver.is_wanted:
                    driver.stop()
            for host in self._hosts:
                host.kill()
            for plugin in self._plugins:
                await plugin.stop()
            for process, driver_name in self._devices:
                process.stop()
                await self.kind("resourceslices").delete_collection(field_selector=f"spec.driver={driver_name}")
            self._devices.clear()
            for name, amounts in self._amounts.items():
                await self.patch("nodes", name, {"status": {"capacity": amounts, "allocatable": amounts}}, "status")
            for resource, name in reversed(self._cluster_objects):
                try:
                    await resource.delete(name)
                except NotFound:
                    continue
        for agent in self.site.agents.values():
            assert agent.cdi_files(self.driver) == []

    @asynccontextmanager
    async def agent(self, name: str, *options: str) -> AsyncIterator[Agent]:
        """A node for this test, with options of its own; the test's pods go with it."""
        agent = self.site.agents[name] = Agent(self.site, name, *options)
        try:
            agent.start()
            yield agent
            await self.end()
        finally:
            agent.stop()
            del self.site.agents[name]
            if await self.find("nodes", name) is not None:
                await self.kind("nodes").delete(name)

    async def no_claims_on(self, agent: Agent) -> None:
        """Until no claim of the namespace is prepared on a node."""
        await self.until(lambda: not agent.claims(self.namespace), f"the end of all prepared claims on {agent.name}")

    # --- making ---

    def name(self, short: str) -> str:
        """The name of something outside of namespaces."""
        return f"{self.namespace}-{short}"

    async def amounts(self, node: str, **amounts: str | None) -> None:
        """Another capacity for a node, until the test ends."""
        capacity = (await self.get("nodes", node))["status"]["capacity"]
        self._amounts.setdefault(node, {name: capacity.get(name) for name in amounts})
        await self.patch("nodes", node, {"status": {"capacity": amounts, "allocatable": amounts}}, "status")

    async def slice_(self, node: str, devices: Sequence[Object], *, driver: str = "", **more: Any) -> Object:
        """A slice for a plugin that cannot publish its devices itself."""
        spec: Object = {
            "driver": driver or self.driver,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": list(devices),
            **more,
        }
        metadata = {"generateName": f"{self.name(node)}-"}
        return await self.make(
            "resourceslices", {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        )

    def host(self) -> DriverHost:
        """A process of its own for drivers that the test wants to kill."""
        made = DriverHost(self.site, f"{self.namespace}-host-{len(self._hosts)}")
        self._hosts.append(made)
        made.start()
        return made

    def driver_on(
        self, node: str, *, driver: str = "", instance: str = "", host: DriverHost | None = None, **wanted: Any
    ) -> DriverHandle:
        """The driver of this test on a node, or another one; not started yet."""
        agent, name = self.site.agents[node], driver or self.driver
        made = DriverHandle(
            host or self.site.host,
            f"{name}-{node}{instance}",
            Wanted(
                driver=name,
                node=node,
                kubelet_root=str(agent.root),
                cdi_directory=str(agent.cdi),
                instance=instance,
                **wanted,
            ),
        )
        self._drivers[name, node, instance] = made
        return made

    async def publish(self, node: str, devices: Iterable[Object], *, driver: str = "", **pool: Any) -> DriverHandle:
        """Devices of a node, by the driver of this test or another one that is started for them."""
        handle = self._drivers.get((driver or self.driver, node, ""))
        pools = ({"devices": list(devices), **pool},)
        if handle is not None:
            handle.want(pools=pools)
        else:
            handle = self.driver_on(node, driver=driver, pools=pools)
            handle.start()
        await self.published(node, driver)
        return handle

    async def published(self, node: str, driver: str = "", count: int = 1) -> list[Object]:
        """The slices of a driver on a node, as soon as there are so many."""

        async def ask() -> list[Object]:
            found = await self.slices_of(node, driver)
            return found if len(found) >= count else []

        found: list[Object] = await self.until(ask, f"slices of {node}")
        return found

    async def slices_of(self, node: str, driver: str = "") -> list[Object]:
        """The slices of a driver on a node."""
        selector = f"spec.driver={driver or self.driver},spec.nodeName={node}"
        return list((await self.kind("resourceslices").list(field_selector=selector)).items)

    async def gpus(self, node: str, count: int, **attributes: str) -> DriverHandle:
        """Devices gpu-0, gpu-1, ..."""
        values = {name: {"string": text} for name, text in attributes.items()}
        return await self.publish(node, [{"name": f"gpu-{number}", "attributes": values} for number in range(count)])

    async def devices(self, kind: str, *options: str, node: str = "n1") -> DeviceProcess:
        """A driver of `allot.devices`, with its classes, until the test ends."""
        module = import_module(f"allot.devices.{kind}.classes")
        for each in module.device_classes():
            await self.make("deviceclasses", msgspec.to_builtins(encode(each)))
        made = DeviceProcess(self.site, self.site.agents[node], kind, options)
        name = import_module(f"allot.devices.{kind}.inventory").DRIVER_NAME
        self._devices.append((made, name))
        made.start()
        await self.published(node, name)
        return made

    def plugin(self, node: str = "n1", *, driver: str = "", **more: Any) -> DriverOnSockets:
        """A driver without SDK, in this process, that does on the wire whatever the test wants; not started yet."""
        root: Path = self.site.agents[node].root
        made = DriverOnSockets(root, driver or self.driver, **more)
        made.default_devices = ()
        self._plugins.append(made)
        return made

    async def device_class(self, expression: str = "", short: str = "", **spec: Any) -> Object:
        """The class of this test's devices, or another one."""
        text = expression or f'device.driver == "{self.driver}"'
        name = f"{self.class_name}{short}"
        return await self.make(
            "deviceclasses",
            {
                "apiVersion": RESOURCE,
                "kind": "DeviceClass",
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": text}}], **spec},
            },
        )

    def request(self, name: str = "gpu", **exact: Any) -> Object:
        """A request for devices of the class."""
        return {"name": name, "exactly": {"deviceClassName": self.class_name, **exact}}

    async def claim(self, name: str, *requests: Object, **devices: Any) -> Object:
        """A claim, for one device unless said otherwise."""
        spec = {"devices": {"requests": list(requests) or [self.request()], **devices}}
        body = {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
        return await self.make("resourceclaims", body)

    async def template(self, name: str, *requests: Object, **devices: Any) -> Object:
        """A template, for one device unless said otherwise."""
        spec = {"devices": {"requests": list(requests) or [self.request()], **devices}}
        body = {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": spec},
        }
        return await self.make("resourceclaimtemplates", body)

    async def pod(
        self,
        name: str,
        *,
        claims: dict[str, str] | None = None,
        templates: dict[str, str] | None = None,
        resources: Object | None = None,
        script: str = SHOW,
        sees_folder: bool = False,
        **spec: Any,
    ) -> Object:
        """A pod. claims and templates: the pod's name for it → the name of the object. sees_folder: its script uses files of the
        test's folder."""
        entries = [{"name": key, "resourceClaimName": value} for key, value in (claims or {}).items()]
        entries += [{"name": key, "resourceClaimTemplateName": value} for key, value in (templates or {}).items()]
        wanted: Object = dict(resources or {})
        if entries:
            wanted["claims"] = [{"name": entry["name"]} for entry in entries]
        body: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [container("main", script, resources=wanted)],
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        }
        if entries:
            body["spec"]["resourceClaims"] = entries
        if sees_folder:
            volume, mount = sharing(self.folder)
            body["spec"]["volumes"] = [volume]
            body["spec"]["containers"][0]["volumeMounts"] = [mount]
        return await self.make("pods", body)

    async def delete_pod(self, name: str, *, grace_s: int | None = None, wait: bool = True) -> None:
        """Delete a pod and wait until it is gone."""
        await self.kind("pods").delete(name, self.namespace, grace_period_seconds=grace_s)
        if wait:
            await self.gone("pods", name)

    async def patch(self, plural: str, name: str, patch: Object, subresource: str = "") -> Object:
        """Merge a patch."""
        resource = self.kind(plural)
        namespace = self.namespace if resource.is_namespaced else ""
        return await resource.patch(name, patch, PatchType.MERGE, namespace, subresource=subresource)

    # --- looking and waiting ---

    async def find(self, plural: str, name: str) -> Object | None:
        """An object, None if it is not there."""
        resource = self.kind(plural)
        try:
            return await resource.get(name, self.namespace if resource.is_namespaced else "")
        except NotFound:
            return None

    async def get(self, plural: str, name: str) -> Object:
        """An object that must be there."""
        found = await self.find(plural, name)
        assert found is not None, f"{plural} {name} is not there"
        return found

    async def all(self, plural: str) -> list[Object]:
        """All objects of a kind in the namespace."""
        return list((await self.kind(plural).list(self.namespace)).items)

    async def until(self, ask: Callable[[], Any], what: str) -> Any:
        """The first answer that is true. ask: a question, or one that has to be awaited."""
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    found = ask()
                    if isinstance(found, Awaitable):
                        found = await found
                    if found:
                        return found
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(f"{what} did not come within {WAIT_S:g} s; {await self._tell()}") from None

    async def _tell(self) -> str:
        lines = []
        for pod in await self.all("pods"):
            status = pod.get("status") or {}
            told = [f"{c['type']}={c['status']} {c.get('message', '')}" for c in status.get("conditions") or ()]
            lines.append(f"pod {pod['metadata']['name']}: {status.get('phase')} {pod['spec'].get('nodeName')} {told}")
        for claim in await self.all("resourceclaims"):
            lines.append(f"claim {claim['metadata']['name']}: {claim.get('status')}")
        return "\n".join(lines)

    async def running(self, *names: str) -> list[Object]:
        """Pods, as soon as they run."""
        return [await self.in_phase(name, "Running") for name in names]

    async def in_phase(self, name: str, phase: str) -> Object:
        """A pod, as soon as it is in a phase."""

        async def ask() -> Object | None:
            pod = await self.find("pods", name)
            return pod if pod is not None and (pod.get("status") or {}).get("phase") == phase else None

        found: Object = await self.until(ask, f"phase {phase} of pod {name}")
        return found

    async def log(self, name: str, container_name: str = "main") -> str:
        """What a container has said so far."""
        path = self.kind("pods").path(self.namespace, name, "log")
        answer = await self.client.request("GET", path, {"container": container_name})
        return answer.body.decode() if isinstance(answer.body, bytes) else ""

    async def says(self, name: str, text: str, container_name: str = "main") -> str:
        """The log of a container, as soon as the text is in it."""

        async def ask() -> str:
            try:
                said = await self.log(name, container_name)
            except ApiError:
                return ""
            return said if text in said else ""

        return str(await self.until(ask, f"{text!r} in the log of {name}/{container_name}"))

    async def variables(self, name: str, container_name: str = "main") -> dict[str, str]:
        """The variables of a container that shows them, but for those that every container has."""
        lines = (await self.says(name, END, container_name)).splitlines()
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        return {key: value for key, value in found.items() if key.startswith(_OWN)}

    async def is_pending(self, name: str) -> Object:
        """A pod that has no container."""
        pod = await self.get("pods", name)
        states = [each["state"] for each in pod["status"].get("containerStatuses") or ()]
        assert pod["status"]["phase"] == "Pending" and all("waiting" in state for state in states), pod["status"]
        return pod

    async def pending(self, name: str, text: str = "") -> str:
        """The message of a pod that cannot be scheduled, as soon as it contains the text."""

        async def ask() -> str | None:
            for condition in (await self.get("pods", name)).get("status", {}).get("conditions") or ():
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return str(condition["message"]) if text in condition["message"] else None
            return None

        return str(await self.until(ask, f"message {text!r} of pod {name}"))

    async def gone(self, plural: str, name: str) -> None:
        """Until an object is not there any more."""

        async def ask() -> bool:
            return await self.find(plural, name) is None

        await self.until(ask, f"the end of {plural} {name}")

    async def claim_of(self, pod: str, entry: str) -> Object:
        """The claim behind an entry of a pod."""

        async def ask() -> Object | None:
            found = await self.get("pods", pod)
            for named in found["spec"]["resourceClaims"]:
                if named["name"] == entry and "resourceClaimName" in named:
                    return await self.find("resourceclaims", named["resourceClaimName"])
            for status in found.get("status", {}).get("resourceClaimStatuses") or ():
                if status["name"] == entry:
                    return await self.find("resourceclaims", status["resourceClaimName"])
            return None

        found: Object = await self.until(ask, f"claim {entry} of pod {pod}")
        return found

    async def results_of(self, pod: str, entry: str = "gpu") -> list[Object]:
        """What a pod got."""
        claim = await self.claim_of(pod, entry)
        return list(claim["status"]["allocation"]["devices"]["results"])

    async def devices_of(self, pod: str, entry: str = "gpu") -> list[str]:
        """Pool and name of the devices that a pod got."""
        return [f"{result['pool']}/{result['device']}" for result in await self.results_of(pod, entry)]

    async def events(self, name: str, reason: str, text: str = "") -> list[Object]:
        """Events about a pod, as soon as there is one with this reason and text."""

        async def ask() -> list[Object]:
            found = await self.all("events")
            return [
                event
                for event in found
                if event.get("reason") == reason
                and (event.get("regarding") or {}).get("name") == name
                and text in event.get("note", "")
            ]

        found: list[Object] = await self.until(ask, f"event {reason} about {name}")
        return found
