"""Pools that are made on demand for ComputeClasses: which machines, and what their nodes are."""

from __future__ import annotations

from typing import Any

from allot.core.autoscaling.classes import Classes
from allot.core.model.codec import decode_served
from allot.core.model.compute_classes import CLASS_LABEL, ComputeClass
from allot.devices.class_pools import offers_of
from allot.devices.pool_files import PoolSpec, Reservation, as_pool


def offers(*priorities: dict[str, Any], name: str = "c", **spec: Any) -> list[PoolSpec]:
    """What can be made for a class."""
    whole = {"nodePoolAutoCreation": {"enabled": True}, "priorities": list(priorities), **spec}
    found = decode_served({"metadata": {"name": name}, "spec": whole}, ComputeClass)
    made = list(offers_of(found, {"paid": Reservation(machine="a3-highgpu-8g", count=2)}))
    classes = Classes([found])
    for pool in classes.ranked([as_pool(each) for each in made]):
        # What is offered for a priority is of it.
        assert pool.standing is not None
        assert not pool.barred
        assert pool.standing.index is not None or spec.get("whenUnsatisfiable") == "ScaleUpAnyway"
    return made


def test_a_machine_for_each_that_fits_a_priority() -> None:
    """Of the family, with the GPUs, large enough."""
    assert [each.machine for each in offers({"machineFamily": "g2", "gpu": {"type": "nvidia-l4", "count": 2}})] == [
        "g2-standard-24"
    ]
    assert [each.machine for each in offers({"machineType": "a2-highgpu-2g"})] == ["a2-highgpu-2g"]
    assert [each.machine for each in offers({"minCores": 16})] == ["e2-standard-16", "e2-standard-32"]
    assert [each.machine for each in offers({"tpu": {"type": "tpu-v6e-slice", "count": 4}})] == ["ct6e-standard-4t"]
    assert not offers({"machineFamily": "z9"})
    assert not offers({"nodepools": ["mine"]})
    assert not offers({"machineFamily": "g2"}, nodePoolAutoCreation={"enabled": False})


def test_names_labels_and_taints_are_as_gke_has_them() -> None:
    """One that is alike has the same name, so that it is found again."""
    config = {"nodeLabels": {"team": "a"}, "taints": [{"key": "dedicated", "value": "a", "effect": "NoSchedule"}]}
    priority = {"machineType": "g2-standard-8", "spot": True, "location": {"zones": ["us-a"]}}
    (made,) = offers(priority, nodePoolConfig=config)
    assert made.name.startswith("nap-g2-standard-8-spot-gpu1-")
    assert offers(priority, nodePoolConfig=config) == [made]
    node = as_pool(made).template.node
    labels = node.metadata.labels
    expected = {
        CLASS_LABEL: "c",
        "cloud.google.com/gke-nodepool": made.name,
        "cloud.google.com/gke-spot": "true",
        "cloud.google.com/machine-family": "g2",
        "topology.kubernetes.io/zone": "us-a",
        "team": "a",
    }
    assert expected.items() <= labels.items()
    assert [f"{each.key}={each.value}" for each in node.spec.taints] == [
        "dedicated=a",
        "nvidia.com/gpu=present",
        f"{CLASS_LABEL}=c",
    ]
    assert made.annotations == {"ccc_priority_index": "0"}


def test_reservations_are_machines_that_are_kept() -> None:
    """So many, and only for those who name them; one that is not there offers nothing."""
    specific = {"affinity": "Specific", "specific": [{"name": "paid"}, {"name": "none"}]}
    (made,) = offers({"machineFamily": "a3", "reservations": specific})
    assert (made.machine, made.max, made.stock) == ("a3-highgpu-8g", 2, 2)
    assert as_pool(made).template.node.metadata.labels["cloud.google.com/reservation-name"] == "paid"
    assert not offers({"machineFamily": "g2", "reservations": specific})


def test_any_machine_of_the_default_family_where_pods_must_not_wait() -> None:
    """After all priorities."""
    made = offers({"machineType": "g2-standard-4"}, whenUnsatisfiable="ScaleUpAnyway")
    assert [each.machine for each in made[:2]] == ["g2-standard-4", "e2-standard-2"]
    assert made[1].annotations == {"ccc_priority_index": "ccc_scale_up_anyway"}


def test_nodes_of_the_class_called_default_are_for_all() -> None:
    """They have neither its label nor its taint."""
    (made,) = offers({"machineType": "n2-standard-4"}, name="default")
    node = as_pool(made).template.node
    assert CLASS_LABEL not in node.metadata.labels
    assert not node.spec.taints
