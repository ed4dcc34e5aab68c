"""Volumes as people use them: `allot up`, its default storage class, and pods that write."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.clusters import WAIT, until
from e2e.kubectl import Kubectl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: busybox
        command: [sh, -c, 'echo $HOSTNAME >> /data/log; sleep 3600']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: THIS}
spec: {accessModes: [MODE], resources: {requests: {storage: 1Gi}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: THIS}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: busybox, command: [sh, -c, 'echo $HOSTNAME >> /v/log; sleep 3600'], volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: CLAIM}}]
"""
EPHEMERAL = """
apiVersion: v1
kind: Pod
metadata: {name: scratch}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    command: [sh, -c, 'echo one > /a/file; echo two > /b/file; sleep 3600']
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: v, mountPath: /a, subPath: deep/down}
    - {name: v, mountPath: /b, subPathExpr: of-$(POD)}
    - {name: v, mountPath: /whole}
  volumes:
  - name: v
    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
"""


@pytest.fixture
def kubectl(user_anywhere: Kubectl) -> Kubectl:
    """kubectl on a cluster with three nodes, of allot or around a real kube-apiserver."""
    return user_anywhere


def claim(name: str, mode: str = "ReadWriteOnce") -> str:
    return CLAIM.replace("THIS", name).replace("MODE", mode)


def pod(name: str, claim: str) -> str:
    return POD.replace("THIS", name).replace("CLAIM", claim)


def logged(kubectl: Kubectl, pod: str, path: str = "/v/log") -> list[str]:
    """What has been written to a volume."""
    found: list[str] = until(lambda: kubectl.run("exec", pod, "--", "cat", path).stdout.split())
    return found


def warning(kubectl: Kubectl, what: str, reason: str) -> str:
    """The note of a warning about an object."""

    def look() -> Any:
        events = kubectl.json("get", "events", "--field-selector", f"involvedObject.name={what},reason={reason}")
        return [event["message"] for event in events["items"]]

    return str(until(look)[0])


def node_of(kubectl: Kubectl, pod: str) -> str:
    return str(kubectl.json("get", "pod", pod)["spec"]["nodeName"])


def test_what_a_stateful_set_wrote_survives_its_pods(kubectl: Kubectl) -> None:
    kubectl.apply(STATEFUL_SET)
    kubectl("rollout", "status", "sts/db", WAIT)
    assert logged(kubectl, "db-0", "/data/log") == ["db-0"]
    (before,) = kubectl.rows("get", "pvc", "data-db-0", "--no-headers")
    assert before[1] == "Bound" and before[3:6] == ["1Gi", "RWO", "standard"]
    node = node_of(kubectl, "db-0")
    kubectl("rollout", "restart", "sts/db")
    kubectl("rollout", "status", "sts/db", WAIT)
    # The folder is of one node: the pod comes back to it, and finds what it left.
    assert logged(kubectl, "db-0", "/data/log") == ["db-0", "db-0"] and node_of(kubectl, "db-0") == node
    kubectl("scale", "sts/db", "--replicas=0")
    until(lambda: kubectl("get", "pods", "-o", "name") == "")
    kubectl("delete", "sts", "db", WAIT)
    assert kubectl("get", "pvc", "-o", "name").split() == [
        f"persistentvolumeclaim/{name}" for name in ("data-db-0", "data-db-1")
    ]
    kubectl.apply(STATEFUL_SET.replace("replicas: 2", "replicas: 1"))
    kubectl("rollout", "status", "sts/db", WAIT)
    assert logged(kubectl, "db-0", "/data/log") == ["db-0"] * 3


def test_volume_claims_go_with_their_stateful_set_if_it_says_so(kubectl: Kubectl) -> None:
    policy = "persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}"
    kubectl.apply(STATEFUL_SET.replace("serviceName: db", f"serviceName: db\n  {policy}"))
    kubectl("rollout", "status", "sts/db", WAIT)
    volumes = [kubectl.json("get", "pvc", f"data-db-{number}")["spec"]["volumeName"] for number in (0, 1)]
    kubectl("scale", "sts/db", "--replicas=1")
    kubectl("wait", "--for=delete", "pvc/data-db-1", WAIT)
    assert kubectl("get", "pvc", "-o", "name").split() == ["persistentvolumeclaim/data-db-0"]
    kubectl("delete", "sts", "db", WAIT)
    for kind in ("pod", "pvc"):
        until(lambda kind=kind: kubectl("get", kind, "-o", "name") == "")
    until(lambda: kubectl("get", "pv", *volumes, "--ignore-not-found", "-o", "name") == "")


