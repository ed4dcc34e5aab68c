"""What people are told who may read no more than a namespace: an API server with RBAC, and a user with a Role in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.apiserver.assembly import Settings
from allot.controlplane.plane import ControlPlane, control_plane
from allot.store.memory import MemoryStore
from cli.command import Result, allot

pytestmark = pytest.mark.slow

DRIVER = "gpu.example.com"
RESOURCE = "resource.k8s.io"
MESSAGE = "0/1 nodes are available: 1 cannot allocate all claims."
_READ = ["get", "list", "watch"]
_NAMESPACED = [
    {"apiGroups": [""], "resources": ["pods", "events", "resourcequotas"], "verbs": _READ},
    {"apiGroups": [RESOURCE], "resources": ["resourceclaims", "resourceclaimtemplates"], "verbs": _READ},
]
_CLUSTER = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": _READ},
    {"apiGroups": [RESOURCE], "resources": ["resourceslices", "deviceclasses"], "verbs": _READ},
]


def _claim(name: str, count: int = 1) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}
    return {
        "apiVersion": f"{RESOURCE}/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def _pod(name: str, claim: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _allocation(device: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device}
    return {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


async def _fill(plane: ControlPlane) -> None:
    """A node with two devices: one is held in namespace ml and one in another, and a pod of ml waits for one more."""
    client = plane.client()

    def of(group: str, plural: str, *, namespaced: bool = True, version: str = "v1") -> Any:
        return client.resource(group, version, plural, namespaced=namespaced)

    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": amounts}}
    nodes = of("", "nodes", namespaced=False)
    made = await nodes.create(node)
    # New nodes are not ready until somebody says so.
    await nodes.update({**made, "spec": {}})
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": {"name": "n1", "resourceSliceCount": 1}}
    devices = {"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}
    slice_ = {
        "apiVersion": f"{RESOURCE}/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {**spec, **devices},
    }
    await of(RESOURCE, "resourceslices", namespaced=False).create(slice_)
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    gpu = {"apiVersion": f"{RESOURCE}/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    await of(RESOURCE, "deviceclasses", namespaced=False).create({**gpu, "spec": {"selectors": [selector]}})
    claims, pods = of(RESOURCE, "resourceclaims"), of("", "pods")
    for namespace, device in (("ml", "gpu-0"), ("other", "gpu-1")):
        await of("", "namespaces", namespaced=False).create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        held = await claims.create(_claim("held"), namespace)
        user = {"resource": "pods", "name": "user", "uid": "1"}
        status = {"allocation": _allocation(device), "reservedFor": [user]}
        await claims.update_status({**held, "status": status}, namespace)
    await claims.create(_claim("wanted"), "ml")
    waiting = await pods.create(_pod("train", "wanted"), "ml")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": MESSAGE}
    await pods.update_status({**waiting, "status": {"phase": "Pending", "conditions": [condition]}}, "ml")
    await _grant(of)


async def _grant(of: Any) -> None:
    """dev reads a namespace; lead also nodes and devices."""
    group = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": "reader"}}
    await of(group, "roles").create({**head, "kind": "Role", "rules": _NAMESPACED}, "ml")
    await of(group, "clusterroles", namespaced=False).create({**head, "kind": "ClusterRole", "rules": _CLUSTER})
    users = [{"kind": "User", "name": name, "apiGroup": group} for name in ("dev", "lead")]
    role = {"kind": "Role", "name": "reader", "apiGroup": group}
    await of(group, "rolebindings").create({**head, "kind": "RoleBinding", "subjects": users, "roleRef": role}, "ml")
    binding = {"kind": "ClusterRoleBinding", "subjects": users[1:], "roleRef": {**role, "kind": "ClusterRole"}}
    await of(group, "clusterrolebindings", namespaced=False).create({**head, **binding})


class Users:
    """Asks as somebody."""

    def __init__(self, folder: Path, admin: Path) -> None:
        self._folder = folder
        self._admin = admin

    async def ask(self, user: str, *arguments: str) -> Result:
        config = yaml.safe_load(self._admin.read_text())
        config["users"][0]["user"]["as"] = user
        config["contexts"][0]["context"]["namespace"] = "ml"
        path = self._folder / f"{user}.yaml"
        path.write_text(yaml.safe_dump(config))
        return await asyncio.to_thread(allot, *arguments, "--kubeconfig", str(path))


@pytest.fixture
async def users(tmp_path: Path) -> AsyncIterator[Users]:
    async with control_plane(Settings(directory=tmp_path / "server", port=0), MemoryStore()) as plane:
        admin = tmp_path / "admin.yaml"
        plane.server.access.write_admin_kubeconfig(admin, plane.server.url)
        await _fill(plane)
        yield Users(tmp_path, admin)


async def test_who_reads_a_namespace_gets_its_answers(users: Users) -> None:
    result = await users.ask("dev", "explain", "train")
    assert result.code == 1
    assert result.stdout.splitlines()[0] == f"ml/train is pending: the scheduler says: {MESSAGE}"
    assert "nodes, resourceslices, deviceclasses could not be read" in result.stdout
    assert "only those of namespace ml may be listed: events, pods, resourceclaims" in result.stderr
    assert "left out, as they may not be listed: " in result.stderr

    for arguments in (("top", "claims"), ("top", "claims", "-A")):
        result = await users.ask("dev", *arguments)
        assert result.code == 0
        rows = [line.split()[:3] for line in result.stdout.splitlines()[1:]]
        assert rows == [["ml", "held", "in"], ["ml", "wanted", "pending"]]

    result = await users.ask("dev", "tree", "claim/held")
    assert result.code == 0
    assert "gpu-0: cdi unknown, details resourceslices may not be listed" in result.stdout
    assert "!" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("top", "devices"), "resourceslices"),
        (("top", "nodes"), "nodes"),
        (("get", "devices"), "resourceslices"),
        (("get", "pools"), "resourceslices"),
        (("tree", "node/n1"), "nodes"),
        (("tree", "device/gpu-0"), "resourceslices"),
        (("plan", "PLAN"), "nodes, deviceclasses, resourceslices"),
    ],
)
async def test_what_the_namespace_does_not_say_is_named(
    users: Users, tmp_path: Path, arguments: tuple[str, ...], kind: str
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump_all([_claim("c"), _pod("p", "c")]))
    given = [str(manifest) if word == "PLAN" else word for word in arguments]
    result = await users.ask("dev", *given)
    assert (result.code, result.stdout) == (1, "")
    assert f"error: {kind} may not be listed" in result.stderr
    assert "hint:" in result.stderr


async def test_who_reads_nodes_and_devices_too_is_told_that_others_may_hold_them(users: Users, tmp_path: Path) -> None:
    result = await users.ask("lead", "explain", "train")
    assert result.code == 1
    assert result.stdout.splitlines()[0] == f"ml/train is pending: the scheduler says: {MESSAGE}"
    assert "pods, resourceclaims of other namespaces could not be read" in result.stdout

    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump_all([_claim("c"), _pod("p", "c")]))
    result = await users.ask("lead", "plan", str(manifest))
    assert result.code == 0
    assert "at most 1" in result.stdout
    assert "pods and claims of other namespaces could not be read, so what they hold counts as free" in result.stdout

    result = await users.ask("lead", "top", "devices", "-o", "json")
    (row,) = result.lines[0]["rows"]
    assert (row["free"], row["inUse"]) == (1, 1)
    assert "only those of namespace ml may be listed" in result.stderr


async def test_who_may_read_nothing_is_refused(users: Users) -> None:
    for arguments in (("explain", "train"), ("top", "claims"), ("tree", "pod/train")):
        result = await users.ask("nobody", *arguments)
        assert (result.code, result.stdout) == (1, "")
        assert 'User "nobody" cannot list resource "nodes"' in result.stderr


async def test_the_namespace_that_is_asked_about_is_the_one_that_is_read(users: Users) -> None:
    result = await users.ask("dev", "explain", "train", "-n", "other")
    assert (result.code, result.stdout) == (1, "")
    assert (await users.ask("dev", "top", "claims", "-n", "ml")).code == 0
