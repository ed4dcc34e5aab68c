"""Devices of device plugins: which ones a container gets, and the kubelet's words if it gets none."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.plugin_devices import (
    Device,
    Edits,
    Holding,
    HostPath,
    Ledger,
    Offer,
    Refused,
    amounts,
    changed_devices,
    check_edits,
    check_resource_name,
    container_statuses,
    merged,
    node_amounts,
    pick,
    plan,
)
from allot.core.model.pods_v1 import RunnablePod, decode_runnable

GPU = "vendor.example/gpu"


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **status: Any) -> RunnablePod:
    return decode_runnable(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": list(containers), "initContainers": list(init)},
            "status": status,
        }
    )


def container(name: str, count: int | str = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": {"limits": {GPU: str(count), "cpu": "1"}}, **more}


def offer(*ids: str, unhealthy: tuple[str, ...] = (), is_connected: bool = True) -> Offer:
    devices = {id_: Device(id=id_, is_healthy=id_ not in unhealthy) for id_ in (*ids, *unhealthy)}
    return Offer(devices=devices, is_connected=is_connected)


def holding(*ids: str, **edits: Any) -> Holding:
    return Holding(devices=tuple(Device(id=id_) for id_ in ids), edits=Edits(**edits))


def allocate(made: RunnablePod, ledger: Ledger, there: Offer) -> dict[str, tuple[str, ...]]:
    """What the containers of a pod get, one after the other."""
    found = {}
    for each in (*made.spec.init_containers, *made.spec.containers):
        for resource, required in amounts(made, each).items():
            planned = plan(made, each, resource, required, there, ledger)
            assert planned is not None
            ids = pick(planned, ())
            ledger.hold(made.metadata.uid, each.name, resource, holding(*ids))
            found[each.name] = ids
    return found


def test_devices_of_init_containers_are_passed_on_except_those_of_sidecars() -> None:
    made = pod(
        container("main", 2),
        container("other"),
        init=(container("first", 2), container("sidecar", restartPolicy="Always"), container("second", 2)),
    )
    found = allocate(made, Ledger(), offer("a", "b", "c", "d", "e"))
    assert found == {
        "first": ("a", "b"),
        "sidecar": ("a",),
        "second": ("b", "c"),
        "main": ("b", "c"),
        "other": ("d",),
    }


def test_no_device_is_in_two_containers() -> None:
    ledger = Ledger()
    allocate(pod(container("main", 2), container("other")), ledger, offer("a", "b", "c", "d"))
    assert ledger.in_use() == {GPU: {"a", "b", "c"}}
    made = decode_runnable({"metadata": {"name": "q", "uid": "v"}, "spec": {"containers": [container("main", 2)]}})
    with pytest.raises(
        Refused, match=r"^requested number of devices unavailable for vendor.example/gpu. Requested: 2, Available: 1$"
    ):
        allocate(made, ledger, offer("a", "b", "c", "d", unhealthy=("e",)))


def test_preferences_count_as_far_as_they_are_free() -> None:
    made = pod(container("main", 2))
    planned = plan(made, made.spec.containers[0], GPU, 2, offer("a", "b", "c"), Ledger())
    assert planned is not None
    assert pick(planned, ("c", "x", "c")) == ("c", "a")
    assert pick(planned, ("c", "b", "a")) == ("c", "b")


@pytest.mark.parametrize(
    ("there", "required", "text"),
    [
        (None, 1, "cannot allocate unregistered device vendor.example/gpu"),
        (offer(), 1, "no healthy devices present; cannot allocate unhealthy devices vendor.example/gpu"),
        (
            offer("a", is_connected=False),
            1,
            "no healthy devices present; cannot allocate unhealthy devices vendor.example/gpu",
        ),
        (
            offer("b", unhealthy=("a",)),
            1,
            "previously allocated devices are no longer healthy; cannot allocate unhealthy devices vendor.example/gpu",
        ),
        (offer("a"), 2, 'pod "u" container "main" changed request for resource "vendor.example/gpu" from 1 to 2'),
    ],
)
def test_a_container_that_starts_again_needs_its_devices(there: Offer | None, required: int, text: str) -> None:
    made, ledger = pod(container("main")), Ledger()
    ledger.hold("u", "main", GPU, holding("a"))
    assert plan(made, made.spec.containers[0], GPU, 1, offer("a"), ledger) is None
    with pytest.raises(Refused) as caught:
        plan(made, made.spec.containers[0], GPU, required, there, ledger)
    assert str(caught.value) == text


def test_devices_of_claims_and_resources_of_kubernetes_are_not_the_plugins_business() -> None:
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"requestMappings": [mapping], "resourceClaimName": "c"}}
    made = pod(container("main"), container("other", 2), container("none", 0), **status)
    assert [amounts(made, each) for each in made.spec.containers] == [{}, {GPU: 2}, {}]


def test_two_plugins_of_a_container_are_merged_and_conflicts_told() -> None:
    one = holding(
        "a",
        environment={"A": "1", "B": "1"},
        mounts=(HostPath(host_path="/a", container_path="/m"),),
        cdi_devices=("v/c=a", "v/c=b"),
    )
    two = holding(
        "b",
        environment={"A": "1", "B": "2"},
        mounts=(HostPath(host_path="/b", container_path="/m"),),
        devices=(HostPath(host_path="/dev/b", container_path="/dev/b", permissions="r"),),
        annotations={"x": "y"},
        cdi_devices=("v/c=b",),
    )
    found, conflicts = merged({"v/two": two, "v/one": one})
    assert found == Edits(
        environment={"A": "1", "B": "1"},
        mounts=one.edits.mounts,
        devices=two.edits.devices,
        annotations={"x": "y"},
        cdi_devices=("v/c=a", "v/c=b"),
    )
    assert conflicts == ("variable B of v/two", "mount /m of v/two")


@pytest.mark.parametrize(
    "edits",
    [
        Edits(environment={"A=B": "1"}),
        Edits(environment={"": "1"}),
        Edits(environment={"A": "1\0"}),
        Edits(mounts=(HostPath(host_path="a", container_path="/b"),)),
        Edits(mounts=(HostPath(host_path="/a", container_path=""),)),
        Edits(devices=(HostPath(host_path="/dev/a\0", container_path="/dev/a"),)),
        Edits(devices=(HostPath(host_path="/dev/a", container_path="/dev/a", permissions="rx"),)),
    ],
)
def test_what_no_runtime_could_apply_is_refused(edits: Edits) -> None:
    with pytest.raises(Refused, match="expected"):
        check_edits(edits)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpu",
        "cpu",
        "kubernetes.io/gpu",
        "a.kubernetes.io/b",
        "vendor.example/",
        "/gpu",
        "a/b/c",
        "v/" + "x" * 64,
        "v/\n",
        "requests.v/x",
    ],
)
def test_names_of_no_extended_resource_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="is invalid"):
        check_resource_name(name)
    check_resource_name(GPU)


def test_unhealthy_devices_and_those_without_a_plugin_count_as_capacity_only() -> None:
    offers = {GPU: offer("a", "b", unhealthy=("c",)), "v/nic": offer("a", is_connected=False), "v/new": offer()}
    found = node_amounts(offers, ["v/old"])
    assert found.capacity == {"v/old": 0, GPU: 3, "v/nic": 1, "v/new": 0}
    assert found.allocatable == {"v/old": 0, GPU: 2, "v/nic": 0, "v/new": 0}


def test_health_is_told_per_container_and_unknown_without_a_report() -> None:
    ledger, made = Ledger(), pod(container("main", 3), container("plain"))
    ledger.hold("u", "main", GPU, holding("a", "b", "c"))
    (status,) = container_statuses(ledger, {GPU: offer("a", unhealthy=("b",))}, made)["main"]
    assert status.name == GPU
    assert [(each.resource_id, each.health) for each in status.resources] == [
        ("a", "Healthy"),
        ("b", "Unhealthy"),
        ("c", "Unknown"),
    ]
    assert list(container_statuses(ledger, {}, made)) == ["main"]


def test_pods_hear_of_devices_that_change_come_or_go() -> None:
    before, now = offer("a", "b", unhealthy=("c",)).devices, offer("a", "c", "d").devices
    assert changed_devices(before, now) == ("b", "c", "d")


def test_a_ledger_forgets_what_was_let_go() -> None:
    ledger = Ledger()
    ledger.hold("u", "main", GPU, holding("a"))
    assert ledger.users(GPU, ["a"]) == ("u",) and ledger.users("v/nic", ["a"]) == ()
    ledger.let_go("u", "main", "v/nic")
    assert "u" in ledger
    ledger.let_go("u", "main", GPU)
    assert "u" not in ledger and not ledger.forget("u")
