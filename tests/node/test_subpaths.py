"""Parts of volumes for runtimes that are told paths: mounted where no container can put a link, and taken away with the pod."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from allot.node.pod_folders import unmount_below
from allot.node.runtimes import container_mounts
from allot.node.runtimes.port import Mount, RuntimeFailure
from allot.node.subpaths import SUBPATHS, bind_subpath
from allot.process.beneath import remove_tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount for others")


def in_a_namespace(act: Callable[[], None]) -> None:
    """What is mounted goes with the process."""
    child = os.fork()
    if child == 0:
        try:
            container_mounts.enter_namespace()
            act()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_was_looked_at_is_what_is_mounted_and_the_volume_outlives_the_pod(tmp_path: Path) -> None:
    pod, volume = tmp_path / "pods" / "u-1", tmp_path / "volume"
    (volume / "a").mkdir(parents=True)
    (volume / "a" / "file").write_text("mine")
    wanted = Mount(host_path=str(volume), sub_path="a", container_path="/data")

    def act() -> None:
        for _ in range(2):  # the second time for a container that is started again
            place = bind_subpath(pod, "c", 0, wanted)
        file = bind_subpath(pod, "c", 1, Mount(host_path=str(volume), sub_path="a/file", container_path="/file"))
        (volume / "a").rename(volume / "moved")
        (volume / "a").symlink_to("/etc")
        assert [path.name for path in Path(place).iterdir()] == ["file"]
        assert Path(file).read_text() == "mine"
        with pytest.raises(OSError, match="busy"):
            remove_tree(pod)
        assert (volume / "moved" / "file").exists()
        unmount_below(pod, SUBPATHS)
        remove_tree(pod)

    in_a_namespace(act)
    assert not pod.exists()
    assert (volume / "moved" / "file").read_text() == "mine"


def test_a_part_that_leads_out_of_the_volume_is_refused(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "a").symlink_to("/etc")
    wanted = Mount(host_path=str(tmp_path / "volume"), sub_path="a", container_path="/data")
    with pytest.raises(RuntimeFailure, match=r'failed to prepare subPath .*"/data" of container "c": .* to /etc'):
        bind_subpath(tmp_path / "pods" / "u-1", "c", 0, wanted)
