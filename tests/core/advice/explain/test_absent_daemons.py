"""What is missing on a node because a daemon does not run there, or does nothing: labels, runtimes, devices, and who cleans up after them."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation
from core.advice.explain.clusters import (
    DRIVER,
    Object,
    asks,
    claim,
    device_class,
    event,
    explained,
    gpus,
    holding,
    node,
    pod,
    pool,
    running,
    snapshot,
    templated,
    wanting,
)

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
PCI = "feature.node.kubernetes.io/pci-10de.present"
NFD = "registry.k8s.io/nfd/node-feature-discovery:v0.18.0"
READY = [{"type": "Ready", "status": "True"}]


def daemon_set(name: str, image: str = "x", **spec: Any) -> Object:
    """A DaemonSet whose controller has seen it."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": image}], **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        "status": {"observedGeneration": 1},
    }


def daemon(set_: str, on: str, image: str = "x", **status: Any) -> Object:
    """A pod of a DaemonSet on a node."""
    made = pod(f"{set_}-{on}", nodeName=on, status={"phase": "Running", "conditions": READY, **status})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": set_, "uid": f"uid-{set_}", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    made["spec"]["containers"][0]["image"] = image
    return made


def why(name: str, *objects: Object | list[Object]) -> Explanation:
    """Why a DaemonSet does not run."""
    return Explainer(snapshot(*objects)).workload("ds", "default", name)


CRASHES: Object = {
    "conditions": [],
    "containerStatuses": [
        {
            "name": "main",
            "image": "x",
            "imageID": "x",
            "ready": False,
            "restartCount": 7,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}},
        }
    ],
}


# --- labels ---


@pytest.mark.parametrize("key", [PCI, "nvidia.com/gpu.present", "amd.com/gpu", "gpu.intel.com/device-id"])
def test_a_label_that_a_labeller_sets_is_missing_where_the_labeller_is_kept_away(key: str) -> None:
    plugin = daemon_set("plugin", nodeSelector={key: "true"}, tolerations=[{"operator": "Exists"}])
    found = why("plugin", node("gpu-1", taints=[TAINT]), node("web-1"), plugin, daemon_set("nfd-worker", NFD))
    assert "DaemonSet default/nfd-worker, which sets such labels, skips node gpu-1: it has taint gpu=yes" in found.cause
    assert found.changes[0].text == "tolerate taint gpu=yes:NoSchedule in DaemonSet default/nfd-worker"


def test_a_toleration_of_another_value_is_shown_beside_the_taint() -> None:
    near = [{"key": "gpu", "operator": "Equal", "value": "no", "effect": "NoSchedule"}]
    plugin = daemon_set("plugin", nodeSelector={PCI: "true"})
    found = why("plugin", node("gpu-1", taints=[TAINT]), plugin, daemon_set("nfd", NFD, tolerations=near))
    assert "that it does not tolerate (it tolerates value no)" in found.cause


def test_a_labeller_that_crashes_on_the_node_is_named_with_its_pod() -> None:
    plugin = daemon_set("plugin", nodeSelector={PCI: "true"})
    found = why("plugin", node("gpu-1"), plugin, daemon_set("nfd", NFD), daemon("nfd", "gpu-1", NFD, **CRASHES))
    assert (
        "pod default/nfd-gpu-1 of DaemonSet default/nfd, which sets such labels, does not run on node gpu-1"
        in found.cause
    )
    assert found.changes[0].text.startswith("fix pod default/nfd-gpu-1, so that it labels node gpu-1: ")


def test_no_labeller_is_blamed_that_runs_everywhere_or_for_labels_of_others() -> None:
    gpu_node = node("gpu-1", taints=[TAINT])
    plugin = daemon_set("plugin", nodeSelector={PCI: "true"})
    tolerant = daemon_set("nfd", NFD, tolerations=[{"operator": "Exists"}])
    assert "which sets such labels" not in why("plugin", gpu_node, plugin, tolerant).cause
    other = daemon_set("plugin", nodeSelector={"acme.io/rack": "7"})
    assert "which sets such labels" not in why("plugin", gpu_node, other, daemon_set("nfd", NFD)).cause


