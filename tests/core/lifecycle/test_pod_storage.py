"""How large empty folders are, and as whom containers run."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.pod_storage import eviction_text, memory_volume_bytes, size_limit_bytes
from allot.core.lifecycle.pod_users import fs_user, must_not_be_root
from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.core.model.volumes_v1 import EmptyDirVolumeSource
from allot.core.quantity import Quantity

MIB = 2**20


def container(memory: str = "", user: int | None = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", **more}
    if memory:
        made["resources"] = {"limits": {"memory": memory}}
    if user is not None:
        made["securityContext"] = {"runAsUser": user}
    return made


def pod(*containers: dict[str, Any], **spec: Any) -> RunnablePod:
    return decode_runnable({"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}})


@pytest.mark.parametrize(
    ("limit", "made", "expected"),
    [
        ("", pod(container()), 1024),
        ("64Mi", pod(container()), 64),
        ("2Gi", pod(container()), 1024),
        ("0", pod(container("100Mi")), 100),
        ("", pod(container("100Mi"), container("50Mi")), 150),
        ("64Mi", pod(container("32Mi")), 32),
        # One without a limit may use all that there is.
        ("", pod(container("100Mi"), container()), 1024),
        ("", pod(container("100Mi"), initContainers=[container("300Mi")]), 300),
        ("", pod(container("100Mi"), initContainers=[container("50Mi", restartPolicy="Always")]), 150),
        (
            "",
            pod(container("10Mi"), initContainers=[container("50Mi", restartPolicy="Always"), container("300Mi")]),
            350,
        ),
        ("", pod(container(), resources={"limits": {"memory": "200Mi"}}), 200),
    ],
)
def test_memory_is_what_volume_pod_and_node_allow(limit: str, made: RunnablePod, expected: int) -> None:
    source = EmptyDirVolumeSource(medium="Memory", size_limit=Quantity.parse(limit) if limit else None)
    assert memory_volume_bytes(made, source, {"memory": Quantity.parse("1Gi")}) == expected * MIB


def test_nothing_is_known_of_a_node_that_says_nothing() -> None:
    assert memory_volume_bytes(pod(container()), EmptyDirVolumeSource(), {}) == 0


def test_an_eviction_names_volume_and_limit() -> None:
    source = EmptyDirVolumeSource(size_limit=Quantity.parse("10Mi"))
    assert size_limit_bytes(source) == 10 * MIB
    assert size_limit_bytes(EmptyDirVolumeSource(size_limit=Quantity.parse("0"))) is None
    assert eviction_text("cache", source) == 'Usage of EmptyDir volume "cache" exceeds the limit "10Mi". '


def test_a_pod_has_one_user_if_all_containers_say_the_same() -> None:
    assert fs_user(pod(container())) is None
    assert fs_user(pod(container(user=7), container())) is None
    assert fs_user(pod(container(user=7), container(user=8))) is None
    assert fs_user(pod(container(user=7), container(user=7))) == 7
    assert fs_user(pod(container(), container(user=7), securityContext={"runAsUser": 7})) == 7


def test_a_container_overrides_what_its_pod_says_of_root() -> None:
    strict = {"runAsNonRoot": True}
    made = pod(container(), container(securityContext={"runAsNonRoot": False}), securityContext=strict)
    assert [must_not_be_root(made, each) for each in made.spec.containers] == [True, False]
    assert not must_not_be_root(pod(container()), made.spec.containers[0])
