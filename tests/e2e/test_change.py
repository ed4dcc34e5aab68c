"""kubectl patch, label, annotate, scale, set and rollout: changes of parts."""

from __future__ import annotations

import json

import pytest

from e2e.kubectl import Kubectl
from e2e.manifests import CLAIM, CONFIG_MAPS, DEPLOYMENT, POD

pytestmark = pytest.mark.slow


def test_patches_of_every_type(kubectl: Kubectl) -> None:
    kubectl.apply(CONFIG_MAPS)
    patch = ("patch", "cm", "a")
    operations = '[{"op":"test","path":"/data/rank","value":"3"},{"op":"add","path":"/data/new","value":"x"}]'
    assert kubectl(*patch, "--type=json", "-p", operations) == "configmap/a patched\n"
    assert kubectl.json("get", "cm", "a")["data"] == {"rank": "3", "new": "x"}
    refused = kubectl.fails(*patch, "--type=json", "-p", '[{"op":"test","path":"/data/rank","value":"4"}]')
    assert refused == "The request is invalid: the server rejected our request due to an error in our request\n"
    assert kubectl(*patch, "--type=merge", "-p", '{"data":{"new":null}}') == "configmap/a patched\n"
    assert kubectl.json("get", "cm", "a")["data"] == {"rank": "3"}
    assert kubectl(*patch, "--type=strategic", "-p", '{"data":{"s":"1"}}') == "configmap/a patched\n"
    assert kubectl(*patch, "-p", '{"data":{"s":"1"}}') == "configmap/a patched (no change)\n"
    assert kubectl(*patch, "-p", "data: {yaml: 'yes'}") == "configmap/a patched\n"
    kubectl(*patch, "-p", '{"data":{"s":"2"}}', "--dry-run=server")
    assert kubectl.json("get", "cm", "a")["data"]["s"] == "1"
    assert 'configmaps "zz" not found' in kubectl.fails("patch", "cm", "zz", "-p", "{}")


def test_strategic_patches_know_the_keys_of_lists(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    containers = '{"spec":{"template":{"spec":{"containers":[%s]}}}}'
    kubectl("patch", "deployment", "web", "-p", containers % '{"name":"main","env":[{"name":"A","value":"1"}]}')
    container = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["env"]) == ("nginx:1", [{"name": "A", "value": "1"}])
    kubectl("patch", "deployment", "web", "-p", containers % '{"name":"second","image":"x"}')
    kubectl("patch", "deployment", "web", "-p", containers % '{"name":"second","$patch":"delete"}')
    names = "jsonpath={.spec.template.spec.containers[*].name}"
    assert kubectl("get", "deployment", "web", "-o", names) == "main"
    refused = kubectl.fails("patch", "deployment", "web", "-p", '{"spec":{"selector":{"matchLabels":{"app":"x"}}}}')
    assert "field is immutable" in refused


def test_status_is_a_subresource(kubectl: Kubectl) -> None:
    kubectl.apply(CLAIM)
    # The server refuses what a claim in another test's namespace has got.
    device = f"gpu-{kubectl.namespace}"
    allocation = {
        "devices": {"results": [{"request": "gpu", "driver": "d.example.com", "pool": "p", "device": device}]}
    }
    status = json.dumps({"status": {"allocation": allocation}})
    kubectl("patch", "resourceclaim", "shared", "--type=merge", "-p", status)
    assert kubectl.rows("get", "resourceclaims")[1][1] == "pending"
    kubectl("patch", "resourceclaim", "shared", "--type=merge", "--subresource=status", "-p", status)
    assert kubectl.rows("get", "resourceclaims")[1][1] == "allocated"
    assert (
        kubectl(
            "get",
            "resourceclaim",
            "shared",
            "--subresource=status",
            "-o",
            "jsonpath={.status.allocation.devices.results[0].device}",
        )
        == device
    )
    change = '{"spec":{"devices":{"requests":[]}}}'
    assert "field is immutable" in kubectl.fails("patch", "resourceclaim", "shared", "--type=merge", "-p", change)
    kubectl.apply(POD)
    kubectl("patch", "pod", "web", "--subresource=status", "-p", '{"status":{"phase":"Running"}}')
    assert kubectl("get", "pods", "--field-selector=status.phase=Running", "-o", "name") == "pod/web\n"


