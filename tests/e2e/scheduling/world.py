"""A small language for tests of a whole control plane: make nodes, devices, claims and pods; wait for what must come.

Every test has a namespace of its own. What has no namespace is named after it, and deleted when the test ends: node counts in
messages are those of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from allot.client.api import Client, PatchType, ResourceClient
from allot.client.errors import NotFound

Object = dict[str, Any]

WAIT_S = 20.0
_POLL_S = 0.01
RESOURCE = "resource.k8s.io/v1"


class World:
    """Objects of one test."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.driver = f"{namespace}.example.com"
        self.class_name = f"{namespace}.gpu"
        self._cluster_objects: list[tuple[ResourceClient, str]] = []

    # --- kinds ---

    def kind(self, plural: str) -> ResourceClient:
        """Access to a kind of resource.k8s.io or of the core."""
        group, version, namespaced = _KINDS[plural]
        return self.client.resource(group, version, plural, namespaced=namespaced)

    async def _make(self, plural: str, object_: Object) -> Object:
        resource = self.kind(plural)
        if resource.is_namespaced:
            return await resource.create(object_, self.namespace)
        made = await resource.create(object_)
        self._cluster_objects.append((resource, made["metadata"]["name"]))
        return made

    async def begin(self) -> None:
        """The namespace, with its service account."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.client.resource("", "v1", "namespaces", namespaced=False).create(namespace)

        async def account() -> Object | None:
            return await self.find("serviceaccounts", "default")

        await self.until(account, "the service account")

    async def end(self) -> None:
        """Delete everything, pods first so that devices are released."""
        await self.kind("pods").delete_collection(self.namespace, grace_period_seconds=0)
        for resource, name in reversed(self._cluster_objects):
            try:
                await resource.delete(name)
            except NotFound:
                continue

    # --- making ---

    def name(self, short: str) -> str:
        """The name of something outside of namespaces."""
        return f"{self.namespace}-{short}"

    async def node(self, short: str, *, labels: dict[str, str] | None = None, **amounts: str) -> Object:
        """A node that is ready."""
        name = self.name(short)
        resources = {"cpu": "8", "memory": "32Gi", "pods": "110", **amounts}
        await self._make(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
                "status": {
                    "capacity": resources,
                    "allocatable": resources,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
        # New nodes are tainted as not ready until a controller has seen that they are; here they are at once.
        return await self.patch("nodes", name, {"spec": {"taints": None}})

    async def slice_(self, short: str, devices: Iterable[Object], **more: Any) -> Object:
        """Devices of a node."""
        spec: Object = {
            "driver": self.driver,
            "pool": {"name": self.name(short), "generation": 1, "resourceSliceCount": more.pop("slices", 1)},
            "nodeName": self.name(short),
            **more,
        }
        made = list(devices)
        if made:
            spec["devices"] = made
        metadata = {"generateName": f"{self.name(short)}-"}
        return await self._make(
            "resourceslices", {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        )

    async def gpu_node(self, short: str, count: int, **attributes: str) -> None:
        """A node with devices gpu-0, gpu-1, ..."""
        await self.node(short)
        values = {name: {"string": text} for name, text in attributes.items()}
        await self.slice_(short, [{"name": f"gpu-{number}", "attributes": values} for number in range(count)])

    async def device_class(self, expression: str = "", short: str = "", **spec: Any) -> Object:
        """The class of this test's devices, or another one."""
        text = expression or f'device.driver == "{self.driver}"'
        name = f"{self.class_name}{short}"
        return await self._make(
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
        return await self._make("resourceclaims", body)

    async def template(self, name: str, *requests: Object, **devices: Any) -> Object:
        """A template, for one device unless said otherwise."""
        spec = {"devices": {"requests": list(requests) or [self.request()], **devices}}
        body = {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": spec},
        }
        return await self._make("resourceclaimtemplates", body)

    async def pod(
        self,
        name: str,
        *,
        claims: dict[str, str] | None = None,
        templates: dict[str, str] | None = None,
        resources: Object | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """A pod. claims and templates: the pod's name for it → the name of the object."""
        entries = [{"name": key, "resourceClaimName": value} for key, value in (claims or {}).items()]
        entries += [{"name": key, "resourceClaimTemplateName": value} for key, value in (templates or {}).items()]
        wanted: Object = dict(resources or {})
        if entries:
            wanted["claims"] = [{"name": entry["name"]} for entry in entries]
        container = {"name": "main", "image": "example.com/main:1", "resources": wanted}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **({"annotations": annotations} if annotations else {})},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
        }
        if entries:
            body["spec"]["resourceClaims"] = entries
        return await self._make("pods", body)

    async def delete_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        await self.kind("pods").delete(name, self.namespace)
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

    async def list(self, plural: str) -> list[Object]:
        """All objects of a kind in the namespace."""
        return list((await self.kind(plural).list(self.namespace)).items)

    async def until(self, ask: Callable[[], Awaitable[Any]], what: str) -> Any:
        """The first answer that is true."""
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    found = await ask()
                    if found:
                        return found
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(f"{what} did not come within {WAIT_S:g} s; {await self._tell()}") from None

    async def _tell(self) -> str:
        lines = []
        for pod in await self.list("pods"):
            status = pod.get("status") or {}
            told = [f"{c['type']}={c['status']} {c.get('message', '')}" for c in status.get("conditions") or ()]
            lines.append(f"pod {pod['metadata']['name']}: {status.get('phase')} {pod['spec'].get('nodeName')} {told}")
        for claim in await self.list("resourceclaims"):
            lines.append(f"claim {claim['metadata']['name']}: {claim.get('status')}")
        return "\n".join(lines)

    async def running(self, *names: str) -> list[Object]:
        """Pods, as soon as they run."""
        found = []
        for name in names:

            async def ask(name: str = name) -> Object | None:
                pod = await self.find("pods", name)
                return pod if pod is not None and (pod.get("status") or {}).get("phase") == "Running" else None

            found.append(await self.until(ask, f"running of pod {name}"))
        return found

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
        """Pool and name of the devices that a pod got; the pool without the namespace."""
        prefix = f"{self.namespace}-"
        return [f"{r['pool'].removeprefix(prefix)}/{r['device']}" for r in await self.results_of(pod, entry)]

    async def events(self, name: str, reason: str) -> list[Object]:
        """Events about a pod, as soon as there is one with this reason."""

        async def ask() -> list[Object]:
            found = await self.list("events")
            return [
                event
                for event in found
                if event.get("reason") == reason and (event.get("regarding") or {}).get("name") == name
            ]

        found: list[Object] = await self.until(ask, f"event {reason} about {name}")
        return found


_KINDS = {
    **{
        plural: ("resource.k8s.io", "v1", namespaced)
        for plural, namespaced in (
            ("resourceclaims", True),
            ("resourceclaimtemplates", True),
            ("resourceslices", False),
            ("deviceclasses", False),
            ("devicetaintrules", False),
        )
    },
    "pods": ("", "v1", True),
    "serviceaccounts": ("", "v1", True),
    "resourcequotas": ("", "v1", True),
    "nodes": ("", "v1", False),
    "events": ("events.k8s.io", "v1", True),
    "podgroups": ("scheduling.k8s.io", "v1beta1", True),
}