def test_a_claim_waits_for_its_pod_and_is_kept_while_it_is_used(kubectl: Kubectl) -> None:
    kubectl.apply(claim("c"))
    assert "waiting for first consumer to be created" in until(
        lambda: kubectl("describe", "pvc", "c").partition("Events:")[2]
    )
    kubectl.apply(pod("one", "c"))
    kubectl("wait", "--for=condition=Ready", "pod/one", WAIT)
    node = node_of(kubectl, "one")
    kubectl.apply(pod("two", "c"))
    kubectl("wait", "--for=condition=Ready", "pod/two", WAIT)
    # Pods that share a folder are where it is.
    assert node_of(kubectl, "two") == node and sorted(logged(kubectl, "two")) == ["one", "two"]
    volume = kubectl.json("get", "pvc", "c")["spec"]["volumeName"]
    kubectl("delete", "pvc", "c", "--wait=false")
    kubectl("delete", "pod", "one")
    assert kubectl.rows("get", "pvc", "c", "--no-headers")[0][1] == "Terminating"
    kubectl("delete", "pod", "two")
    kubectl("wait", "--for=delete", "pvc/c", WAIT)
    kubectl("wait", "--for=delete", f"pv/{volume}", WAIT)


def test_a_volume_that_is_retained_can_be_claimed_again(kubectl: Kubectl) -> None:
    kubectl.apply(claim("c") + "---" + pod("one", "c"))
    kubectl("wait", "--for=condition=Ready", "pod/one", WAIT)
    assert logged(kubectl, "one") == ["one"]
    volume = kubectl.json("get", "pvc", "c")["spec"]["volumeName"]
    kubectl("patch", "pv", volume, "-p", '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}')
    kubectl("delete", "pod/one", "pvc/c")
    kubectl("wait", "--for=jsonpath={.status.phase}=Released", f"pv/{volume}", WAIT)
    kubectl("patch", "pv", volume, "--type=json", "-p", '[{"op":"remove","path":"/spec/claimRef"}]')
    again = claim("again").replace("spec: {", f"spec: {{volumeName: {volume}, ")
    kubectl.apply(again + "---" + pod("two", "again"))
    kubectl("wait", "--for=condition=Ready", "pod/two", WAIT)
    assert logged(kubectl, "two") == ["one", "two"]
    kubectl("patch", "pv", volume, "-p", '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}')


def test_a_volume_grows_and_does_not_shrink(kubectl: Kubectl) -> None:
    kubectl.apply(claim("c") + "---" + pod("one", "c"))
    kubectl("wait", "--for=condition=Ready", "pod/one", WAIT)

    def size(storage: str) -> str:
        return f'{{"spec":{{"resources":{{"requests":{{"storage":"{storage}"}}}}}}}}'

    kubectl("patch", "pvc", "c", "-p", size("3Gi"))
    kubectl("wait", "--for=jsonpath={.status.capacity.storage}=3Gi", "pvc/c", WAIT)
    assert kubectl.json("get", "pv", kubectl.json("get", "pvc", "c")["spec"]["volumeName"])["spec"]["capacity"] == {
        "storage": "3Gi"
    }
    assert "field can not be less than status.capacity" in kubectl.fails("patch", "pvc", "c", "-p", size("2Gi"))


def test_an_ephemeral_volume_comes_and_goes_with_its_pod(kubectl: Kubectl) -> None:
    kubectl.apply(EPHEMERAL)
    kubectl("wait", "--for=condition=Ready", "pod/scratch", WAIT)
    until(lambda: kubectl.run("exec", "scratch", "--", "cat", "/b/file").stdout == "two\n")
    assert kubectl("exec", "scratch", "--", "cat", "/whole/deep/down/file", "/whole/of-scratch/file") == "one\ntwo\n"
    assert kubectl("get", "pvc", "-o", "name").split() == ["persistentvolumeclaim/scratch-v"]
    kubectl("delete", "pod", "scratch")
    kubectl("wait", "--for=delete", "pvc/scratch-v", WAIT)


def test_what_cannot_be_is_said(kubectl: Kubectl) -> None:
    kubectl.apply(claim("many", "ReadWriteMany") + "---" + pod("many-pod", "many"))
    assert "access mode ReadWriteMany is not supported" in warning(kubectl, "many", "ProvisioningFailed")
    kubectl.apply(claim("fast").replace("spec: {", "spec: {storageClassName: fast, "))
    assert warning(kubectl, "fast", "ProvisioningFailed") == 'storageclass.storage.k8s.io "fast" not found'
    kubectl.apply(pod("lonely", "missing"))
    assert 'persistentvolumeclaim "missing" not found' in warning(kubectl, "lonely", "FailedScheduling")
    kubectl.apply(claim("own", "ReadWriteOncePod") + "---" + pod("first", "own"))
    kubectl("wait", "--for=condition=Ready", "pod/first", WAIT)
    kubectl.apply(pod("second", "own"))
    told = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    assert told in warning(kubectl, "second", "FailedScheduling")
    kubectl("delete", "pod", "first")
    kubectl("wait", "--for=condition=Ready", "pod/second", WAIT)
