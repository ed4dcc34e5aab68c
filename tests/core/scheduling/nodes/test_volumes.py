"""Volumes restrict nodes, with kube-scheduler's words."""

from __future__ import annotations

from typing import Any

from allot.core.model import core_v1, storage_v1
from allot.core.model.codec import decode
from allot.core.model.meta import ObjectMeta
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plan import Placement

from ..cluster_world import ZONE, ask, cluster, node, place, pod, refused, said

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def volume_claim(name: str, volume: str = "", storage_class: str = "", **more: Any) -> core_v1.PersistentVolumeClaim:
    spec: dict[str, Any] = {"volumeName": volume, "storageClassName": storage_class, **more.pop("spec", {})}
    metadata = {"name": name, "namespace": "ns", "annotations": BOUND if volume else {}, **more.pop("metadata", {})}
    return decode({"metadata": metadata, "spec": spec, **more}, core_v1.PersistentVolumeClaim).object


def volume(name: str, on: str = "", **more: Any) -> core_v1.PersistentVolume:
    spec: dict[str, Any] = {"capacity": {"storage": "10Gi"}, **more.pop("spec", {})}
    if on:
        match = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}}
    return decode({"metadata": {"name": name, **more}, "spec": spec}, core_v1.PersistentVolume).object


def storage_class(name: str, mode: str, **more: Any) -> storage_v1.StorageClass:
    return decode({"metadata": {"name": name}, "volumeBindingMode": mode, **more}, storage_v1.StorageClass).object


def using(name: str, *claims: str, **spec: Any) -> core_v1.Pod:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return pod(name, volumes=volumes, **spec)


def two_nodes() -> Cluster:
    return cluster(node("n1", labels={ZONE: "z1"}), node("n2", labels={ZONE: "z2"}))


def test_a_claim_that_does_not_exist() -> None:
    found = refused(two_nodes(), using("p", "c"))
    assert found.message.startswith('0/2 nodes are available: persistentvolumeclaim "c" not found. preemption: ')
    assert found.plugins == {"VolumeRestrictions"}


def test_claims_that_cannot_be_used() -> None:
    made = two_nodes()
    for claim, text in (
        (volume_claim("c"), "pod has unbound immediate PersistentVolumeClaims"),
        (
            volume_claim("c", "v", status={"phase": "Lost"}),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        ),
        (
            volume_claim("c", "v", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": BOUND}),
            'persistentvolumeclaim "c" is being deleted',
        ),
    ):
        made.volumes.put_claim(claim)
        assert said(made, using("p", "c")) == f"0/2 nodes are available: {text}."


def test_an_ephemeral_volume_waits_for_its_claim_and_takes_no_other() -> None:
    made = two_nodes()
    asked = pod(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}])
    assert said(made, asked) == (
        '0/2 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v".'
    )
    made.volumes.put_claim(volume_claim("p-v", "v"))
    assert said(made, asked) == ("0/2 nodes are available: PVC ns/p-v was not created for pod ns/p (pod is not owner).")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    metadata = {"ownerReferences": [owner], "annotations": BOUND}
    made.volumes.put_claim(volume_claim("p-v", "v", metadata=metadata))
    made.volumes.put_volume(volume("v"))
    assert ask(made, asked).placements


def test_a_pod_goes_where_its_volume_is() -> None:
    made = two_nodes()
    made.volumes.put_claim(volume_claim("c", "v"))
    assert said(made, using("p", "c")) == (
        "0/2 nodes are available: 2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)."
    )
    made.volumes.put_volume(volume("v", on="n2"))
    assert place(made, using("p", "c")) == "n2"
    made.volumes.put_volume(volume("v", on="n3"))
    assert said(made, using("q", "c")) == (
        "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
    )


def test_a_volume_of_a_zone_is_used_there() -> None:
    made = two_nodes()
    made.volumes.put_claim(volume_claim("c", "v"))
    made.volumes.put_volume(volume("v", labels={"failure-domain.beta.kubernetes.io/zone": "z2__z3"}))
    assert place(made, using("p", "c")) == "n2"
    made.delete_node("n2")
    assert said(made, using("q", "c")) == "0/1 nodes are available: 1 node(s) had no available volume zone."


