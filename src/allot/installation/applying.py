"""Applies rendered objects to a cluster and removes them, without Helm.

Labels identify objects: the release, its manager, and the part. An object with one of our names but other labels belongs to someone else:
then nothing is changed. Objects of an earlier version that the current one no longer has are removed.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from allot.client.api import Client, ResourceClient
from allot.client.discovery import UnknownResource
from allot.client.errors import AlreadyExists, Forbidden, NotFound
from allot.core.advice.application_order import order_of
from allot.installation import definitions
from allot.installation.chart_rendering import SERVICE, Release, in_part, named
from allot.process.clock import Clock

Object = dict[str, Any]
Tell = Callable[[str], None]

FIELD_MANAGER = "allot-install"
INSTANCE, MANAGED_BY, PART = "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "allot.dev/part"
POD_SECURITY = "pod-security.kubernetes.io/enforce"
_DEFINITION = "CustomResourceDefinition"
_LOOK_EVERY_S = 0.5
_KEY_BYTES = 48
# The last messages of containers are in the status of their pods.
_WORDS_MAX = 300


class NotOurs(Exception):
    """Objects with our names that someone else manages."""


class NotReady(Exception):
    """The applied parts did not become ready in time, with the reason from pods if known."""


class InUse(Exception):
    """The parts to remove are in use."""


class Cluster:
    """The name and namespace of a release."""

    def __init__(self, client: Client, clock: Clock, release: Release, tell: Tell) -> None:
        self._client = client
        self._clock = clock
        self._release = release
        self._tell = tell

    # --- applying ---

    async def apply(self, objects: Sequence[Object], part: str, *, force: bool = False) -> None:
        """Create or update the objects of a part, with the keys that they need. NotOurs before anything is changed;
        ApiError."""
        ordered = sorted(objects, key=order_of)
        before = await self._present(ordered)
        self._check_owner(ordered, before)
        await self._make_namespace(needs_privileges=_needs_privileges(ordered))
        if any(not in_part(each) for each in ordered):
            await definitions.install(self._client, self._clock)
            self._tell("definitions of other schedulers' kinds: applied")
        for name in session_secrets(ordered):
            await self._make_key(name, part)
        for object_, found in zip(ordered, before, strict=True):
            if not in_part(object_):
                continue
            resource = await self._client.of_kind(object_["apiVersion"], object_["kind"])
            namespace = object_["metadata"].get("namespace", "")
            made = await resource.apply(object_, FIELD_MANAGER, namespace, force=force)
            self._tell(f"{named(object_)}: {_result(found, made)}")
        await self._prune(ordered, part)

    async def _present(self, objects: Sequence[Object]) -> list[Object | None]:
        return [await self._get(each) for each in objects]

    async def _get(self, object_: Object) -> Object | None:
        try:
            resource = await self._client.of_kind(object_["apiVersion"], object_["kind"])
        except UnknownResource as error:
            is_monitor = (object_["apiVersion"], object_["kind"]) == _SERVICE_MONITOR
            why = (
                "does the cluster have Prometheus Operator?"
                if is_monitor
                else "is this cluster older than Kubernetes 1.34?"
            )
            raise NotOurs(f"{named(object_)}: {error}; {why}") from None
        try:
            return await resource.get(object_["metadata"]["name"], object_["metadata"].get("namespace", ""))
        except NotFound:
            return None

    def _check_owner(self, objects: Sequence[Object], found: Sequence[Object | None]) -> None:
        foreign = [
            f"{named(wanted)} ({_owner(present)})"
            for wanted, present in zip(objects, found, strict=True)
            if present is not None and in_part(wanted) and not self._is_ours(present)
        ]
        if foreign:
            raise NotOurs(f"already exist, but not from release {self._release.name!r}: {', '.join(foreign)}")

    def _is_ours(self, object_: Object) -> bool:
        labels = object_["metadata"].get("labels") or {}
        return (labels.get(INSTANCE), labels.get(MANAGED_BY)) == (self._release.name, SERVICE)

    async def _make_namespace(self, *, needs_privileges: bool) -> None:
        wanted = namespace_object(self._release, needs_privileges=needs_privileges)
        present = await self._get(wanted)
        name = self._release.namespace
        if present is None or self._is_ours(present):
            resource = await self._client.of_kind("v1", "Namespace")
            had = ((present or {}).get("metadata") or {}).get("labels") or {}
            if had.get(POD_SECURITY):
                # Another part needed privileges.
                wanted = namespace_object(self._release, needs_privileges=True)
            made = await resource.apply(wanted, FIELD_MANAGER)
            self._tell(f"{named(wanted)}: {_result(present, made)}")
        elif needs_privileges and (present["metadata"].get("labels") or {}).get(POD_SECURITY) != "privileged":
            self._tell(
                f"warning: Namespace {name} was there: if its pods may not be privileged, drivers do not start; "
                f"kubectl label namespace {name} {POD_SECURITY}=privileged lets them"
            )

    async def _make_key(self, name: str, part: str) -> None:
        """Create a Secret with a random key, unless it exists: replacing the key would invalidate what it signed."""
        metadata = {"name": name, "namespace": self._release.namespace, "labels": self._labels(part)}
        key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "stringData": {"key": key},
        }
        try:
            await (await self._client.of_kind("v1", "Secret")).create(secret)
        except AlreadyExists:
            return
        except Forbidden as error:
            self._tell(f"{named(secret)}: not made, so sessions end with the pod: {error.message}")
            return
        self._tell(f"{named(secret)}: made")

    def _labels(self, part: str) -> dict[str, str]:
        return {INSTANCE: self._release.name, MANAGED_BY: SERVICE, PART: part}

    async def _prune(self, objects: Sequence[Object], part: str) -> None:
        wanted = {(each["kind"], each["metadata"]["name"]) for each in objects}
        for resource, object_ in await self.present((part,)):
            if (object_["kind"], object_["metadata"]["name"]) not in wanted:
                await _delete(resource, object_)
                self._tell(f"{named(object_)}: removed, because it is no longer needed")

    async def present(self, parts: Iterable[str]) -> list[tuple[ResourceClient, Object]]:
        """All objects of these parts of the release, in order of removal."""
        selector = f"{INSTANCE}={self._release.name},{MANAGED_BY}={SERVICE},{PART} in ({','.join(parts)})"
        found: list[tuple[ResourceClient, Object]] = []
        for api_version, kind in KINDS:
            try:
                resource = await self._client.of_kind(api_version, kind)
            except UnknownResource:
                continue
            namespace = self._release.namespace if resource.is_namespaced else ""
            listed = await resource.list(namespace, label_selector=selector)
            found += [(resource, each) for each in listed.items]
        return sorted(found, key=lambda each: order_of(each[1]), reverse=True)

    # --- waiting ---

    async def wait(self, objects: Sequence[Object], timeout_s: float) -> None:
        """Wait until all workloads are ready. NotReady."""
        until = self._clock.monotonic() + timeout_s
        for object_ in objects:
            if object_["kind"] not in ("Deployment", "DaemonSet"):
                continue
            told = ""
            while True:
                problem = await self._problem(object_)
                if not problem:
                    self._tell(f"{named(object_)}: runs")
                    break
                if self._clock.monotonic() > until:
                    raise NotReady(f"{named(object_)}: {problem} after {timeout_s:g} s")
                if problem != told:
                    self._tell(f"{named(object_)}: {problem}")
                    told = problem
                await self._clock.sleep(_LOOK_EVERY_S)

    async def _problem(self, object_: Object) -> str:
        """What a workload lacks; empty if it is ready."""
        present = await self._get(object_)
        if present is None:
            return "is gone"
        lacking = shortfall(present)
        if not lacking:
            return ""
        reasons = await self._reasons(present)
        return f"{lacking}: {reasons}" if reasons else lacking

    async def _reasons(self, workload: Object) -> str:
        pods = await self._client.of_kind("v1", "Pod")
        selector = ",".join(f"{key}={value}" for key, value in workload["spec"]["selector"]["matchLabels"].items())
        listed = await pods.list(self._release.namespace, label_selector=selector)
        told = sorted({why for pod in listed.items for why in why_not_running(pod)})
        return "; ".join(told[:3])

    # --- removing ---

    async def remove(self, parts: Sequence[str], *, with_definitions: bool, timeout_s: float) -> int:
        """Remove parts, and the namespace if it is ours and nothing of the release is left; returns the number of objects. NotReady."""
        found = await self.present(parts)
        for resource, object_ in found:
            await _delete(resource, object_)
            self._tell(f"{named(object_)}: removed")
        count = len(found) + await self._remove_made(parts)
        if "queues" in parts:
            count += await self._remove_definitions(with_definitions)
        await self._await_end(parts, timeout_s)
        if not await self.present(PARTS):
            count += await self._remove_namespace(timeout_s)
        return count

    async def _remove_made(self, parts: Sequence[str]) -> int:
        """Remove objects that programs created themselves: leases, the autoscaler's status, and keys."""
        count = 0
        for api_version, kind, name in made_by_programs(self._release, parts):
            resource = await self._client.of_kind(api_version, kind)
            count += await self._remove_named(resource, kind, name, self._release.namespace)
        return count

    async def _remove_named(self, resource: ResourceClient, kind: str, name: str, namespace: str = "") -> int:
        try:
            await resource.delete(name, namespace, propagation_policy="Background")
        except NotFound:
            return 0
        self._tell(f"{kind} {f'{namespace}/' if namespace else ''}{name}: removed")
        return 1

    async def _remove_definitions(self, with_definitions: bool) -> int:
        """Remove roles; CRDs and our priority classes only on request, because all objects of the kinds are deleted too."""
        count = 0
        for object_ in definitions.objects():
            kind = object_["kind"]
            if kind in (_DEFINITION, "PriorityClass") and not with_definitions:
                continue
            if kind == "PriorityClass" and not _is_managed_here(await self._get(object_)):
                continue
            resource = await self._client.of_kind(object_["apiVersion"], kind)
            metadata = object_["metadata"]
            count += await self._remove_named(resource, kind, metadata["name"], metadata.get("namespace", ""))
        return count

    async def _await_end(self, parts: Sequence[str], timeout_s: float) -> None:
        """Wait until no pod of these parts is left."""
        until = self._clock.monotonic() + timeout_s
        components = ",".join(name for part in parts for name in COMPONENTS[part])
        selector = f"{INSTANCE}={self._release.name},app.kubernetes.io/component in ({components})"
        pods = await self._client.of_kind("v1", "Pod")
        while left := (await pods.list(self._release.namespace, label_selector=selector)).items:
            if self._clock.monotonic() > until:
                raise NotReady(f"{', '.join(named(each) for each in left[:3])}: still there after {timeout_s:g} s")
            await self._clock.sleep(_LOOK_EVERY_S)

    async def _remove_namespace(self, timeout_s: float) -> int:
        wanted = namespace_object(self._release, needs_privileges=False)
        present = await self._get(wanted)
        if present is None or not self._is_ours(present):
            return 0
        resource = await self._client.of_kind("v1", "Namespace")
        await resource.delete(self._release.namespace, uid=present["metadata"]["uid"])
        until = self._clock.monotonic() + timeout_s
        while await self._get(wanted) is not None:
            if self._clock.monotonic() > until:
                raise NotReady(f"{named(wanted)}: still there after {timeout_s:g} s")
            await self._clock.sleep(_LOOK_EVERY_S)
        self._tell(f"{named(wanted)}: removed")
        return 1

    async def check_unused(self, parts: Sequence[str]) -> None:
        """InUse if pods use devices of drivers to remove, or a scheduler relies on the guard."""
        found = await self.present(parts)
        if "guard" in parts and "scheduler" not in parts:
            for _, object_ in await self.present(("scheduler",)):
                if object_["kind"] == "Deployment" and "--beside-kube-scheduler=guarded" in _arguments(object_):
                    raise InUse(f"{named(object_)} shares nodes with kube-scheduler, which is safe with the guard only")
        drivers = {
            DRIVERS[name] for name in DRIVERS if f"{_prefix(self._release)}-{name}" in _names(found, "DaemonSet")
        }
        if not drivers:
            return
        claims = await self._client.of_kind("resource.k8s.io/v1", "ResourceClaim")
        used = [each for each in (await claims.list()).items if _is_used(each, drivers)]
        if used:
            some = ", ".join(named(each) for each in used[:3])
            raise InUse(f"devices of these drivers are in use by {len(used)} claims: {some}")


