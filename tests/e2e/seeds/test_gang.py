"""The PodGroup of the third document, as it stands: eight pods start together, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.seeds.documents import GA, MISSING, document, seeds_dir
from e2e.seeds.shell import Shell, cluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(seeds_dir() is None, reason=MISSING)]

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
}


@pytest.fixture(scope="module")
def with_eight_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with cluster(tmp_path_factory.mktemp("gang"), "--node", "h100x8") as shell:
        yield shell


def _pod(name: str, labels: dict[str, str]) -> dict[str, object]:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "9999"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _phases(text: str) -> list[str]:
    return text.split()


def test_with_seven_gpus_nothing_runs_and_with_eight_all_start(with_eight_gpus: Shell, tmp_path: Path) -> None:
    shell = with_eight_gpus
    (group,) = [text for text in document(GA).manifests if "scheduling.x-k8s.io" in text]
    (tmp_path / "group.yaml").write_text(group)
    workers = [
        _pod(f"worker-{number}", {"scheduling.x-k8s.io/pod-group": "distributed-training"}) for number in range(8)
    ]
    (tmp_path / "notebook.yaml").write_text(yaml.safe_dump_all([TEMPLATE, _pod("notebook", {})]))
    (tmp_path / "workers.yaml").write_text(yaml.safe_dump_all(workers))
    shell.run(f"kubectl apply -f {tmp_path}/notebook.yaml")
    shell.shows("kubectl get pod notebook -o jsonpath={.status.phase}", lambda phase: phase == "Running")
    assert "podgroup.scheduling.x-k8s.io/distributed-training created" in shell.run(
        f"kubectl apply -f {tmp_path}/group.yaml -f {tmp_path}/workers.yaml"
    )
    of_workers = "kubectl get pods -l scheduling.x-k8s.io/pod-group -o jsonpath={.items[*].status.phase}"
    events = "kubectl get events --field-selector involvedObject.name=worker-3 -o jsonpath={.items[*].message}"
    told = shell.shows(events, lambda text: "minCount (8) cannot be satisfied" in text)
    assert "at most 7 of the 8 that it needs can have a node at once" in told
    assert _phases(shell.run(of_workers)) == ["Pending"] * 8
    phase = "kubectl get podgroups.scheduling.x-k8s.io distributed-training -o jsonpath={.status.phase}"
    shell.shows(phase, lambda text: text == "Scheduling")
    explained = shell.run("allot explain podgroup/distributed-training || true")
    assert "only 7 of the 8 pods that it needs at once can be placed" in explained
    shell.run("kubectl delete pod notebook")
    shell.shows(of_workers, lambda text: _phases(text) == ["Running"] * 8)
    shell.shows(phase, lambda text: text == "Running")