def test_a_claim_that_waits_for_its_pod_finds_a_volume_or_one_is_made() -> None:
    made = two_nodes()
    made.volumes.put_class(storage_class("local", "WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner"))
    claim = volume_claim("c", storage_class="local", spec={"resources": {"requests": {"storage": "5Gi"}}})
    made.volumes.put_claim(claim)
    assert said(made, using("p", "c")) == (
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    )
    made.volumes.put_volume(volume("v", on="n2", spec={"storageClassName": "local"}))
    assert place(made, using("p", "c")) == "n2"
    made.volumes.put_claim(
        volume_claim("big", storage_class="local", spec={"resources": {"requests": {"storage": "50Gi"}}})
    )
    assert ask(made, using("q", "big")).refusals
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]
    made.volumes.put_class(storage_class("local", "WaitForFirstConsumer", provisioner="x", allowedTopologies=topology))
    assert place(made, using("q", "big")) == "n1"


def test_a_claim_for_one_pod_has_one_user() -> None:
    made = two_nodes()
    made.volumes.put_claim(volume_claim("c", "v", spec={"accessModes": ["ReadWriteOncePod"]}))
    made.volumes.put_volume(volume("v"))
    place(made, using("p", "c"))
    assert said(made, using("q", "c")) == (
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod."
    )


def test_a_disk_has_one_writer_per_node() -> None:
    made = cluster(node("n1"))

    def disk(name: str, **source: Any) -> core_v1.Pod:
        return pod(name, volumes=[{"name": "d", **source}])

    place(made, disk("p", gcePersistentDisk={"pdName": "d"}))
    place(made, disk("q", awsElasticBlockStore={"volumeID": "d"}))
    place(made, disk("r", rbd={"monitors": ["a", "b"], "image": "i", "pool": "o"}))
    place(made, disk("s", iscsi={"iqn": "d", "readOnly": True}))
    text = "0/1 nodes are available: 1 node(s) had no available disk."
    assert said(made, disk("x", gcePersistentDisk={"pdName": "d"})) == text
    assert said(made, disk("x", awsElasticBlockStore={"volumeID": "d"})) == text
    assert said(made, disk("x", rbd={"monitors": ["b"], "image": "i", "pool": "o"})) == text
    assert said(made, disk("x", iscsi={"iqn": "d"})) == text
    assert ask(made, disk("x", iscsi={"iqn": "d", "readOnly": True})).placements
    assert ask(made, disk("x", gcePersistentDisk={"pdName": "other"})).placements


def test_a_driver_has_a_number_of_volumes_on_a_node() -> None:
    made = cluster(node("n1"))
    drivers = [{"name": "csi", "nodeID": "n1", "allocatable": {"count": 1}}]
    made.volumes.put_csi_node(
        decode({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}, storage_v1.CSINode).object
    )
    for name in ("c", "d"):
        made.volumes.put_claim(volume_claim(name, f"v-{name}"))
        made.volumes.put_volume(volume(f"v-{name}", spec={"csi": {"driver": "csi", "volumeHandle": name}}))
    place(made, using("p", "c"))
    assert ask(made, using("q", "c")).placements
    assert said(made, using("q", "d")) == "0/1 nodes are available: 1 node(s) exceed max volume count."


# --- decisions ---


def waiting(name: str, size: str = "5Gi", **more: Any) -> core_v1.PersistentVolumeClaim:
    metadata = {"uid": f"uid-{name}", "resourceVersion": "5", **more.pop("metadata", {})}
    spec = {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]}
    return volume_claim(name, storage_class="wait", metadata=metadata, spec=spec, **more)


def free(name: str, on: str = "", **more: Any) -> core_v1.PersistentVolume:
    spec = {"storageClassName": "wait", "accessModes": ["ReadWriteOnce"], **more.pop("spec", {})}
    return volume(name, on, spec=spec, resourceVersion="5", **more)


def placed(made: Cluster, asked: core_v1.Pod) -> Placement:
    (found,) = ask(made, asked).placements
    made.assume(found)
    return found