# --- what belongs to a release ---

# All drivers, by their names in the chart.
DRIVERS = {
    "gpu": "gpu.nvidia.com",
    "amd": "gpu.amd.com",
    "nic": "dra.net",
    "cpu": "dra.cpu",
    "tpu": "tpu.google.com",
}
COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "drivers": tuple(DRIVERS),
    "scheduler": ("scheduler",),
    "guard": ("guard",),
    "advice": ("advice",),
    "queues": ("queues",),
    "autoscaler": ("autoscaler",),
    "dashboard": ("dashboard",),
}
PARTS = tuple(COMPONENTS)
_SERVICE_MONITOR = ("monitoring.coreos.com/v1", "ServiceMonitor")
# Every kind in the chart (`tests/installation/test_chart.py`).
KINDS = (
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"),
    _SERVICE_MONITOR,
)


def _prefix(release: Release) -> str:
    """The prefix of the release's object names (allot.fullname)."""
    return release.name if "allot" in release.name else f"{release.name}-allot"


def made_by_programs(release: Release, parts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """apiVersion, kind and name of what running programs created in the namespace."""
    for part in parts:
        if part in ("scheduler", "guard", "queues", "autoscaler"):
            yield "coordination.k8s.io/v1", "Lease", f"{_prefix(release)}-{part}"
        if part == "guard":
            yield "discovery.k8s.io/v1", "EndpointSlice", f"{_prefix(release)}-guard"
        if part == "autoscaler":
            yield "v1", "ConfigMap", "cluster-autoscaler-status"
        if part == "dashboard":
            yield "v1", "Secret", f"{_prefix(release)}-dashboard-session"


def session_secrets(objects: Iterable[Object]) -> Iterator[str]:
    """The Secrets with session keys, which pods mount if they exist."""
    for object_ in objects:
        if object_["kind"] == "Deployment":
            volumes = object_["spec"]["template"]["spec"].get("volumes") or ()
            yield from (each["secret"]["secretName"] for each in volumes if each["name"] == "session")


def namespace_object(release: Release, *, needs_privileges: bool) -> Object:
    """The namespace of a release, created unless it exists."""
    labels = {INSTANCE: release.name, MANAGED_BY: SERVICE}
    if needs_privileges:
        labels[POD_SECURITY] = "privileged"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace, "labels": labels}}


