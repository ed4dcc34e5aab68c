"""The control groups of pods: version 1 in the kernel of this machine, version 2 in the kernel as far as it has controllers, and on files."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allot.core.lifecycle.control_groups import CGROUPFS, SYSTEMD, UNLIMITED, GroupValues
from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.core.quantity import Quantity
from allot.node.control_groups import GroupOptions, NewTree, NoGroups, OldTree, PodGroups, Tree, find_tree
from allot.node.machine import read_huge_pages
from allot.node.runtimes.port import RuntimeFailure
from allot.node.systemd_slices import set_command, start_command
from allot.process.clock import SystemClock

ALLOCATABLE = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}
MI = 2**20
UID = "0a1b-2c3d"


def pod(cpu: str = "1", memory: str = "64Mi", uid: str = UID, qos: str = "Burstable") -> RunnablePod:
    resources: dict[str, Any] = {"requests": {"cpu": "100m"}, "limits": {"cpu": cpu, "memory": memory}}
    return decode_runnable(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": uid},
            "spec": {"containers": [{"name": "main", "resources": resources if qos != "BestEffort" else {}}]},
            "status": {"qosClass": qos},
        }
    )


def groups_in(tree: Tree, *root: str, driver: str = CGROUPFS) -> PodGroups:
    made = PodGroups(tree, GroupOptions(root=root, driver=driver, pids_max=50), SystemClock())
    made.open(ALLOCATABLE)
    return made


# --- version 2, on files ---


def files(folder: Path, controllers: str = "cpu memory pids hugetlb") -> Path:
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text("")
    return folder


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text()


async def test_version_2_gets_weights_and_limits_and_passes_controllers_on(tmp_path: Path) -> None:
    top = files(tmp_path / "cgroup")
    groups = groups_in(NewTree(top, (2 * MI,)), "here")
    assert await groups.ensure(pod()) == f"/here/kubepods/burstable/pod{UID}"
    assert read(top, "cgroup.subtree_control") == "+cpu +memory +pids +hugetlb"
    assert read(top / "here/kubepods/burstable", "cgroup.subtree_control") == "+cpu +memory +pids +hugetlb"
    assert read(top / "here/kubepods", "memory.max") == str(1024 * MI)
    found = top / "here/kubepods/burstable" / f"pod{UID}"
    assert read(found, "cpu.weight") == "4"
    assert read(found, "cpu.max") == "100000 100000"
    assert read(found, "memory.max") == str(64 * MI)
    assert read(found, "pids.max") == "50"
    assert read(found, "hugetlb.2MB.max") == "0"
    assert read(top / "here/kubepods/besteffort", "cpu.weight") == "1"
    await groups.update_classes([pod(), pod(uid="other")])
    assert read(top / "here/kubepods/burstable", "cpu.weight") == "8"


async def test_a_pod_is_raised_first_and_lowered_last_but_never_below_what_it_uses(tmp_path: Path) -> None:
    top = files(tmp_path / "cgroup")
    groups = groups_in(NewTree(top))
    await groups.ensure(pod())
    found = top / f"kubepods/burstable/pod{UID}"
    (found / "memory.current").write_text(str(40 * MI))
    await groups.grow(pod("500m", "128Mi"))
    assert (read(found, "cpu.max"), read(found, "memory.max")) == ("100000 100000", str(128 * MI))
    await groups.settle(pod("500m", "128Mi"))
    assert read(found, "cpu.max") == "50000 100000"
    with pytest.raises(RuntimeFailure, match=r"pod memory limit \(33554432\) below current usage \(41943040\)"):
        await groups.settle(pod("500m", "32Mi"))
    assert read(found, "memory.max") == str(128 * MI)
    # A pod of an earlier agent without a group stays without one.
    await groups.settle(pod(uid="earlier"))
    assert not (top / "kubepods/burstable/podearlier").exists()


async def test_a_uid_that_would_lead_elsewhere_gets_no_group_and_removes_none(tmp_path: Path) -> None:
    top = files(tmp_path / "cgroup")
    groups = groups_in(NewTree(top))
    (top / "victim").mkdir()
    with pytest.raises(RuntimeFailure, match=r"metadata\.uid '/\.\./\.\./victim'"):
        await groups.ensure(pod(uid="/../../victim"))
    await groups.remove("/../../victim")
    assert (top / "victim").is_dir()


async def test_links_in_a_group_are_not_followed(tmp_path: Path) -> None:
    """The kernel's tree has none; but nothing depends on that."""
    top = files(tmp_path / "cgroup", "cpu memory")
    groups = groups_in(NewTree(top))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "cgroup.procs").write_text(f"{os.getppid()}\n")
    inside = top / f"kubepods/besteffort/pod{UID}"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    with pytest.raises(OSError, match="not empty"):
        await groups.remove(UID)
    assert outside.is_dir()


