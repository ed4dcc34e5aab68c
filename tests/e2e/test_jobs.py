"""Jobs as people use them: `allot up` with two simulated GPUs, kubectl, and pods that run real commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.clusters import WAIT, cluster, namespace, until
from e2e.kubectl import Kubectl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRAINING = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 4
  parallelism: 4
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: busybox
        command: [sh, -c, 'echo shard $JOB_COMPLETION_INDEX; nvidia-smi -L']
        resources: {claims: [{name: gpu}]}
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""
PICKY = """
apiVersion: batch/v1
kind: Job
metadata: {name: picky}
spec:
  backoffLimit: 5
  podFailurePolicy:
    rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [sh, -c, 'exit 42']}]
"""

LEADER = """
apiVersion: batch/v1
kind: Job
metadata: {name: leader}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  successPolicy: {rules: [{succeededIndexes: "0"}]}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: busybox, command: [sh, -c, 'test $JOB_COMPLETION_INDEX = 0 || sleep 600']}]
"""
SHARDS = """
apiVersion: batch/v1
kind: Job
metadata: {name: shards}
spec:
  completions: 4
  parallelism: 4
  completionMode: Indexed
  backoffLimitPerIndex: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, command: [sh, -c, 'test $JOB_COMPLETION_INDEX != 2']}]
"""


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    """kubectl on a cluster with two GPUs, in a namespace of its own."""
    with cluster("--node", "a100-40x2") as kubeconfig, namespace(kubeconfig, "jobs") as made:
        yield made


def statuses(kubectl: Kubectl, name: str) -> list[str]:
    """The phases of a job's pods."""
    return [pod["status"]["phase"] for pod in kubectl.json("get", "pods", "-l", f"job-name={name}")["items"]]


def test_an_indexed_job_trains_on_as_many_gpus_as_there_are(kubectl: Kubectl) -> None:
    """Four shards, two devices: each pod has its own claim, and its end frees the device for the next."""
    kubectl.apply(TRAINING)
    kubectl("wait", "--for=condition=Complete", "job/train", WAIT)
    status = kubectl.json("get", "job", "train")["status"]
    assert (status["succeeded"], status["completedIndexes"], status.get("failed", 0)) == (4, "0-3", 0)
    assert kubectl.rows("get", "job", "train")[1][1:3] == ["Complete", "4/4"]
    told = kubectl("logs", "-l", "job-name=train", "--prefix", "--max-log-requests=8")
    for index in range(4):
        assert f"shard {index}" in told
    assert told.count("NVIDIA A100") == 4
    for pod in kubectl.json("get", "pods", "-l", "job-name=train")["items"]:
        assert not pod["metadata"].get("finalizers"), pod["metadata"]["name"]
    until(lambda: not kubectl.json("get", "resourceclaims")["items"])
    described = kubectl("describe", "job", "train")
    assert "Completed Indexes:  0-3" in described and "Job completed" in described
    kubectl("delete", "job", "train", WAIT)
    until(lambda: not statuses(kubectl, "train"))


def test_a_job_fails_is_suspended_resumed_and_deleted(user_anywhere: Kubectl) -> None:
    kubectl = user_anywhere
    kubectl.apply(PICKY)
    kubectl("wait", "--for=condition=Failed", "job/picky", WAIT)
    conditions = {one["type"]: one for one in kubectl.json("get", "job", "picky")["status"]["conditions"]}
    assert conditions["Failed"]["reason"] == "PodFailurePolicy"
    assert "exit code 42 matching FailJob rule at index 0" in conditions["FailureTarget"]["message"]

    kubectl("create", "job", "sleeper", "--image=busybox", "--", "sleep", "600")
    until(lambda: statuses(kubectl, "sleeper") == ["Running"])
    kubectl("patch", "job", "sleeper", "-p", '{"spec":{"suspend":true}}')
    kubectl("wait", "--for=condition=Suspended", "job/sleeper", WAIT)
    until(lambda: statuses(kubectl, "sleeper") == [])
    kubectl("patch", "job", "sleeper", "-p", '{"spec":{"suspend":false}}')
    until(lambda: statuses(kubectl, "sleeper") == ["Running"])
    assert kubectl.json("get", "job", "sleeper")["status"].get("failed", 0) == 0
    kubectl("delete", "job", "sleeper", "--cascade=orphan", WAIT)
    (left,) = until(lambda: kubectl.json("get", "pods", "-l", "job-name=sleeper")["items"])
    until(lambda: not kubectl.json("get", "pod", left["metadata"]["name"])["metadata"].get("finalizers"))
    kubectl("delete", "pod", left["metadata"]["name"], "--grace-period=1", WAIT)


def test_indexes_decide_whether_a_job_has_succeeded(user_anywhere: Kubectl) -> None:
    kubectl = user_anywhere
    kubectl.apply(LEADER + "---" + SHARDS)
    kubectl("wait", "--for=condition=Complete", "job/leader", WAIT)
    kubectl("wait", "--for=condition=Failed", "job/shards", WAIT)
    leader, shards = (kubectl.json("get", "job", name)["status"] for name in ("leader", "shards"))
    conditions = {one["type"]: (one["reason"], one["message"]) for one in leader["conditions"]}
    told = ("SuccessPolicy", "Matched rules at index 0")
    assert conditions == {"SuccessCriteriaMet": told, "Complete": told} and leader["completedIndexes"] == "0"
    conditions = {one["type"]: (one["reason"], one["message"]) for one in shards["conditions"]}
    told = ("FailedIndexes", "Job has failed indexes")
    assert conditions == {"FailureTarget": told, "Failed": told}
    assert (shards["completedIndexes"], shards["failedIndexes"], shards["failed"]) == ("0,1,3", "2", 1)
    for pod in kubectl.json("get", "pods")["items"]:
        assert not pod["metadata"].get("finalizers"), pod["metadata"]["name"]


def test_a_cron_job_is_taken_checked_and_started_by_hand(user_anywhere: Kubectl) -> None:
    kubectl = user_anywhere
    refused = kubectl.fails("create", "cronjob", "bad", "--image=busybox", "--schedule=61 * * * *")
    assert "end of range (61) above maximum (59): 61" in refused
    kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=0 3 * * *", "--", "sh", "-c", "echo tick")
    kubectl("create", "job", "tock", "--from=cronjob/tick")
    kubectl("wait", "--for=condition=Complete", "job/tock", WAIT)
    assert kubectl("logs", "job/tock").strip() == "tick"
    until(lambda: "Saw a job that the controller did not create or forgot: tock" in kubectl("events"))
    kubectl("patch", "job", "tock", "-p", '{"spec":{"ttlSecondsAfterFinished":0}}')
    until(lambda: kubectl.run("get", "job", "tock").returncode == 1)
    kubectl("delete", "namespace", kubectl.namespace, WAIT)
