"""What hangs on what, from pods to devices and back; and every single device with what it is."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.tree import Branch, claim_tree, device_tree, node_tree, pod_tree
from allot.core.advice.usage.listing import list_devices, list_pools
from allot.core.advice.usage.published import State, published_pools
from allot.core.cel.selector import compile_selector
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

from .world import board, claim, device_class, gpu, gpus, held, model_is, node, pod, situation, slices


def _walk(branch: Branch) -> Iterator[Branch]:
    yield branch
    for child in branch.children:
        yield from _walk(child)


def _named(branch: Branch, kind: str) -> list[str]:
    return [found.name for found in _walk(branch) if found.kind == kind]


def test_a_pod_leads_to_its_devices() -> None:
    found = situation(
        node("n1"),
        slices("n1", [gpu("gpu-0", "A", capacity={"memory": {"value": "80Gi"}})]),
        held("c", "n1", "gpu-0", pods=("p",)),
        pod("p", claims=("c",), nodeName="n1"),
    )
    tree = pod_tree(found, found.all(core_v1.Pod)[0])
    assert tree.facts["node"] == "n1"
    assert [(branch.kind, branch.name) for branch in _walk(tree)] == [
        ("pod", "default/p"),
        ("container", "c"),
        ("claim", "default/c"),
        ("request", "gpu"),
        ("device", "gpu.example.com/n1/gpu-0"),
    ]
    device = list(_walk(tree))[-1]
    assert (device.facts["model"], device.facts["memory"]) == ("A", "80Gi")
    assert device.facts["cdi"] == "unknown", "only the node knows"


def test_the_cdi_name_is_told_where_the_driver_s_way_is_known() -> None:
    published = slices("n1", gpus(1))
    published[0]["spec"]["driver"] = "gpu.nvidia.com"
    taken = held("c", "n1", "gpu-0")
    taken["status"]["allocation"]["devices"]["results"][0]["driver"] = "gpu.nvidia.com"
    found = situation(published, taken)
    tree = claim_tree(found, found.all(api.ResourceClaim)[0])
    assert list(_walk(tree))[-1].facts["cdi"] == "k8s.gpu.nvidia.com/claim=uid-c-gpu-0"


def test_a_claim_that_is_missing_or_not_made_yet_is_a_problem() -> None:
    found = situation(pod("p", claims=("gone",), templates=("t",)))
    tree = pod_tree(found, found.all(core_v1.Pod)[0])
    assert {branch.problem for branch in _walk(tree) if branch.kind == "claim"} == {
        "the claim does not exist",
        "the claim has not been created yet",
    }


def test_a_claim_that_went_with_its_ended_pod_is_no_problem() -> None:
    ended = pod("p", templates=("t",))
    (entry,) = ended["spec"]["resourceClaims"]
    ended["status"] = {
        "phase": "Succeeded",
        "resourceClaimStatuses": [{"name": entry["name"], "resourceClaimName": "made"}],
    }
    found = situation(ended)
    (told,) = (branch for branch in _walk(pod_tree(found, found.all(core_v1.Pod)[0])) if branch.kind == "claim")
    assert (told.name, told.facts["state"], told.problem) == ("made", "deleted, as the pod has ended", "")


def test_a_claim_that_two_containers_share_is_told_once() -> None:
    shared = pod("p", claims=("c",))
    container = shared["spec"]["containers"][0]
    shared["spec"]["containers"] = [container, {**container, "name": "d"}]
    found = situation(slices("n1", gpus(1)), held("c", "n1", "gpu-0", pods=("p",)), shared)
    tree = pod_tree(found, found.all(core_v1.Pod)[0])
    assert len(_named(tree, "device")) == 1
    assert tree.children[1].children[0].facts == {"shared": "see above"}


def test_a_pod_that_waits_says_why() -> None:
    waiting = pod("p")
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    waiting["status"] = {"conditions": [condition]}
    found = situation(waiting)
    assert pod_tree(found, found.all(core_v1.Pod)[0]).problem == "0/1 nodes are available"


def test_a_device_that_the_node_finds_unhealthy_is_a_problem_of_its_container() -> None:
    sick = pod("p", claims=("c",))
    health = {"resourceID": "k8s.gpu.example.com/claim=gpu-0", "health": "Unhealthy", "message": "too hot"}
    status = {"name": "c", "allocatedResourcesStatus": [{"name": "claim:c", "resources": [health]}]}
    sick["status"] = {"containerStatuses": [status]}
    found = situation(sick, claim("c"))
    container = pod_tree(found, found.all(core_v1.Pod)[0]).children[0]
    assert container.problem == "k8s.gpu.example.com/claim=gpu-0 is unhealthy: too hot"


def test_constraints_configuration_and_alternatives_are_told() -> None:
    wanted = claim("c", {"name": "g", "firstAvailable": [{"name": "a", "deviceClassName": "x", "count": 2}, {"name": "b", "deviceClassName": "y"}]}, constraints=[{"matchAttribute": "example.com/root"}])  # fmt: skip
    result = {"request": "g/a", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    config = {"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {"kind": "Sharing"}}}
    wanted["status"] = {"allocation": {"devices": {"results": [result], "config": [config]}}}
    found = situation(wanted)
    tree = claim_tree(found, found.all(api.ResourceClaim)[0])
    asked, constraint, configured = tree.children
    assert asked.facts == {"asks for": "2 of x or 1 of y", "chosen": "a"}
    assert asked.children[0].problem == "the device is no longer published"
    assert constraint.facts == {"must be": "the same", "for": "all requests"}
    assert configured.facts["parameters"] == '{"kind":"Sharing"}'


def test_what_a_driver_says_against_a_device_is_told() -> None:
    taken = held("c", "n1", "gpu-0")
    condition = {"type": "Ready", "status": "False", "reason": "Broken", "message": "fell off the bus"}
    taken["status"]["devices"] = [
        {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "conditions": [condition]}
    ]
    found = situation(slices("n1", gpus(1)), taken)
    tree = claim_tree(found, found.all(api.ResourceClaim)[0])
    assert list(_walk(tree))[-1].problem == "not ready: fell off the bus"


def test_a_device_leads_to_its_holders_and_watchers() -> None:
    watcher = held("watcher", "n1", "gpu-0", adminAccess=True)
    found = situation(slices("n1", gpus(1)), held("c", "n1", "gpu-0", pods=("p",)), watcher)
    pool = published_pools(found)[0]
    tree = device_tree(found, pool, pool.entries[0])
    assert [(branch.name, dict(branch.facts)) for branch in tree.children] == [
        ("default/c", {"holds": "all of it"}),
        ("default/watcher", {"access": "admin"}),
    ]
    assert _named(tree, "pod") == ["default/p"]


def test_a_node_has_its_devices_and_its_other_pods() -> None:
    found = situation(node("n1"), slices("n1", gpus(2)), slices("n2", gpus(1)), pod("plain", nodeName="n1"))
    tree = node_tree(found, "n1")
    assert _named(tree, "device") == ["gpu.example.com/n1/gpu-0", "gpu.example.com/n1/gpu-1"]
    assert _named(tree, "pod") == ["default/plain"]


# --- lists ---


def test_every_device_is_listed_with_its_classes_state_and_holders() -> None:
    devices, counters = board("b0")
    found = situation(
        slices("n1", [*gpus(2), *devices], [counters]),
        device_class(),
        device_class("a", model_is("A")),
        held("c", "n1", "gpu-0"),
        held("d", "n1", "b0-half-0"),
    )
    rows = {row.device: row for row in list_devices(found).devices}
    assert (rows["gpu-0"].state, rows["gpu-0"].holders) == (State.IN_USE, ("default/c",))
    assert (rows["gpu-1"].state, rows["gpu-1"].classes) == (State.FREE, ("a", "gpu"))
    assert rows["b0-whole-0"].state is State.BLOCKED
    assert rows["b0-half-2"].state is State.FREE
    free = {row.device for row in list_devices(found, only_free=True).devices}
    assert free == {"gpu-1", "b0-half-2", "b0-quarter-2", "b0-quarter-3"}


def test_a_selector_takes_some_and_what_it_fails_on_is_told() -> None:
    found = situation(slices("n1", [gpu("gpu-0", "A"), gpu("gpu-1", "B"), {"name": "bare"}]))
    listed = list_devices(found, compile_selector(model_is("B")))
    assert [row.device for row in listed.devices] == ["gpu-1"]
    assert len(listed.failures) == 1
    assert "gpu.example.com/n1/bare" in listed.failures[0]


def test_pools_are_listed_with_their_generation_and_completeness() -> None:
    devices, counters = board("b0")
    published = slices("n1", devices, [counters])
    rows = list(list_pools(situation(published[:1])))
    assert [(row.pool, row.generation, row.slices, row.slices_expected, row.devices) for row in rows] == [
        ("n1", 1, 1, 2, 7)
    ]
