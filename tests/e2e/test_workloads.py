"""Workloads as people use them: `allot up` with simulated nodes, and kubectl."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.clusters import WAIT, until
from e2e.kubectl import Kubectl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def pods_of(name: str, image: str = "app:1", **spec: str) -> str:
    more = "".join(f", {key}: {value}" for key, value in spec.items())
    # Go's encoder escapes what means something in HTML.
    containers = f'containers: [{{name: c, image: "{image}", env: [{{name: E, value: "1 < 2 & 3"}}]}}]'
    return (
        f"selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, "
        f"spec: {{terminationGracePeriodSeconds: 1, {containers}{more}}}}}"
    )


DEPLOYMENT = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, annotations: {{kubernetes.io/change-cause: first}}}}
spec: {{replicas: 4, {pods_of("web")}}}
"""
STATEFUL_SET = f"""
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec: {{replicas: 3, serviceName: db, {pods_of("db")}}}
"""
DAEMON_SET = f"""
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent}}
spec: {{{pods_of("agent", tolerations="[{operator: Exists}]")}}}
"""
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NAME}
spec: {minAvailable: COUNT, selector: {matchLabels: {app: NAME}}}
"""


@pytest.fixture
def kubectl(user_anywhere: Kubectl) -> Kubectl:
    """kubectl on a cluster with three nodes, of allot or around a real kube-apiserver."""
    return user_anywhere


def images(kubectl: Kubectl, app: str) -> list[str]:
    """The images of pods that are not going."""
    pods = kubectl.json("get", "pods", "-l", f"app={app}")["items"]
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return [pod["spec"]["containers"][0]["image"] for pod in staying]


def test_a_deployment_is_rolled_out_scaled_paused_and_undone(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/web", WAIT)
    kubectl("wait", "--for=condition=Available", "deploy/web", WAIT)
    assert kubectl.rows("get", "deploy", "web")[1][1:4] == ["4/4", "4", "4"]
    kubectl("set", "image", "deploy/web", "c=app:2")
    kubectl("annotate", "deploy/web", "kubernetes.io/change-cause=second", "--overwrite")
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/web", WAIT)
    assert images(kubectl, "web") == ["app:2"] * 4
    history = kubectl.rows("rollout", "history", "deploy/web")
    assert [row for row in history if row[0].isdigit()] == [["1", "first"], ["2", "second"]]
    assert "app:1" in kubectl("rollout", "history", "deploy/web", "--revision=1")
    kubectl("scale", "deploy/web", "--replicas=6", "--current-replicas=4")
    kubectl("rollout", "status", "deploy/web", WAIT)
    kubectl("rollout", "pause", "deploy/web")
    kubectl("set", "image", "deploy/web", "c=app:3")
    assert "cannot rollback a paused deployment" in kubectl.fails("rollout", "undo", "deploy/web")
    paused = until(lambda: _condition(kubectl, "deploy/web", "Progressing", "DeploymentPaused"))
    assert (paused["status"], paused["message"]) == ("Unknown", "Deployment is paused")
    assert set(images(kubectl, "web")) == {"app:2"}
    kubectl("rollout", "resume", "deploy/web")
    kubectl("rollout", "status", "deploy/web", WAIT)
    assert images(kubectl, "web") == ["app:3"] * 6
    kubectl("rollout", "undo", "deploy/web", "--to-revision=1")
    kubectl("rollout", "status", "deploy/web", WAIT)
    assert images(kubectl, "web") == ["app:1"] * 6
    before = {pod["metadata"]["name"] for pod in kubectl.json("get", "pods")["items"]}
    kubectl("rollout", "restart", "deploy/web")
    kubectl("rollout", "status", "deploy/web", WAIT)
    until(lambda: not before & {pod["metadata"]["name"] for pod in kubectl.json("get", "pods")["items"]})
    events = kubectl("events", "--for", "deploy/web")
    assert "ScalingReplicaSet" in events and "from 0 to 4" in events


def _condition(kubectl: Kubectl, what: str, type_: str, reason: str) -> Any:
    conditions = kubectl.json("get", what).get("status", {}).get("conditions", ())
    return next((one for one in conditions if (one["type"], one["reason"]) == (type_, reason)), None)


def test_what_keeps_pods_away_is_told(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "few", "--hard=pods=2")
    kubectl.apply(DEPLOYMENT.replace("replicas: 4", "replicas: 3, progressDeadlineSeconds: 1"))
    failed = until(lambda: _condition(kubectl, "deploy/web", "ReplicaFailure", "FailedCreate"))
    assert failed["status"] == "True" and "exceeded quota: few, requested: pods=1, used: pods=2" in failed["message"]
    late = until(lambda: _condition(kubectl, "deploy/web", "Progressing", "ProgressDeadlineExceeded"))
    assert late["message"].endswith("has timed out progressing.")
    assert "exceeded its progress deadline" in kubectl.fails("rollout", "status", "deploy/web", WAIT)
    kubectl("delete", "quota", "few")
    # Nobody tells a ReplicaSet that a quota has gone: it tries again, later each time.
    kubectl("scale", "deploy/web", "--replicas=4")
    until(lambda: kubectl.json("get", "deploy", "web")["status"].get("availableReplicas") == 4)
    until(lambda: not _condition(kubectl, "deploy/web", "ReplicaFailure", "FailedCreate"))
    refused = kubectl.fails(
        "apply", "-f", "-", stdin=DEPLOYMENT.replace("matchLabels: {app: web}", "matchLabels: {app: x}")
    )
    assert "`selector` does not match template `labels`" in refused or "field is immutable" in refused


def test_a_stateful_set_keeps_names_and_order(kubectl: Kubectl) -> None:
    kubectl.apply(STATEFUL_SET)
    kubectl("rollout", "status", "sts/db", WAIT)
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/db-0", "pod/db-1", "pod/db-2"]
    kubectl("patch", "sts", "db", "-p", '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}')
    kubectl("set", "image", "sts/db", "c=app:2")
    assert "partitioned roll out complete" in kubectl("rollout", "status", "sts/db", WAIT)
    assert images(kubectl, "db") == ["app:1", "app:1", "app:2"]
    kubectl("patch", "sts", "db", "-p", '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}')
    until(lambda: images(kubectl, "db") == ["app:2"] * 3)
    kubectl("rollout", "status", "sts/db", WAIT)
    assert [row[0] for row in kubectl.rows("rollout", "history", "sts/db") if row[0].isdigit()] == ["1", "2"]
    kubectl("rollout", "undo", "sts/db")
    until(lambda: images(kubectl, "db") == ["app:1"] * 3)
    uid = kubectl.json("get", "pod", "db-1")["metadata"]["uid"]
    kubectl("delete", "pod", "db-1", "--wait=false")
    until(lambda: _uid(kubectl, "db-1") not in ("", uid))
    kubectl("scale", "sts/db", "--replicas=1")
    until(lambda: kubectl("get", "pods", "-o", "name").split() == ["pod/db-0"])
    status = kubectl.json("get", "sts", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"]


def _uid(kubectl: Kubectl, pod: str) -> str:
    return kubectl("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


def test_a_daemon_set_is_on_every_node_and_updated_node_by_node(kubectl: Kubectl) -> None:
    kubectl.apply(DAEMON_SET)
    kubectl("rollout", "status", "ds/agent", WAIT)
    nodes = set(kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split())
    assert nodes >= {"t4-0", "t4-1", "t4-2"}
    where = kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").split()
    assert sorted(where) == sorted(nodes)
    kubectl("set", "image", "ds/agent", "c=app:2")
    assert "successfully rolled out" in kubectl("rollout", "status", "ds/agent", WAIT)
    until(lambda: images(kubectl, "agent") == ["app:2"] * len(nodes))
    kubectl("rollout", "undo", "ds/agent")
    until(lambda: images(kubectl, "agent") == ["app:1"] * len(nodes))
    kubectl("rollout", "restart", "ds/agent")
    kubectl("rollout", "status", "ds/agent", WAIT)
    selector = '{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"t4-0"}}}}}'
    kubectl("patch", "ds", "agent", "-p", selector)
    until(lambda: kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").split() == ["t4-0"])


def test_a_budget_holds_a_drain_until_there_are_enough(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT.replace("replicas: 4", "replicas: 3"))
    kubectl("rollout", "status", "deploy/web", WAIT)
    kubectl.apply(BUDGET.replace("NAME", "web").replace("COUNT", "3"))
    until(lambda: kubectl.json("get", "pdb", "web").get("status", {}).get("currentHealthy") == 3)
    node = kubectl.json("get", "pods")["items"][0]["spec"]["nodeName"]
    kubectl("cordon", node)
    try:
        arguments = ("drain", node, "--ignore-daemonsets", "--pod-selector=app=web")
        assert "Cannot evict pod as it would violate the pod's disruption budget" in kubectl.fails(
            *arguments, "--timeout=2s"
        )
        # One more pod elsewhere, and the drain goes on by itself.
        kubectl("scale", "deploy/web", "--replicas=5")
        assert f"node/{node} drained" in kubectl(*arguments, WAIT)
        until(lambda: kubectl.json("get", "pdb", "web")["status"]["currentHealthy"] == 5)
        where = kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}").split()
        assert node not in where
    finally:
        kubectl("uncordon", node)


def test_owners_take_their_pods_along_or_leave_them(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT.replace("replicas: 4", "replicas: 2"))
    kubectl("rollout", "status", "deploy/web", WAIT)
    pods = set(kubectl("get", "pods", "-o", "name").split())
    kubectl("delete", "deploy", "web", "--cascade=orphan")
    until(lambda: "ownerReferences" not in kubectl.json("get", "rs")["items"][0]["metadata"])
    assert set(kubectl("get", "pods", "-o", "name").split()) == pods
    # Another one of the same template adopts everything as it is.
    kubectl.apply(DEPLOYMENT.replace("replicas: 4", "replicas: 2"))
    kubectl("rollout", "status", "deploy/web", WAIT)
    assert set(kubectl("get", "pods", "-o", "name").split()) == pods and len(kubectl.json("get", "rs")["items"]) == 1
    kubectl("delete", "deploy", "web", "--cascade=foreground", WAIT)
    assert kubectl("get", "rs,pods", "-o", "name") == ""


def test_a_namespace_with_all_of_them_goes(kubectl: Kubectl) -> None:
    kubectl.apply(
        "---".join((DEPLOYMENT, STATEFUL_SET, DAEMON_SET, BUDGET.replace("NAME", "db").replace("COUNT", "3")))
    )
    for what in ("deploy/web", "sts/db", "ds/agent"):
        kubectl("rollout", "status", what, WAIT)
    kubectl("delete", "namespace", kubectl.namespace, WAIT)
    assert kubectl("get", "namespace", kubectl.namespace, "--ignore-not-found") == ""
