"""`allot autoscaler`, `plan --pools` and `explain --pools` as commands: answers, and errors that name what was meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import allot

DUMP = """\
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a}}
status: {allocatable: {cpu: "4", memory: 16Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: default, uid: c}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, allocationMode: ExactCount, count: 1}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: default, uid: p}
spec:
  schedulerName: default-scheduler
  containers: [{name: c, image: x, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: gpu}]
status: {phase: Pending}
"""
EVENT = """\
---
apiVersion: v1
kind: Event
metadata: {name: e, namespace: default}
involvedObject: {kind: Pod, namespace: default, name: train, uid: p}
reason: TriggeredScaleUp
message: 'pod triggered scale-up: [{l4 0->1 (max: 3)}]'
lastTimestamp: "2026-08-01T10:00:00Z"
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A cluster in which a pod waits for a GPU."""
    path = tmp_path / "dump.yaml"
    path.write_text(DUMP)
    return path


def test_plan_tells_what_would_be_bought(dump: Path) -> None:
    """For the pods that wait, without a manifest."""
    found = allot("plan", "-f", str(dump), "--pools", "l4=g2-standard-4,price=0.7", "--pools", "cpu=n2-standard-4")
    assert found.code == 0, found.stderr
    assert "l4     +1      1 of 10   0.70" in found.stdout
    assert "0.70 per hour; no other set of nodes is better." in found.stdout
    answer = allot("plan", "-f", str(dump), "--pools", "l4=g2-standard-4,price=0.7", "-o", "json")
    assert json.loads(answer.stdout)["costPerHour"] == "0.70"


def test_plan_names_the_pool_that_is_missing(dump: Path) -> None:
    """The cheapest machine that would do."""
    found = allot("plan", "-f", str(dump), "--pools", "cpu=n2-standard-4")
    assert found.code == 1
    assert "default/train: no pool helps." in found.stdout
    assert "Missing: a pool of g2-standard-4 (0.71 per hour); a node would be enough for default/train." in found.stdout


def test_explain_tells_whether_a_node_is_coming(dump: Path) -> None:
    """From the events of the cluster's autoscaler, or with pools."""
    assert "The autoscaler" not in allot("explain", "train", "-f", str(dump)).stdout
    dump.write_text(DUMP + EVENT)
    told = allot("explain", "train", "-f", str(dump)).stdout
    assert "a node is coming: it was asked for [{l4 0->1 (max: 3)}] (said at 2026-08-01T10:00:00Z)" in told
    dump.write_text(
        DUMP + EVENT.replace("TriggeredScaleUp", "NotTriggerScaleUp").replace("pod triggered", "pod didn''t trigger")
    )
    assert "no node is coming: [{l4" in allot("explain", "train", "-f", str(dump)).stdout
    asked = allot("explain", "train", "-f", str(dump), "--pools", "l4=g2-standard-4,price=0.7").stdout
    assert "a node of pool l4 would be added for it, at 0.70 per hour each" in asked
    asked = allot("explain", "train", "-f", str(dump), "--pools", "cpu=n2-standard-4").stdout
    assert "pool cpu does not help: cannot allocate all claims" in asked


CLASS = """\
---
apiVersion: cloud.google.com/v1
kind: ComputeClass
metadata: {name: c}
spec:
  priorities: [{nodepools: [large]}, {nodepools: [smal]}]
"""


def test_plan_and_explain_know_compute_classes(dump: Path) -> None:
    """Class and priority are named, and a priority that names no pool gets the nearest that there is."""
    selecting = DUMP.replace("  containers:", "  nodeSelector: {cloud.google.com/compute-class: c}\n  containers:")
    tolerant = selecting.replace(
        "  containers:", "  tolerations: [{key: cloud.google.com/compute-class, operator: Exists}]\n  containers:"
    )
    dump.write_text(tolerant + CLASS)
    pools = ("--pools", "large=g2-standard-8,price=9,computeClass=c", "--pools", "small=g2-standard-4,computeClass=c")
    found = allot("plan", "-f", str(dump), *pools)
    assert "large   +1      1 of 10   9.00       c       priority 1 (large)" in found.stdout
    asked = allot("explain", "train", "-f", str(dump), *pools).stdout
    assert "a node of pool large, priority 1 (large) of ComputeClass c would be added for it, at 9.00 per hour" in asked
    none = allot("plan", "-f", str(dump), "--pools", "small=g2-standard-4,computeClass=c")
    assert none.code == 1
    assert "default/train: no pool of ComputeClass c helps." in none.stdout
    assert 'doesn\'t exist in the cluster. did you mean "small"?' in none.stdout
    assert "small: not wanted by its ComputeClass" in none.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--expander", "prize"), 2, 'did you mean "price"?'),
        (("--cloud-provider", "external"), 2, "externalgrpc"),
        (("--profile", "g=h100x99"), 2, "profile 'h100x99'"),
        (("--profile", "g"), 2, "is not GROUP=VALUE"),
        (("--price", "g=much"), 2, "price 'much'"),
        (("--scale-down-utilization-threshold", "2"), 2, "not a fraction from 0 to 1"),
        (("--scan-interval", "soon"), 2, "not a duration"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    """With the nearest valid choice."""
    config = tmp_path / "cloud.yaml"
    config.write_text("address: 127.0.0.1:1\n")
    found = allot("autoscaler", "--cloud-config", str(config), *arguments)
    assert found.code == code
    assert said in found.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("adress: x", "unknown field"),
        ("{}", "address"),
        ("{address: 'a:1', cert: c}", "mTLS needs cacert, cert and key"),
        ("{address: 'a:1', cert: c, key: k, cacert: /none}", "no such file"),
        ("{address: 'a:1', grpc_timeout: soon}", "grpc_timeout"),
    ],
)
def test_a_bad_configuration_of_the_provider_is_named(tmp_path: Path, text: str, said: str) -> None:
    """By file and field."""
    config = tmp_path / "cloud.yaml"
    config.write_text(text)
    found = allot("autoscaler", "--cloud-config", str(config))
    assert found.code == 2
    assert "cloud.yaml" in found.stderr and said in found.stderr
