"""`allot driver new`: a driver that works, and manifests that a cluster takes and that give the rights it needs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.apiserver.request import User
from allot.client.api import Client
from allot.client.errors import ApiError, Forbidden
from allot.driver import Claim, Condition, ControllerOptions, DeviceStatus, Driver, Prepared, running_controller
from allot.driver.skeleton import SkeletonError, write_skeleton
from cli.command import allot
from driver.cluster import NODE, cluster, make_claim, started
from waiting import until

NAME = "my-dice.example.com"


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    write_skeleton(NAME, tmp_path / "dice")
    return tmp_path / "dice"


def manifests(skeleton: Path, *names: str) -> Iterator[dict[str, Any]]:
    for name in names or ("rbac", "deviceclass", "admission-policy", "daemonset", "example-pod"):
        yield from yaml.safe_load_all((skeleton / "manifests" / f"{name}.yaml").read_text())


def the_driver(skeleton: Path) -> type[Driver]:
    found: type[Driver] = the_class(skeleton / "driver.py", "MyDice")
    return found


def the_class(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"my_dice_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def test_the_files_are_listed_and_what_is_there_is_not_touched(tmp_path: Path) -> None:
    result = allot("driver", "new", NAME, "--directory", str(tmp_path / "dice"))
    assert result.code == 0
    assert str(tmp_path / "dice" / "driver.py") in result.stdout.splitlines()
    again = allot("driver", "new", NAME, "--directory", str(tmp_path / "dice"))
    assert (again.code, "already exists" in again.stderr) == (2, True)


@pytest.mark.parametrize("name", ["", "Dice", "a_b.example.com", "x" * 64, "../escape"])
def test_a_name_that_is_no_driver_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SkeletonError, match="driver name"):
        write_skeleton(name, tmp_path / "dice")
    assert list(tmp_path.iterdir()) == []


def test_the_driver_is_short_and_nothing_is_left_open(skeleton: Path) -> None:
    texts = {path.name: path.read_text() for path in skeleton.rglob("*") if path.is_file()}
    assert len(texts["driver.py"].splitlines()) <= 40
    assert [name for name, text in texts.items() if "@NAME@" in text or "@SHORT@" in text] == []


async def apply(client: Client, object_: dict[str, Any]) -> None:
    resource = await client.of_kind(object_["apiVersion"], object_["kind"])
    namespace = object_["metadata"].get("namespace", "default" if resource.is_namespaced else "")
    await resource.create(object_, namespace)


async def test_the_manifests_are_accepted_and_their_rights_suffice(skeleton: Path, tmp_path: Path) -> None:
    class Telling(the_driver(skeleton)):  # type: ignore[misc]
        def prepare(self, claim: Claim) -> list[Prepared]:
            ready = Condition(type="Ready", status="True", reason="Ready")
            return [Prepared(each, status=DeviceStatus(conditions=(ready,))) for each in claim.devices]

    async with cluster(tmp_path) as plane:
        admin = plane.client()
        for object_ in manifests(skeleton):
            if object_["kind"] == "Pod":
                object_["spec"]["automountServiceAccountToken"] = False
            try:
                await apply(admin, object_)
            except Forbidden as error:
                # No controller makes service accounts here.
                assert object_["kind"] == "Pod" and "serviceaccount" in str(error)
        user = User(
            name="system:serviceaccount:my-dice-driver:my-dice-driver",
            groups=("system:serviceaccounts", "system:serviceaccounts:my-dice-driver", "system:authenticated"),
            extra={"authentication.kubernetes.io/node-name": (NODE,)},
        )
        account = plane.client(user, "my-dice")
        async with started(Telling(), account, tmp_path) as (plugin, kubelet):
            await plugin.publisher.synced.wait()
            claim = await make_claim(admin, NAME, ["my-dice-0"])
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""
            claims = admin.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)

            async def told() -> bool:
                return bool((await claims.get(claim.name, "default"))["status"].get("devices"))

            await until(told)
        slices = account.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
        (mine,) = (await slices.list()).items
        stolen = {**mine, "metadata": {"name": "stolen"}, "spec": {**mine["spec"], "nodeName": "other"}}
        with pytest.raises(ApiError, match="may not change ResourceSlices of node 'other'"):
            await slices.create(stolen)


async def test_a_driver_with_a_controller_works_with_the_rights_of_its_manifests(tmp_path: Path) -> None:
    skeleton = tmp_path / "dice"
    write_skeleton(NAME, skeleton, with_controller=True)
    made = the_class(skeleton / "controller.py", "MyDiceController")()
    groups = ("system:serviceaccounts", "system:serviceaccounts:my-dice-driver", "system:authenticated")
    user = User(name="system:serviceaccount:my-dice-driver:my-dice-controller", groups=groups)
    node = User(name="system:serviceaccount:my-dice-driver:my-dice-driver", groups=groups)
    conditions = {"bindingConditions": [f"{NAME}/Attached"], "bindingFailureConditions": [f"{NAME}/AttachFailed"]}
    async with cluster(tmp_path) as plane:
        admin = plane.client()
        for object_ in manifests(skeleton, "rbac", "deviceclass", "admission-policy", "daemonset", "controller"):
            await apply(admin, object_)
        options = ControllerOptions(lease_namespace="my-dice-driver", identity="one")
        async with running_controller(made, plane.client(user, "my-dice"), options) as runs:
            await runs.ready.wait()
            await runs.publisher.synced.wait()
            claim = await make_claim(admin, NAME, [], also=[("my-dice", "my-dice-3")], **conditions)
            claims = admin.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)

            async def told() -> bool:
                devices = (await claims.get(claim.name, "default"))["status"].get("devices") or [{}]
                return devices[0].get("data") == {"port": 3}

            await until(told)
        async with started(the_driver(skeleton)(), plane.client(node, "my-dice"), tmp_path) as (_, kubelet):
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""
    (spec,) = (tmp_path / "cdi").glob("*.json")
    assert "MY_DICE_0_PORT=3" in spec.read_text()


@pytest.mark.slow
def test_the_test_of_a_new_controller_passes_and_checks_of_drivers_are_refused(tmp_path: Path) -> None:
    result = allot("driver", "new", NAME, "--controller", "--directory", str(tmp_path / "dice"))
    assert (result.code, result.stderr) == (0, f"next: see {tmp_path / 'dice' / 'README.md'}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path / "dice", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    refused = allot("driver", "test", str(tmp_path / "dice" / "driver.py"))
    assert (refused.code, "its devices come from a controller" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_the_test_of_a_new_driver_passes(skeleton: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "names", "."]
    done = subprocess.run(command, cwd=skeleton, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    result = allot("driver", "test", str(skeleton / "driver.py"), "--only", "registration")
    assert result.code == 0, result.stderr