def test_a_placement_says_which_volumes_are_bound_and_which_are_made() -> None:
    made = two_nodes()
    made.volumes.put_class(storage_class("wait", "WaitForFirstConsumer", provisioner="x"))
    for claim in (waiting("small", "1Gi"), waiting("large", "100Gi")):
        made.volumes.put_claim(claim)
    made.volumes.put_volume(free("v10", on="n2"))
    found = placed(made, using("p", "large", "small", nodeSelector={ZONE: "z2"}))
    steps = {step.claim.metadata.name: step.volume and step.volume.metadata.name for step in found.volumes}
    assert steps == {"small": "v10", "large": None}


def test_what_one_pod_was_given_another_does_not_get() -> None:
    made = two_nodes()
    made.volumes.put_class(storage_class("wait", "WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner"))
    made.volumes.put_claim(waiting("one"))
    made.volumes.put_claim(waiting("two"))
    made.volumes.put_volume(free("v", on="n2"))
    first = placed(made, using("p", "one"))
    assert first.node == "n2"
    refused(made, using("q", "two"))
    # Another pod with the same claim goes to the same volume.
    second = placed(made, using("r", "one"))
    assert (second.node, second.volumes[0].volume) == ("n2", first.volumes[0].volume)
    made.forget(second)
    made.forget(first)
    assert placed(made, using("q", "two")).node == "n2"


def test_a_claim_for_which_a_node_was_chosen_is_made_there() -> None:
    made = two_nodes()
    made.volumes.put_class(storage_class("wait", "WaitForFirstConsumer", provisioner="x"))
    made.volumes.put_claim(waiting("c"))
    first = placed(made, using("p", "c", nodeSelector={ZONE: "z2"}))
    assert first.volumes[0].volume is None
    assert placed(made, using("q", "c")).node == "n2"
    made.volumes.forget(first)
    made.volumes.put_claim(waiting("c", metadata={"annotations": {"volume.kubernetes.io/selected-node": "n1"}}))
    assert placed(made, using("r", "c")).node == "n1"


def test_a_volume_that_is_held_for_the_claim_is_taken_before_a_smaller_one() -> None:
    made = two_nodes()
    made.volumes.put_class(storage_class("wait", "WaitForFirstConsumer", provisioner="x"))
    made.volumes.put_claim(waiting("c"))
    made.volumes.put_volume(free("small"))
    held = {"capacity": {"storage": "50Gi"}, "claimRef": {"namespace": "ns", "name": "c"}, "storageClassName": "other"}
    made.volumes.put_volume(free("held", spec=held))
    (step,) = placed(made, using("p", "c")).volumes
    assert step.volume is not None and step.volume.metadata.name == "held"


def test_how_far_a_binding_is() -> None:
    made = two_nodes()
    made.volumes.put_class(storage_class("wait", "WaitForFirstConsumer", provisioner="x"))
    made.volumes.put_claim(waiting("c"))
    found = placed(made, using("p", "c", nodeSelector={ZONE: "z2"}))
    (step,) = found.volumes
    written = ObjectMeta(resource_version="6")

    def state(claim: core_v1.PersistentVolumeClaim | None = None, at: str = "n2") -> tuple[str, str]:
        if claim is not None:
            made.volumes.put_claim(claim)
        answer = made.volumes.binding(step, made.nodes.get(at), written)
        return answer.binding.value, answer.message

    chosen = {"uid": "uid-c", "resourceVersion": "6", "annotations": {"volume.kubernetes.io/selected-node": "n2"}}
    assert state() == ("pending", "")
    assert state(waiting("c", metadata=chosen)) == ("pending", "")
    dropped = waiting("c", metadata={"resourceVersion": "7"})
    assert state(dropped) == ("failure", 'provisioning failed for PVC "c"')
    bound = {**chosen, "resourceVersion": "8", "annotations": {**chosen["annotations"], **BOUND}}  # type: ignore[dict-item]
    made.volumes.put_volume(free("v", on="n1"))
    complete = volume_claim("c", "v", "wait", metadata=bound)
    assert state(complete) == ("failure", 'pv "v" node affinity doesn\'t match node "n2"')
    made.volumes.put_volume(free("v", on="n2"))
    assert state() == ("success", "")
    assert state(at="gone")[0] == "failure"
    made.volumes.delete_claim("ns", "c")
    assert state() == ("failure", 'failed to check binding: persistentvolumeclaim "c" not found')
