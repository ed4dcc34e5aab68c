"""What a container has mounted of its pod's volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.node.runtimes.port import Mount, RuntimeFailure
from allot.node.volume_mounts import VolumeMounts


def pod(**mount: Any) -> RunnablePod:
    volumes = [
        {"name": "work", "emptyDir": {}},
        {"name": "settings", "configMap": {"name": "x"}},
        {"name": "models", "image": {"reference": "registry/models:1"}},
    ]
    containers = [{"name": "main", "volumeMounts": [{"name": "work", "mountPath": "/in", **mount}]}]
    return decode_runnable({"metadata": {"name": "p"}, "spec": {"volumes": volumes, "containers": containers}})


def mounted(folder: Path, *, recurses: bool = True, **mount: Any) -> Mount:
    made = pod(**mount)
    (folder / "work").mkdir(exist_ok=True)
    volumes = {"work": folder / "work", "settings": folder / "settings"}
    variables = {"NAME": "a", "EMPTY": "", "OUT": "../x", "ROOT": "/etc"}
    images = {"models": "sha256:1"}
    return VolumeMounts(made, made.spec.containers[0], volumes, images, variables, recurses=recurses).make()[0]


def refused(folder: Path, **mount: Any) -> str:
    with pytest.raises(RuntimeFailure) as caught:
        mounted(folder, **mount)
    assert caught.value.reason == "CreateContainerConfigError"
    return str(caught.value)


def test_what_the_agent_writes_can_only_be_read(tmp_path: Path) -> None:
    assert not mounted(tmp_path).read_only
    assert mounted(tmp_path, name="settings").read_only
    found = mounted(tmp_path, name="models", subPath="v1")
    assert found == Mount(host_path="", container_path="/in", image="sha256:1", sub_path="v1", read_only=True)


def test_a_volume_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path, name="other") == 'cannot find volume "other" to mount into container "main"'


def test_variables_in_the_path_of_a_part_have_to_be_there(tmp_path: Path) -> None:
    assert mounted(tmp_path, subPathExpr="$(NAME)/$$(NAME)/b").sub_path == "a/$(NAME)/b"
    assert mounted(tmp_path, subPathExpr="$(EMPTY)").sub_path == ""
    assert refused(tmp_path, subPathExpr="$(NAME)/$(ABSENT)") == (
        'failed to expand subPathExpr of volumeMount "work" of container "main": missing value for "ABSENT"'
    )


@pytest.mark.parametrize("expression", ["$(OUT)", "$(ROOT)", "a/../../b"])
def test_a_part_does_not_lead_out_of_its_volume(tmp_path: Path, expression: str) -> None:
    assert 'expected a relative path without ".."' in refused(tmp_path, subPathExpr=expression)


def test_what_is_below_a_mount_can_only_be_read_where_the_runtime_can_do_that(tmp_path: Path) -> None:
    seals = {"readOnly": True, "recursiveReadOnly": "IfPossible"}
    assert mounted(tmp_path, **seals).recursive_read_only
    assert not mounted(tmp_path, recurses=False, **seals).recursive_read_only
    assert not mounted(tmp_path, readOnly=True, recursiveReadOnly="Disabled").recursive_read_only
    must = {"readOnly": True, "recursiveReadOnly": "Enabled"}
    assert mounted(tmp_path, **must).recursive_read_only
    assert refused(tmp_path, recurses=False, **must).endswith("but it is not supported by the runtime")
    assert refused(tmp_path, recursiveReadOnly="Enabled").endswith("but it is not read-only")
    assert refused(tmp_path, mountPropagation="HostToContainer", **must).endswith(
        'not compatible with propagation "HostToContainer"'
    )