def test_labels_and_annotations(kubectl: Kubectl) -> None:
    kubectl.apply(CLAIM)
    claim = ("resourceclaim", "shared")
    assert kubectl("label", *claim, "color=red") == "resourceclaim.resource.k8s.io/shared labeled\n"
    assert "already has a value (red), and --overwrite is false" in kubectl.fails("label", *claim, "color=blue")
    kubectl("label", *claim, "color=blue", "--overwrite")
    assert sorted(kubectl("label", *claim, "--list").split()) == ["app=web", "color=blue"]
    assert kubectl("label", *claim, "color-") == "resourceclaim.resource.k8s.io/shared unlabeled\n"
    value = json.dumps({"metadata": {"labels": {"a": "x" * 64}}})
    refused = kubectl.fails("patch", *claim, "--type=merge", "-p", value)
    assert "metadata.labels: Invalid value: " in refused
    assert "must be no more than 63 bytes" in refused
    assert kubectl("annotate", *claim, "note=some text") == "resourceclaim.resource.k8s.io/shared annotated\n"
    assert "note=some text" in kubectl("annotate", *claim, "--list")
    kubectl("annotate", *claim, "note-")
    kubectl.apply(CONFIG_MAPS)
    assert kubectl("label", "cm", "-l", "set=one", "x=y").split("\n")[:2] == [
        "configmap/a labeled",
        "configmap/b labeled",
    ]
    assert kubectl("label", "cm", "--all", "all=yes", "--dry-run=server").count("dry run") >= 3


def test_scale(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    assert kubectl("scale", "deployment", "web", "--replicas=4") == "deployment.apps/web scaled\n"
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "4"
    refused = kubectl.fails("scale", "deployment", "web", "--current-replicas=9", "--replicas=1")
    assert "Expected replicas to be 9, was 4" in refused
    scale = kubectl.json("get", "deployment", "web", "--subresource=scale")
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == ("Scale", 4, "app=web")
    kubectl("patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":1}}')
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "1"
    stateful = DEPLOYMENT.replace("Deployment", "StatefulSet").replace("replicas: 2", "replicas: 2\n  serviceName: web")
    kubectl.apply(stateful)
    assert kubectl("scale", "sts/web", "--replicas=0") == "statefulset.apps/web scaled\n"


def test_set_changes_parts_of_a_deployment(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    assert kubectl("set", "image", "deployment/web", "main=nginx:9") == "deployment.apps/web image updated\n"
    assert kubectl("set", "env", "deployment/web", "A=1") == "deployment.apps/web env updated\n"
    assert kubectl("set", "env", "deployment/web", "--list").splitlines()[-1] == "A=1"
    kubectl("set", "resources", "deployment/web", "--limits=cpu=200m", "--requests=cpu=100m")
    kubectl("create", "serviceaccount", "robot")
    assert "serviceaccount updated" in kubectl("set", "serviceaccount", "deployment/web", "robot")
    spec = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert (container["image"], container["resources"]["limits"]) == ("nginx:9", {"cpu": "200m"})
    assert spec["serviceAccountName"] == "robot"
    kubectl("expose", "deployment", "web", "--port=80")
    assert kubectl("set", "selector", "service", "web", "x=y") == "service/web selector updated\n"
    kubectl("create", "rolebinding", "rb", "--clusterrole=view", "--user=ann")
    assert "subjects updated" in kubectl("set", "subject", "rolebinding", "rb", "--user=bob")
    assert kubectl("rollout", "restart", "deployment/web") == "deployment.apps/web restarted\n"
    assert kubectl("rollout", "pause", "deployment/web") == "deployment.apps/web paused\n"
    assert kubectl("rollout", "resume", "deployment/web") == "deployment.apps/web resumed\n"


def test_rollouts_without_controllers(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    assert "No rollout history found." in kubectl("rollout", "history", "deployment/web")
    assert "timed out waiting" in kubectl.fails("rollout", "status", "deployment/web", "--timeout=1s")
    counts = '"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2'
    status = f'{{"status":{{"observedGeneration":1,{counts}}}}}'
    kubectl("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p", status)
    assert 'deployment "web" successfully rolled out' in kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    assert kubectl.rows("get", "deployment", "web")[1][:4] == ["web", "2/2", "2", "2"]


def test_pods_change_only_where_they_may(kubectl: Kubectl) -> None:
    kubectl.apply(POD)
    assert kubectl("patch", "pod", "web", "-p", '{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}')
    refused = kubectl.fails("patch", "pod", "web", "-p", '{"spec":{"restartPolicy":"Never"}}')
    assert "spec: Forbidden: pod updates may not change fields other than" in refused
    resized = '{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"200m"}}}]}}'
    assert "Forbidden" in kubectl.fails("patch", "pod", "web", "-p", resized)
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web/resize"
    pod = kubectl.json("get", "pod", "web")
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "200m"
    kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(pod))
    cpu = "jsonpath={.spec.containers[0].resources.requests.cpu}"
    assert kubectl("get", "pod", "web", "-o", cpu) == "200m"
    phase = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nstatus: {phase: Running}\n"
    assert kubectl("replace", "--subresource=status", "-f", "-", stdin=phase) == "pod/web replaced\n"
    assert kubectl.rows("get", "pods")[1][2] == "Running"
    assert "does not have a host assigned" in kubectl.fails("exec", "web", "--", "true")
    assert kubectl("logs", "web") == ""
