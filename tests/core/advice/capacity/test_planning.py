"""How many more of a manifest fit, what blocks the next one, and what if the cluster were another."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from allot.core.advice.explain.report import Reason
from allot.core.advice.planning.changes import (
    ChangeError,
    drained,
    nodes_like,
    nodes_named,
    with_assumed_capacity,
    with_objects,
    without_nodes,
)
from allot.core.advice.planning.copies import NoTemplate
from allot.core.advice.planning.manifest import ManifestError, read_manifest
from allot.core.advice.planning.outcome import outcome_of
from allot.core.advice.planning.reasons import why_none_fits
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.devices.node_files import NodeSet
from allot.devices.node_templates import objects_of
from allot.devices.simulation import GpuSettings
from allot.devices.simulation import Settings as DriverSettings

from .world import (
    Object,
    board,
    claim,
    device_class,
    gpu,
    gpus,
    held,
    model_is,
    node,
    plan,
    pod,
    request,
    slices,
    snapshot,
    template,
)


def _cluster(*sizes: int, cpu: str = "8") -> Snapshot:
    """Nodes n0, n1, ... with so many GPUs each."""
    parts: list[Any] = [device_class()]
    for number, size in enumerate(sizes):
        parts += [node(f"n{number}", cpu=cpu), slices(f"n{number}", gpus(size))]
    return snapshot(*parts)


def _train(count: int = 1, **spec: Any) -> list[Object]:
    return [template("t", request(count=count)), pod("train", templates=("t",), **spec)]


def _workload(kind: str, pod_spec: Object, api_version: str = "apps/v1", **spec: Any) -> Object:
    full = {"template": {"metadata": {"labels": {"app": "w"}}, "spec": pod_spec["spec"]}, **spec}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": full}


def _gang(minimum: int) -> Object:
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    metadata = {"name": "gang", "namespace": "default"}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": policy}


# --- what a copy is ---


def test_a_copy_of_a_pod_has_claims_of_its_own() -> None:
    assert plan(_cluster(4, 2), *_train()).scheduled == 6
    named = plan(_cluster(4, 2), claim("c", request(count=2)), pod("p", claims=("c",)))
    assert (named.scheduled, named.maximum.copies, named.maximum.is_exact) == (3, 3, True)


def test_a_claim_alone_is_a_copy() -> None:
    outcome = plan(_cluster(4, 3), claim("c", request(count=2)))
    assert (outcome.scheduled, outcome.maximum.copies) == (3, 3)


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [("Deployment", "apps/v1"), ("StatefulSet", "apps/v1"), ("ReplicaSet", "apps/v1"), ("Job", "batch/v1")],
)
def test_a_copy_of_a_workload_is_one_of_its_pods(kind: str, api_version: str) -> None:
    manifest = _workload(kind, pod("p", templates=("t",)), api_version, replicas=3, parallelism=3)
    assert plan(_cluster(4), template("t"), manifest).scheduled == 4
    assert read_manifest([manifest], _cluster(1)).name == f"pod of {kind} default/{manifest['metadata']['name']}"


def test_pods_of_a_workload_share_a_claim_that_they_name() -> None:
    manifest = _workload("Deployment", pod("p", cpu="3", claims=("c",)))
    outcome = plan(_cluster(1, 1), claim("c"), manifest)
    assert outcome.scheduled == 2, "both on the node of the claim"
    assert [share.node for share in outcome.placement] == ["n0"]
    assert (outcome.maximum.copies, outcome.maximum.is_exact) == (2, True)


def test_a_claim_is_reserved_for_no_more_pods_than_the_api_allows() -> None:
    cluster = snapshot(device_class(), node("n0", cpu="500"), slices("n0", gpus(1)))
    roomy = replace(cluster, objects=tuple(_with_pods(found) for found in cluster.objects))
    outcome = plan(roomy, claim("c"), _workload("Deployment", pod("p", claims=("c",))), limit=300)
    assert outcome.scheduled == api.RESERVED_FOR_MAX
    assert outcome.blocked is not None
    assert 'resourceclaim "c" is reserved for 256 consumers, which is the limit' in outcome.blocked.message


def _with_pods(found: Any) -> Any:
    if not isinstance(found, core_v1.Node):
        return found
    return read_node(found, "1000")


def read_node(found: core_v1.Node, pods: str) -> core_v1.Node:
    amounts = {**found.status.allocatable, "pods": type(found.status.allocatable["pods"]).parse(pods)}
    return replace(found, status=replace(found.status, allocatable=amounts))


def test_a_copy_of_a_pod_group_is_the_whole_gang() -> None:
    member = pod("p", templates=("t",), schedulingGroup={"podGroupName": "gang"})
    outcome = plan(_cluster(4, 4, 3), template("t", request(count=2)), _gang(2), member)
    assert (outcome.scheduled, outcome.maximum.copies, outcome.pods_per_copy) == (2, 2, 2)
    assert sum(share.pods for share in outcome.placement) == 4
    assert outcome.blocked is not None


def test_a_gang_of_a_job_has_as_many_pods_as_run_side_by_side() -> None:
    member = pod("p", templates=("t",), schedulingGroup={"podGroupName": "gang"})
    outcome = plan(_cluster(4, 4), template("t"), _gang(2), _workload("Job", member, "batch/v1", parallelism=4))
    assert (outcome.scheduled, outcome.pods_per_copy) == (2, 4)


def test_pods_of_a_copy_that_share_a_claim_are_on_one_node() -> None:
    manifest = [claim("shared", request(count=2)), template("own")]
    manifest += [pod(name, cpu="2", claims=("shared",), templates=("own",)) for name in ("a", "b")]
    outcome = plan(_cluster(9, 7, 3), *manifest)
    assert (outcome.maximum.copies, outcome.maximum.is_exact) == (3, True)
    assert outcome.scheduled == 2, "the first pod of the third copy is put where the second has no room"


def test_a_gang_shares_the_claim_of_its_group() -> None:
    group = _gang(3)
    group["spec"]["resourceClaims"] = [{"name": "t", "resourceClaimTemplateName": "t"}]
    member = pod("p", cpu="1", templates=("t",), schedulingGroup={"podGroupName": "gang"})
    outcome = plan(_cluster(4, 1), template("t", request(count=2)), group, member)
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (2, 2, True)
    assert {share.node: share.pods for share in outcome.placement} == {"n0": 6}


def test_different_pods_of_a_copy_must_all_fit() -> None:
    manifest = [template("one"), template("three", request(count=3))]
    manifest += [pod("small", templates=("one",)), pod("large", templates=("three",))]
    outcome = plan(_cluster(4, 4, 2), *manifest)
    assert (outcome.maximum.copies, outcome.maximum.is_exact) == (2, True)
    assert outcome.scheduled <= 2


def test_too_many_ways_to_combine_different_pods_give_a_bound() -> None:
    outcome = plan(
        _cluster(0, 0, cpu="40"), *(pod(name, cpu=cpu) for name, cpu in (("a", "1"), ("b", "2"), ("c", "3")))
    )
    assert outcome.maximum.copies >= outcome.scheduled > 0
    assert (outcome.maximum.is_exact, outcome.maximum.reason) == (
        False,
        "there are too many ways to combine different pods on nodes",
    )


def test_extended_resources_take_devices() -> None:
    found = device_class("gpu")
    found["spec"]["extendedResourceName"] = "example.com/gpu"
    cluster = snapshot(found, node("n0"), slices("n0", gpus(5)))
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"}},
    }
    outcome = plan(cluster, pod("p", containers=[container]))
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (2, 2, True)
    assert [(change.name, change.free_before, change.free_after) for change in outcome.classes] == [("gpu", 5, 1)]


def test_what_the_manifest_names_may_be_in_the_cluster() -> None:
    cluster = Snapshot((*_cluster(2).objects, *snapshot(template("t")).objects))
    assert plan(cluster, pod("p", templates=("t",))).scheduled == 2
    with pytest.raises(NoTemplate, match="default/t is neither in the manifest nor in the cluster"):
        plan(_cluster(2), pod("p", templates=("t",)))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ([], "nothing to plan with"),
        ([{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}}], "one pod per node"),
        ([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}], "spec.template is missing"),
        ([pod("p", schedulingGroup={"podGroupName": "gone"})], "PodGroup default/gone is neither"),
        ([_gang(3), pod("a"), pod("b", cpu="1")], "needs 3 pods, the manifest has 2 different ones"),
    ],
)
def test_a_manifest_that_cannot_be_planned_with_is_refused(manifest: list[Object], message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        read_manifest(manifest, _cluster(1))


# --- how many ---


def test_cpu_taints_and_cordons_count() -> None:
    assert plan(_cluster(8, cpu="3"), *_train(cpu="1")).scheduled == 3
    taint = [{"key": "k", "effect": "NoSchedule"}]
    parts = [
        device_class(),
        node("a", taints=taint),
        slices("a", gpus(2)),
        node("b", unschedulable=True),
        slices("b", gpus(2)),
    ]
    outcome = plan(snapshot(*parts), *_train())
    assert (outcome.scheduled, outcome.maximum.copies) == (0, 0)
    assert outcome.blocked is not None
    assert {reason.reason for reason in outcome.blocked.nodes} == {
        "node(s) had untolerated taint(s)",
        "node(s) were unschedulable",
    }


def test_what_blocks_the_next_copy_is_told_with_names() -> None:
    outcome = plan(_cluster(1), *_train())
    assert outcome.blocked is not None
    assert outcome.blocked.message == "0/1 nodes are available: 1 cannot allocate all claims."
    assert "in use by claim default/train-0-0-t" in outcome.blocked.explanation


def test_where_none_fits_the_cause_and_what_would_help_are_told() -> None:
    cluster = _cluster(2, 3)
    found = why_none_fits(cluster, read_manifest(_train(4), cluster))
    assert found is not None
    assert found.reason is Reason.TOO_FEW
    assert found.changes[0].text.startswith("ask for 3 devices instead of 4")
    gang = [template("t", request(count=4)), _gang(2), pod("p", templates=("t",))]
    of_gang = why_none_fits(cluster, read_manifest(gang, cluster))
    assert of_gang is not None
    assert of_gang.kind == "PodGroup"


def test_pods_that_fit_alone_but_not_together_have_no_cause_of_their_own() -> None:
    manifest = [template("t", request(count=2)), pod("a", templates=("t",)), pod("b", cpu="1", templates=("t",))]
    cluster = _cluster(3)
    assert plan(cluster, *manifest).scheduled == 0
    assert why_none_fits(cluster, read_manifest(manifest, cluster)) is None


def test_a_limit_ends_the_search() -> None:
    outcome = plan(_cluster(8), *_train(), limit=3)
    assert (outcome.scheduled, outcome.blocked, outcome.maximum.is_exact) == (3, None, False)


def test_the_scheduler_may_place_fewer_than_there_could_be() -> None:
    devices, counters = board("b0", 4)
    cluster = snapshot(device_class(), node("n0"), slices("n0", [*gpus(2), *devices], [counters]))
    expression = f'{model_is("A")} || device.attributes["gpu.example.com"].profile == "half"'
    manifest = [template("any", request("any", 1, expression)), template("a", request("a", 1, model_is("A")))]
    outcome = plan(cluster, *manifest, pod("p", templates=("any", "a")))
    assert outcome.maximum.copies == 2
    assert outcome.maximum.is_exact


def test_pods_that_keep_off_each_other_get_a_node_each() -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "w"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    outcome = plan(
        _cluster(4, 4), template("t"), _workload("Deployment", pod("p", templates=("t",), affinity=affinity))
    )
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (2, 2, True)


def test_where_nodes_depend_on_each_other_the_maximum_is_a_bound_unless_it_is_reached() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "w"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    parts: list[Any] = [device_class()]
    for name in ("a", "b"):
        parts += [node(name, labels={"zone": "z"}), slices(name, gpus(2))]
    outcome = plan(
        snapshot(*parts), template("t"), _workload("Deployment", pod("p", templates=("t",), affinity=affinity))
    )
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (1, 1, True)
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "w"}}
    parts += [node("c", labels={"zone": "y"}), slices("c", gpus(1))]
    pods = pod("p", templates=("t",), topologySpreadConstraints=[spread])
    outcome = plan(snapshot(*parts), template("t"), _workload("Deployment", pods))
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (3, 3, True)


def test_what_cannot_be_told_exactly_is_a_bound_with_the_reason() -> None:
    shared = gpu("shared", "S", allowMultipleAllocations=True, capacity={"units": {"value": "3"}})
    cluster = snapshot(device_class(), node("a"), node("b"), slices("net", [shared], allNodes=True))
    asked = request(capacity={"requests": {"units": "2"}})
    outcome = plan(cluster, template("t", asked), pod("p", templates=("t",)))
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (1, 2, False)
    assert outcome.maximum.reason == "several nodes can use the same devices"


def test_devices_of_several_nodes_give_a_bound_that_is_exact_when_it_is_reached() -> None:
    cluster = snapshot(device_class(), node("a"), node("b"), slices("net", gpus(3), allNodes=True))
    outcome = plan(cluster, *_train())
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (3, 3, True)


def test_planning_leaves_the_cluster_as_it_was() -> None:
    cluster = _cluster(4, 3)
    situation = WhatIfCluster(cluster)
    manifest = read_manifest(_train(2), cluster)
    first = outcome_of(situation, manifest, 100)
    assert outcome_of(situation, manifest, 100) == first
    assert not situation.cluster.pods
    assert not list(situation.claims.claims())
    assert not situation.claims.inventory.ledger.claims()


def test_what_is_free_and_fragmented_afterwards_is_told() -> None:
    outcome = plan(_cluster(4, 4), *_train(3))
    change = outcome.classes[0]
    assert (change.free_before, change.free_after) == (8, 2)
    assert (change.fragmentation_before, change.fragmentation_after) == (0.0, 1.0)


# --- other clusters ---


def test_more_nodes_like_one_have_its_devices_and_none_of_its_pods() -> None:
    base = _cluster(4)
    used = Snapshot((*base.objects, *snapshot(held("c", "n0", "gpu-0", pods=("p",)), pod("p", nodeName="n0")).objects))
    assert plan(used, *_train()).scheduled == 3
    more = with_objects(used, nodes_like(used, "n0", 2))
    assert plan(more, *_train()).scheduled == 3 + 8
    with pytest.raises(ChangeError, match="node gone is not in the cluster"):
        nodes_like(used, "gone", 1)
    with pytest.raises(ChangeError, match="n0-like-0 already exists"):
        with_objects(more, nodes_like(used, "n0", 1))


def test_a_cordoned_node_is_copied_as_one_that_takes_pods() -> None:
    cluster = snapshot(device_class(), node("n0", unschedulable=True), slices("n0", gpus(2)))
    assert plan(with_objects(cluster, nodes_like(cluster, "n0", 1)), *_train()).scheduled == 2


def test_nodes_are_removed_by_name_or_labels_with_all_that_is_on_them() -> None:
    parts: list[Any] = [device_class(), claim("free")]
    for number in range(3):
        parts += [node(f"n{number}", labels={"pool": "old" if number else "new"}), slices(f"n{number}", gpus(2))]
    parts += [held("c", "n1", "gpu-0", pods=("p",)), pod("p", nodeName="n1", claims=("c",))]
    cluster = snapshot(*parts)
    assert nodes_named(cluster, "n1") == ("n1",)
    assert nodes_named(cluster, "pool=old") == ("n1", "n2")
    for text in ("pool=gone", "n9"):
        with pytest.raises(ChangeError):
            nodes_named(cluster, text)
    rest = without_nodes(cluster, nodes_named(cluster, "pool=old"))
    assert [found.metadata.name for found in rest.of(core_v1.Node)] == ["n0"]
    assert not rest.of(core_v1.Pod)
    assert all(found.status.allocation is None for found in rest.of(api.ResourceClaim))
    assert plan(rest, *_train()).scheduled == 2


def test_pods_of_a_drained_node_find_another_place_first() -> None:
    base = _cluster(2, 3)
    running = [held("c", "n0", "gpu-0", pods=("p",)), pod("p", nodeName="n0", claims=("c",))]
    daemon = pod("d", nodeName="n0")
    daemon["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]
    done = drained(Snapshot((*base.objects, *snapshot(*running, daemon).objects)), ("n0",))
    assert [found.metadata.name for found in done.displaced] == ["p"]
    manifest = read_manifest(_train(), done.snapshot)
    outcome = outcome_of(WhatIfCluster(done.snapshot), manifest, 100, done.displaced)
    assert (outcome.moved, outcome.stranded, outcome.scheduled) == (1, (), 2)


def test_pods_of_a_drained_node_that_find_no_place_are_named_with_the_reason() -> None:
    base = _cluster(2, 1)
    running: list[Any] = []
    for number in range(2):
        running += [held(f"c{number}", "n0", f"gpu-{number}", pods=(f"p{number}",))]
        running += [pod(f"p{number}", nodeName="n0", claims=(f"c{number}",), priority=number)]
    done = drained(Snapshot((*base.objects, *snapshot(*running).objects)), ("n0",))
    manifest = read_manifest(_train(), done.snapshot)
    outcome = outcome_of(WhatIfCluster(done.snapshot), manifest, 100, done.displaced)
    assert (outcome.moved, outcome.scheduled) == (1, 0)
    assert [stranded.pod for stranded in outcome.stranded] == ["default/p0"], "the one of lower priority"
    assert "in use by claim default/c1" in outcome.stranded[0].blocked.explanation


def test_nodes_that_say_nothing_about_their_size_have_room() -> None:
    bare = node("n0")
    del bare["status"]
    cluster = snapshot(device_class(), bare, slices("n0", gpus(2)))
    roomy, silent = with_assumed_capacity(cluster)
    assert silent == 1
    assert plan(roomy, *_train(cpu="2")).scheduled == 2
    assert with_assumed_capacity(_cluster(1))[1] == 0


# --- nodes that are not there yet ---


@pytest.mark.parametrize("dynamic_mig", [False, True])
@pytest.mark.parametrize("profile", ["h100x8", "p4d.24xlarge", "a3-ultragpu-8g", "t4x2"])
def test_a_node_of_a_profile_gives_the_same_decisions_as_one_that_is_really_there(
    profile: str, dynamic_mig: bool
) -> None:
    """There: published by the drivers and registered by the agent, as `allot node --runtime simulated` does."""
    drivers = DriverSettings(gpu=GpuSettings(feature_gates={"DynamicMIG": dynamic_mig}))
    nodes = NodeSet(profile=profile, name="new", count=2, drivers=drivers)
    base = snapshot(node("small", cpu="2"))
    planned = with_objects(base, objects_of(nodes))
    there = with_objects(base, _really_there(nodes))
    request_ = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
    root = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
    for constraints in ([], root):
        manifest = [template("t", request_, constraints=constraints), pod("p", cpu="4", templates=("t",))]
        assert plan(planned, *manifest) == plan(there, *manifest)


def _really_there(nodes: NodeSet) -> list[Any]:
    profile, drivers = nodes.resolved()
    found: list[Any] = list(drivers.device_classes)
    for name in nodes.names:
        labels = {"kubernetes.io/hostname": name, **profile.labels}
        amounts = {"cpu": str(profile.cpus), "memory": f"{profile.memory_gib}Gi", "pods": "110"}
        registered = node(name, labels=labels)
        registered["status"]["allocatable"] = amounts
        published = []
        for driver, pool in drivers.pools(name):
            counters, devices = pool.counter_sets, pool.devices
            parts: list[dict[str, Any]] = [{"shared_counters": counters}] if counters else []
            size = 64 if counters else 128
            parts += [{"devices": devices[first : first + size]} for first in range(0, len(devices), size)]
            for number, part in enumerate(parts):
                of_pool = api.ResourcePool(name=pool.name, generation=1, resource_slice_count=len(parts))
                spec = api.ResourceSliceSpec(driver=driver, pool=of_pool, node_name=name, **part)
                published.append(api.ResourceSlice(metadata=_metadata(f"{name}-{driver}-{number}"), spec=spec))
        found += [*snapshot(registered).objects, *published]
    return found


def _metadata(name: str) -> Any:
    return api.ResourceSlice().metadata.__class__(name=name)
