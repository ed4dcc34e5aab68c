"""Manifests of KAI's users on `allot up`: groups by owner, status in KAI's words, shares of devices, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.seeds.shell import Shell, cluster

pytestmark = pytest.mark.slow

RUN_AI = "scheduling.run.ai"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with cluster(tmp_path_factory.mktemp("dialects"), "--node", "t4") as running:
        yield running


def _apply(shell: Shell, folder: Path, *objects: dict[str, Any]) -> str:
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    return shell.run(f"kubectl apply -f {folder}/objects.yaml 2>&1 || true")


def _pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "9999"]}
    return {"schedulerName": "kai-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0, **spec}


def _queue(name: str, parent: str = "", gpus: int = -1) -> dict[str, Any]:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": {**free, "limit": gpus}, "cpu": free, "memory": free}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": f"{RUN_AI}/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _get(shell: Shell, what: str) -> Any:
    return json.loads(shell.run(f"kubectl get {what} -o json"))


def test_a_job_becomes_a_group_that_starts_together_and_its_queue_says_what_it_holds(
    shell: Shell, tmp_path: Path
) -> None:
    _apply(shell, tmp_path, _queue("research"), _queue("vision", "research"))
    template = {"metadata": {"labels": {"job": "train"}}, "spec": _pod(restartPolicy="Never")}
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "labels": {"kai.scheduler/queue": "vision"},
            "annotations": {"kai.scheduler/batch-min-member": "3"},
        },
        "spec": {"parallelism": 3, "completions": 3, "template": template},
    }
    _apply(shell, tmp_path, job)
    phases = "kubectl get pods -l job=train -o jsonpath={.items[*].status.phase}"
    shell.shows(phases, lambda text: text.split() == ["Running"] * 3)
    uid = _get(shell, "job train")["metadata"]["uid"]
    group = _get(shell, f"podgroups.{RUN_AI} pg-train-{uid}")
    assert (group["spec"]["minMember"], group["spec"]["queue"], group["spec"]["priorityClassName"]) == (
        3,
        "vision",
        "train",
    )
    held = "kubectl get queues.scheduling.run.ai {} -o jsonpath={{.status.allocated.cpu}}"
    shell.shows(held.format("vision"), lambda text: text == "300m")
    assert shell.run(held.format("research")) == "300m"
    columns = shell.run("kubectl get queues.scheduling.run.ai research --no-headers")
    assert '["vision"]' in columns
    # As KAI's webhook has it.
    told = shell.run("kubectl delete queues.scheduling.run.ai research 2>&1 || true")
    assert "cannot delete queue research: it has child queues [vision]" in told


def test_a_group_that_waits_says_so_in_kai_s_words(shell: Shell, tmp_path: Path) -> None:
    near = {"topology": "dc", "requiredTopologyLevel": "rack"}
    group = {
        "apiVersion": f"{RUN_AI}/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "near"},
        "spec": {"subGroups": [{"name": "a", "minMember": 1, "topologyConstraint": near}]},
    }
    labels = {"kai.scheduler/subgroup-name": "a"}
    metadata = {"name": "near-0", "annotations": {"pod-group-name": "near"}, "labels": labels}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod()}
    _apply(shell, tmp_path, group, pod)
    said = f"kubectl get podgroups.{RUN_AI} near -o jsonpath={{.status.schedulingConditions[*].message}}"
    shell.shows(said, lambda text: text == "Requested topology dc does not exist")
    levels = [{"nodeLabel": "kubernetes.io/os", "alias": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "dc"},
        "spec": {"levels": levels},
    }
    _apply(shell, tmp_path, topology)
    shell.shows("kubectl get pod near-0 -o jsonpath={.status.phase}", lambda text: text == "Running")
    shell.shows(said, lambda text: not text)
    wrong = {**group, "metadata": {"name": "wrong"}, "spec": {"subGroups": [{"name": "a", "parent": "b"}]}}
    assert "parent b of a does not exist" in _apply(shell, tmp_path, wrong)
    changed = {**topology, "spec": {"levels": levels[1:]}}
    assert "levels cannot be changed" in _apply(shell, tmp_path, changed)


def test_a_job_of_volcano_runs_its_tasks_and_ends(shell: Shell, tmp_path: Path) -> None:
    def task(name: str, *command: str) -> dict[str, Any]:
        container = {"name": "c", "image": "busybox", "command": list(command)}
        template = {"spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}}
        return {"name": name, "replicas": 1, "template": template}

    policies = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "mpi"},
        "spec": {
            "minAvailable": 2,
            "schedulerName": "volcano",
            "plugins": {"env": [], "svc": [], "ssh": []},
            "tasks": [
                {**task("master", "true"), "policies": policies, "dependsOn": {"name": ["worker"]}},
                task("worker", "sleep", "9999"),
            ],
        },
    }
    assert "nothing acts on spec.plugins.ssh of this Job" in _apply(shell, tmp_path, job)
    columns = "kubectl get vcjob mpi --no-headers"
    shell.shows(columns, lambda text: text.split()[1:4] == ["Completed", "2", "0"])
    assert shell.run("kubectl get service mpi -o jsonpath={.spec.clusterIP}") == "None"
    pods = "kubectl get pods -l volcano.sh/job-name=mpi -o name"
    shell.shows(pods, lambda text: text.split() == ["pod/mpi-master-0"])
    # The turn of the master came when the worker ran.
    group = "kubectl get podgroups.scheduling.volcano.sh -o jsonpath={.items[*].spec.minTaskMember}"
    assert json.loads(shell.run(group)) == {"master": 1, "worker": 1}


def test_a_fraction_of_a_gpu_is_a_share_of_a_device(shell: Shell, tmp_path: Path) -> None:
    class_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "shared-gpu", "labels": {"allot.dev/gpu-shares": "memory"}},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "shared.example.com"'}}]},
    }
    device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "shared"},
        "spec": {
            "driver": "shared.example.com",
            "nodeName": "t4",
            "pool": {"name": "shared", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    }

    def part(name: str, **annotations: str) -> dict[str, Any]:
        metadata = {"name": name, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod()}

    _apply(shell, tmp_path, class_, slice_)
    half, rest = part("half", **{"gpu-fraction": "0.5"}), part("rest", **{"gpu-memory": "20480"})
    _apply(shell, tmp_path, half, rest)
    consumed = "kubectl get resourceclaims -o jsonpath={.items[*].status.allocation.devices.results[*].consumedCapacity.memory}"
    shell.shows(consumed, lambda text: sorted(text.split()) == ["20Gi", "21474836480"])
    _apply(shell, tmp_path, part("third", **{"gpu-fraction": "0.1"}))
    waits = "kubectl get pod third -o jsonpath={.status.conditions[0].reason}"
    shell.shows(waits, lambda text: text == "Unschedulable")
    told = _apply(shell, tmp_path, part("both", **{"gpu-fraction": "0.5", "gpu-memory": "1"}))
    assert "cannot request both GPU and GPU memory" in told