def test_where_the_machine_does_not_let_us(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("1 0 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n")
    with pytest.raises(NoGroups, match="no control groups are mounted"):
        find_tree(mounts=tmp_path / "mounts")
    top = files(tmp_path / "cgroup2 here", "hugetlb")
    (tmp_path / "mounts").write_text(f"1 0 0:1 / {str(top).replace(' ', chr(92) + '040')} rw - cgroup2 none rw\n")
    with pytest.raises(NoGroups, match="lack the controllers cpu, memory"):
        find_tree(mounts=tmp_path / "mounts")
    (top / "cgroup.controllers").unlink()
    with pytest.raises(NoGroups, match=r"cgroup\.controllers: no such file"):
        find_tree(mounts=tmp_path / "mounts")
    (top / "cgroup.controllers").write_text("cpu memory")
    assert isinstance(find_tree(mounts=tmp_path / "mounts"), NewTree)
    # A file in the way is as good as a tree that is only read.
    (top / "kubepods").write_text("")
    with pytest.raises(NoGroups, match="/kubepods: "):
        groups_in(find_tree(mounts=tmp_path / "mounts"))


def test_both_versions_mounted_are_version_1(tmp_path: Path) -> None:
    lines = [
        "1 0 0:1 / /x/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        "1 0 0:1 / /x/longer/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        "2 0 0:2 / /x/memory rw - cgroup cgroup rw,memory",
        "3 0 0:3 / /x/unified rw - cgroup2 cgroup2 rw",
    ]
    (tmp_path / "mounts").write_text("\n".join(lines))
    tree = find_tree(mounts=tmp_path / "mounts")
    assert isinstance(tree, OldTree)
    assert {str(each) for each in tree.mounts.values()} == {"/x/cpu", "/x/memory", "/x/unified"}


async def test_slices_of_systemd_are_refused_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoGroups, match="busctl"):
        groups_in(NewTree(files(tmp_path / "cgroup")), driver=SYSTEMD)


def test_what_systemd_is_told() -> None:
    """As runc tells it, over D-Bus."""
    command = start_command("kubepods-pod1.slice")
    assert command[5:9] == ("StartTransientUnit", "ssa(sv)a(sa(sv))", "kubepods-pod1.slice", "replace")
    assert command[-4:] == ("DefaultDependencies", "b", "false", "0")
    values = GroupValues(cpu_shares=1024, cpu_quota_us=12_345, memory_bytes=UNLIMITED, pids=5)
    assert set_command("a.slice", values, is_unified=True)[7:] == (
        *("a.slice", "true", "4", "CPUWeight", "t", "39", "CPUQuotaPerSecUSec", "t", "130000"),
        *("MemoryMax", "t", str(2**64 - 1), "TasksMax", "t", "5"),
    )
    assert set_command("a.slice", GroupValues(cpu_shares=1024), is_unified=False)[-3:] == ("CPUShares", "t", "1024")
    assert set_command("a.slice", GroupValues(), is_unified=True) == ()


# --- in the kernel ---


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(("sleep", "1000")) as process:
        yield process
        process.kill()


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.wait() == -signal.SIGKILL