def test_one_of_several_labels_is_enough_and_so_all_are_named() -> None:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]} for key in (PCI, "a/b")]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    found = why("plugin", node("gpu-1"), daemon_set("plugin", affinity=affinity))
    assert f"lacks label {PCI}=true or a/b=true of its node affinity" in found.cause


def test_a_driver_without_devices_is_traced_to_the_labels_that_its_nodes_lack() -> None:
    driver = daemon_set("nvidia-dra-driver", nodeSelector={PCI: "true"}, tolerations=[{"operator": "Exists"}])
    found = explained(
        device_class(), node("gpu-1", taints=[TAINT]), driver, daemon_set("nfd", NFD), templated("train", asks())
    )
    assert "DaemonSet default/nvidia-dra-driver skips every node" in found.cause
    assert "DaemonSet default/nfd, which sets such labels, skips node gpu-1" in found.cause
    assert found.changes[0].text == "tolerate taint gpu=yes:NoSchedule in DaemonSet default/nfd"


def test_nodes_without_hardware_do_not_say_why_a_driver_runs_nowhere() -> None:
    driver = daemon_set("nvidia-dra-driver", nodeSelector={"gpu": "yes"})
    machines = [node("web-1"), node("big-1", labels={"gpu": "yes"}, taints=[{"key": "team", "effect": "NoSchedule"}])]
    found = explained(device_class(), machines, driver, templated("train", asks()))
    assert "skips every node: node big-1 has taint team:NoSchedule that it does not tolerate" in found.cause
    assert found.changes[0].text == "tolerate taint team:NoSchedule in DaemonSet default/nvidia-dra-driver"


# --- runtimes ---


@pytest.mark.parametrize(
    ("handler", "installer"),
    [("nvidia", "nvidia-container-toolkit"), ("kata-qemu", "kata-deploy"), ("runsc", "gvisor")],
)
def test_a_runtime_is_missing_where_its_installer_is_kept_away(handler: str, installer: str) -> None:
    said = f'Failed to create pod sandbox: rpc error: no runtime for "{handler}" is configured'
    found = explained(
        node("n", labels={"install": "no"}),
        daemon_set(installer, nodeSelector={"install": "yes"}),
        pod("train", nodeName="n"),
        event("train", "FailedCreatePodSandBox", said),
    )
    assert (
        f"DaemonSet default/{installer}, which installs it, skips the node: it lacks label install=yes" in found.cause
    )
    assert "(it is no)" in found.cause
    assert found.changes[0].text == "label node n with install=yes"


# --- drivers that publish nothing ---

LABELLED = {"nvidia.com/gpu.count": "1"}


def silent_node(**more: Any) -> list[Object]:
    """Of two nodes with a ready driver, the second has published nothing; the devices of the first are in use."""
    return [
        device_class(),
        node("a", labels=LABELLED),
        node("b", **{"labels": LABELLED, **more}),
        pool("a", gpus(1)),
        daemon("nvidia-dra-driver", "a"),
        daemon("nvidia-dra-driver", "b"),
        claim("held", asks(), status=holding("a", "gpu-0", users=("other",))),
        running("other", "a", "held"),
        templated("train", asks()),
    ]


def flat(parts: list[Any]) -> list[Object]:
    return [each for part in parts for each in (part if isinstance(part, list) else [part])]


def test_a_ready_driver_that_publishes_nothing_comes_before_devices_in_use() -> None:
    found = explained(flat(silent_node()))
    assert (
        "node b publishes no devices of class gpu (the driver's pod default/nvidia-dra-driver-b is ready there"
        in found.cause
    )
    assert found.changes[0].text.endswith("of node b: kubectl logs -n default nvidia-dra-driver-b")
    assert found.changes[0].verified
    assert found.changes[0].node == "b"