def _needs_privileges(objects: Iterable[Object]) -> bool:
    """Whether objects need privileges: drivers mount host directories."""
    return any(each["kind"] == "DaemonSet" for each in objects)


# --- reading the cluster ---


def _is_managed_here(object_: Object | None) -> bool:
    return object_ is not None and (object_["metadata"].get("labels") or {}).get(MANAGED_BY) == SERVICE


def _owner(object_: Object) -> str:
    labels = object_["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY) == "Helm":
        return f"of Helm's release {labels.get(INSTANCE, '')!r}: use helm upgrade"
    if labels.get(MANAGED_BY):
        return f"managed by {labels[MANAGED_BY]}, release {labels.get(INSTANCE, '')!r}"
    return "not ours"


def _result(before: Object | None, after: Object) -> str:
    if before is None:
        return "made"
    versions = (before["metadata"].get("resourceVersion"), after["metadata"].get("resourceVersion"))
    return "unchanged" if versions[0] == versions[1] else "changed"


async def _delete(resource: ResourceClient, object_: Object) -> None:
    metadata = object_["metadata"]
    try:
        await resource.delete(
            metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"], propagation_policy="Background"
        )
    except NotFound:
        pass


def _arguments(deployment: Object) -> list[str]:
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0].get("args") or []
    return found


