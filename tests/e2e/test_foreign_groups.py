"""PodGroups of KAI and Volcano on `allot up`: manifests for these schedulers work unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.seeds.shell import cluster

pytestmark = pytest.mark.slow

GROUPS = {
    "kai-scheduler": ("scheduling.run.ai/v2alpha2", "pod-group-name"),
    "volcano": ("scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/group-name"),
}


def _pod(scheduler: str, annotation: str, number: int) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "9999"]}
    metadata = {"name": f"{scheduler}-{number}", "annotations": {annotation: scheduler}, "labels": {"of": scheduler}}
    spec = {"schedulerName": scheduler, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_groups_of_kai_and_volcano_start_together(tmp_path: Path) -> None:
    with cluster(tmp_path, "--node", "t4") as shell:
        for scheduler, (version, annotation) in GROUPS.items():
            group = {
                "apiVersion": version,
                "kind": "PodGroup",
                "metadata": {"name": scheduler},
                "spec": {"minMember": 3},
            }
            pods = [_pod(scheduler, annotation, number) for number in range(3)]
            first, last = tmp_path / f"{scheduler}.yaml", tmp_path / f"{scheduler}-last.yaml"
            first.write_text(yaml.safe_dump_all([group, *pods[:2]]))
            last.write_text(yaml.safe_dump(pods[2]))
            shell.run(f"kubectl apply -f {first}")
            told = f"kubectl get events --field-selector involvedObject.name={scheduler}-0 -o jsonpath={{.items[*].message}}"
            shell.shows(told, lambda text: "not scheduled yet" in text)
            phases = f"kubectl get pods -l of={scheduler} -o jsonpath={{.items[*].status.phase}}"
            assert shell.run(phases).split() == ["Pending"] * 2
            shell.run(f"kubectl apply -f {last}")
            shell.shows(phases, lambda text: text.split() == ["Running"] * 3)
        # What nobody acts on is told.
        unread = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "old"},
            "spec": {"minMember": 1, "parallelism": 2},
        }
        (tmp_path / "old.yaml").write_text(yaml.safe_dump(unread))
        told = shell.run(f"kubectl apply -f {tmp_path}/old.yaml 2>&1")
        assert "nothing acts on spec.parallelism of this PodGroup" in told
        phases = "kubectl get podgroups.scheduling.volcano.sh volcano --no-headers"
        shell.shows(phases, lambda text: text.split()[1:4] == ["Running", "3", "3"])