def kernel_tree() -> OldTree:
    try:
        tree = find_tree(tuple(read_huge_pages()))
    except NoGroups as error:
        pytest.skip(str(error))
    if not isinstance(tree, OldTree) or os.getuid() != 0:
        pytest.skip("needs root, and control groups of version 1")
    return tree


async def test_version_1_in_the_kernel(sleeper: subprocess.Popen[bytes]) -> None:
    """Values are the kernel's; what is left in a group is killed, also below it and frozen; nothing stays in any controller."""
    tree, root = kernel_tree(), f"allot-test-{os.getpid()}"
    try:
        groups = groups_in(tree, root)
    except NoGroups as error:
        pytest.skip(str(error))
    try:
        assert await groups.ensure(pod()) == f"/{root}/kubepods/burstable/pod{UID}"
        path = f"/{root}/kubepods/burstable/pod{UID}"
        assert tree.read(path) == GroupValues(cpu_quota_us=100_000, memory_bytes=64 * MI)
        await groups.grow(pod("2", "32Mi"))
        assert tree.read(path) == GroupValues(cpu_quota_us=200_000, memory_bytes=64 * MI)
        await groups.settle(pod("2", "32Mi"))
        assert tree.read(path) == GroupValues(cpu_quota_us=200_000, memory_bytes=32 * MI)
        # As a runtime does it, also where the agent made nothing.
        below = [tree.mounts[each] / path[1:] / "container" for each in ("memory", "freezer")]
        for folder in below:
            folder.mkdir(parents=True)
            (folder / "cgroup.procs").write_text(str(sleeper.pid))
        (below[1] / "freezer.state").write_text("FROZEN")
        # Another agent's pod is left alone.
        await groups.ensure(pod(uid="other"))
        await groups.remove(UID)
        assert has_ended(sleeper)
        assert tree.places(path) == ()
        assert tree.places(f"/{root}/kubepods/burstable/podother")
        await groups.remove(UID)
    finally:
        await groups.remove(UID)
        await groups.remove("other")
        remove_root(tree, root)


def remove_root(tree: Tree, root: str) -> None:
    for place in tree.places(root):
        for folder in sorted(place.rglob("*/"), key=lambda each: -len(each.parts)):
            if folder.is_dir():
                folder.rmdir()
        place.rmdir()


async def test_version_2_in_the_kernel_kills_all_at_once(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """The kernel of this machine has it, but perhaps without the controllers that limits need."""
    mount = tmp_path / "unified"
    mount.mkdir()
    if subprocess.run(("mount", "-t", "cgroup2", "none", mount), capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a mount of control groups of version 2")
    passed = (mount / "cgroup.subtree_control").read_text().split()
    try:
        root = f"allot-test-{os.getpid()}"
        try:
            groups = groups_in(NewTree(mount), root)
        except NoGroups as error:
            pytest.skip(str(error))
        await groups.ensure(pod(qos="BestEffort"))
        inside = mount / root / f"kubepods/besteffort/pod{UID}" / "container"
        inside.mkdir()
        (inside / "cgroup.procs").write_text(str(sleeper.pid))
        await groups.remove(UID)
        assert has_ended(sleeper)
        assert not inside.parent.exists()
        remove_root(NewTree(mount), root)
    finally:
        # What the root passes on is for the whole machine.
        for each in {*(mount / "cgroup.subtree_control").read_text().split()} - {*passed}:
            (mount / "cgroup.subtree_control").write_text(f"-{each}")
        subprocess.run(("umount", mount), check=True)


async def test_we_are_not_killed_with_a_group_that_we_were_put_into(tmp_path: Path) -> None:
    """A container that may write to the kernel's tree could move the agent into its group. 0 is a process in another namespace."""
    top = files(tmp_path / "cgroup", "cpu memory")
    groups = groups_in(NewTree(top))
    inside = top / f"kubepods/besteffort/pod{UID}"
    inside.mkdir()
    (inside / "cgroup.procs").write_text(f"0\n1\n{os.getpid()}\n")
    with pytest.raises(OSError, match="not empty"):
        await groups.remove(UID)