def _names(found: Iterable[tuple[ResourceClient, Object]], kind: str) -> set[str]:
    return {object_["metadata"]["name"] for _, object_ in found if object_["kind"] == kind}


def _is_used(claim: Object, drivers: set[str]) -> bool:
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    return bool(status.get("reservedFor")) and any(each.get("driver") in drivers for each in results)


def shortfall(workload: Object) -> str:
    """What a Deployment or DaemonSet lacks to match its spec; empty if nothing."""
    status, generation = workload.get("status") or {}, workload["metadata"].get("generation", 0)
    if status.get("observedGeneration", 0) < generation:
        return "waiting for its controller"
    if workload["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        updated, available = status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0)
    else:
        wanted = workload["spec"].get("replicas", 1)
        updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated < wanted:
        return f"{updated} of {wanted} pods are up to date"
    if available < wanted:
        return f"{available} of {wanted} pods are available"
    if workload["kind"] == "Deployment" and status.get("replicas", 0) > wanted:
        return f"{status['replicas'] - wanted} old pods are still there"
    return ""


def why_not_running(pod: Object) -> Iterator[str]:
    """Why a pod does not run, from its status."""
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"pod {name}: {condition.get('message') or condition.get('reason', '')}"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        waiting = state.get("waiting") or {}
        ended = (container.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
        words = _last_words(str(ended.get("message") or waiting.get("message") or ""))
        reason = waiting.get("reason") or ended.get("reason")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            yield f"pod {name}: {reason}{f': {words}' if words else ''}"


def _last_words(text: str) -> str:
    """The lines with errors, or the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "hint:"))]
    return " ".join(errors or lines[-1:])[-_WORDS_MAX:]