def test_a_version_that_differs_from_that_of_a_node_with_devices_is_a_hint() -> None:
    parts = flat(silent_node(labels={**LABELLED, "nvidia.com/driver-version": "9.1"}))
    parts[1] = node("a", labels={**LABELLED, "nvidia.com/driver-version": "8.0"})
    text = explained(parts).changes[0].text
    assert text.endswith(
        "(label nvidia.com/driver-version is 9.1 there, and 8.0 on node a, whose devices are published)"
    )


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.count": "0"}, {"amd.com/gpu.count": "2"}])
def test_a_node_that_does_not_claim_to_have_the_devices_is_not_missed(labels: dict[str, str]) -> None:
    found = explained(flat(silent_node(labels=labels)))
    assert "node b" not in found.cause


# --- drivers that are gone ---


def leaving(*more: Object) -> Explanation:
    """A pod that was deleted long ago and whose containers have ended."""
    ended = {"name": "main", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    made = wanting("train", "c", nodeName="n", status={"phase": "Running", "containerStatuses": [ended]})
    made["metadata"] |= {"deletionTimestamp": "2027-01-15T05:00:00Z", "deletionGracePeriodSeconds": 30}
    return explained(
        device_class(), node("n"), claim("c", asks(), status=holding("n", "gpu-0", users=("train",))), made, *more
    )


def test_a_pod_whose_driver_was_uninstalled_waits_for_it() -> None:
    found = leaving()
    assert f"and driver {DRIVER} is gone: it has no pod on the node and no ResourceSlice at all" in found.cause
    assert found.changes[0].text.startswith(f"install driver {DRIVER} on node n again")
    assert "--force" in found.changes[1].text


@pytest.mark.parametrize("more", [pool("n", gpus(1)), daemon("nvidia-dra-driver", "n")])
def test_a_driver_with_a_pod_or_devices_on_the_node_is_not_gone(more: Object) -> None:
    assert "is gone" not in leaving(more).cause


def test_a_driver_that_is_gone_from_one_node_only_says_so() -> None:
    assert "no ResourceSlice of node n" in leaving(node("m"), pool("m", gpus(1))).cause


def test_a_claim_whose_driver_was_never_installed_on_the_node_needs_it() -> None:
    said = f"Failed to prepare dynamic resources: DRA driver {DRIVER} is not registered"
    held = claim("c", asks(), status=holding("n", "gpu-0", users=("train",)))
    found = explained(
        device_class(),
        node("n"),
        held,
        wanting("train", "c", nodeName="n"),
        event("train", "FailedPrepareDynamicResources", said),
    )
    assert "it has no pod on the node and no ResourceSlice at all" in found.cause
    assert found.changes[0].text == f"install driver {DRIVER} on node n"


# --- what publishes pools of no node ---


def test_a_pool_of_no_node_is_incomplete_because_its_controller_crashes() -> None:
    slice_ = pool("fabric", gpus(1), slices=2)
    del slice_["spec"]["nodeName"]
    slice_["spec"]["allNodes"] = True
    controller = daemon("nvidia-dra-controller", "n", **CRASHES)
    controller["metadata"]["ownerReferences"][0] |= {"kind": "ReplicaSet", "name": "nvidia-dra-controller-5c"}
    found = explained(device_class(), node("n"), slice_, controller, templated("train", asks()))
    assert "in pod default/nvidia-dra-controller-n, container main crashes" in found.cause
    assert found.changes[0].text.startswith("fix the driver's pod default/nvidia-dra-controller-n on node n: ")


def test_advice_about_a_drivers_pod_does_not_speak_of_the_pod_that_was_asked_about() -> None:
    killed: Object = {
        **CRASHES,
        "containerStatuses": [
            {**CRASHES["containerStatuses"][0], "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
        ],
    }
    driver = daemon("nvidia-dra-driver", "n", **killed)
    driver["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    found = explained(device_class(), node("n"), driver, templated("train", asks()))
    assert "of container main in DaemonSet default/nvidia-dra-driver" in found.changes[0].text


# --- groups of machines ---


def machines(replicas: int, kind: str = "MachineDeployment", name: str = "pool-1", **annotations: str) -> Object:
    version = {"MachineDeployment": "cluster.x-k8s.io/v1beta2", "MachineSet": "machine.openshift.io/v1beta1"}[kind]
    domain = {"dra_driver": "capacity.cluster-autoscaler.kubernetes.io/dra-driver", "gpu": "machine.openshift.io/GPU"}
    told = {domain[key]: value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": "machines", "annotations": told}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"replicas": replicas}}


EMPTY = [
    machines(0, dra_driver=DRIVER),
    machines(0, "MachineSet", gpu="2"),
    machines(0, name="pool-gpu"),
]


@pytest.mark.parametrize("group", EMPTY)
def test_an_empty_group_of_machines_with_the_devices_is_to_be_scaled(group: Object) -> None:
    driver = daemon_set("nvidia-dra-driver", nodeSelector={"gpu": "yes"})
    said = event("train", "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 cannot allocate all claims")
    found = explained(device_class(), node("web-1"), driver, group, said, templated("train", asks()))
    name, kind = group["metadata"]["name"], group["kind"]
    assert (
        f"no node has the hardware: {kind} machines/{name}, whose nodes have such devices, has 0 replicas"
        in found.cause
    )
    assert "the autoscaler does not add one (1 cannot allocate all claims)" in found.cause
    assert found.changes[0].text.startswith(f"kubectl scale {kind.lower()} {name} -n machines --replicas=1")


@pytest.mark.parametrize(
    "group", [machines(1, dra_driver=DRIVER), machines(0), machines(0, dra_driver="x.io"), machines(0, name="amd-gpu")]
)
def test_groups_with_nodes_or_with_other_machines_are_no_cause(group: Object) -> None:
    found = explained(device_class(), node("web-1"), group, templated("train", asks()))
    assert "replicas" not in found.cause


def test_an_empty_group_is_no_cause_beside_a_node_that_has_the_hardware() -> None:
    found = explained(device_class(), node("gpu-1"), EMPTY[0], templated("train", asks()))
    assert "replicas" not in found.cause


# --- the same, asked about in other ways ---


def test_a_pod_that_selects_a_label_that_nobody_sets_is_traced_to_the_labeller() -> None:
    nodes = [node("gpu-1", taints=[TAINT]), node("web-1")]
    tolerant = pod("train", nodeSelector={PCI: "true"}, tolerations=[{"operator": "Exists"}])
    found = explained(nodes, daemon_set("nfd", NFD), tolerant)
    assert f"no node has label {PCI}: DaemonSet default/nfd, which sets such labels, skips node gpu-1" in found.cause


def test_a_node_whose_ready_driver_publishes_nothing_is_not_as_wanted() -> None:
    made = flat(silent_node())
    ready = [{"type": "Ready", "status": "True"}]
    made[2]["status"]["conditions"] = ready
    found = Explainer(snapshot(made)).workload("node", "", "b")
    assert f"is ready, but driver {DRIVER} has published none of its devices" in found.cause
    assert found.changes[0].text.endswith("kubectl logs -n default nvidia-dra-driver-b")


def test_a_pod_that_selects_the_node_of_a_silent_driver_hears_of_the_driver() -> None:
    made = flat(silent_node())
    made[-1]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "b"}
    found = explained(made)
    assert "node b, the only one that matches" in found.cause
    assert "the driver's pod default/nvidia-dra-driver-b is ready there" in found.cause


def test_a_driver_that_is_only_a_controller_and_crashes_is_why_there_are_no_devices() -> None:
    controller = daemon("nvidia-dra-controller", "n", **CRASHES)
    controller["metadata"]["ownerReferences"][0] |= {"kind": "ReplicaSet", "name": "nvidia-dra-controller-5c"}
    found = explained(device_class(), node("n"), controller, templated("train", asks()))
    assert "in pod default/nvidia-dra-controller-n, container main crashes" in found.cause


def test_an_empty_group_is_also_why_no_node_offers_a_resource() -> None:
    wanted = pod("train")
    wanted["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    found = explained(node("web-1"), machines(0, "MachineSet", gpu="2"), wanted)
    assert "it asks for nvidia.com/gpu, which no node offers: MachineSet machines/pool-1" in found.cause
