"""Queues of KAI on a cluster: what nobody else wants is for all, and the rightful owner gets back what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.seeds.shell import Shell, cluster

pytestmark = pytest.mark.slow

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
}


@pytest.fixture(scope="module")
def with_eight_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with cluster(tmp_path_factory.mktemp("queues"), "--node", "h100x8") as shell:
        yield shell


def _queue(name: str, parent: str, quota: int) -> dict[str, Any]:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1}, "cpu": free, "memory": free}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _deployment(name: str, replicas: int) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "9999"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    pod = {
        "metadata": {"labels": {"app": name, "kai.scheduler/queue": name, "priorityClassName": "train"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _apply(shell: Shell, folder: Path, *objects: dict[str, Any]) -> None:
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    shell.run(f"kubectl apply -f {folder}/objects.yaml")


def test_the_owner_gets_back_what_is_its_own_and_then_all_is_quiet(with_eight_gpus: Shell, tmp_path: Path) -> None:
    shell = with_eight_gpus
    queues = [
        _queue("research", "", 4),
        _queue("product", "", 4),
        _queue("train", "research", 4),
        _queue("serve", "product", 4),
    ]
    _apply(shell, tmp_path, TEMPLATE, *queues, _deployment("train", 8))
    running = "kubectl get pods -l app={} --field-selector status.phase=Running -o name | wc -l"
    shell.shows(running.format("train"), lambda text: text.strip() == "8")
    _apply(shell, tmp_path, _deployment("serve", 6))
    shell.shows(running.format("serve"), lambda text: text.strip() == "4")
    shell.shows(running.format("train"), lambda text: text.strip() == "4")
    events = "kubectl get events --field-selector reason=Preempted -o jsonpath={.items[*].message}"
    told = shell.shows(events, lambda text: text.count("Reclaimed by default/pg-serve-") >= 4)
    assert "queue train uses 8 GPUs with a quota of 4 GPUs" in told
    table = shell.run("allot queues")
    assert table.split("\n")[0].startswith("QUEUE")
    assert "  train" in table
    waiting = shell.run("allot queues serve")
    assert "queue serve would exceed its fair share of gpu" in waiting
    names = "kubectl get pods --field-selector status.phase=Running -o name | sort"
    before = shell.run(names)
    shell.run("kubectl label deployment serve looked-at=again")
    assert shell.run(names) == before
