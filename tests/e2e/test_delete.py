"""kubectl delete, wait and finalizers."""

from __future__ import annotations

import json
import subprocess

import pytest

from e2e.kubectl import Kubectl
from e2e.manifests import CLAIM, CONFIG_MAPS, DEPLOYMENT, POD
from waiting import WAIT_S

pytestmark = pytest.mark.slow


def test_delete_by_name_label_and_all(kubectl: Kubectl) -> None:
    kubectl.apply(CONFIG_MAPS)
    assert kubectl("delete", "cm", "a").startswith('configmap "a" deleted')
    assert 'configmaps "a" not found' in kubectl.fails("delete", "cm", "a")
    assert kubectl("delete", "cm", "a", "--ignore-not-found") == ""
    assert kubectl("delete", "cm", "b", "--dry-run=server").startswith('configmap "b" deleted')
    assert kubectl("get", "cm", "b", "-o", "name") == "configmap/b\n"
    assert kubectl("delete", "cm", "-l", "set=one").startswith('configmap "b" deleted')
    assert kubectl("delete", "cm", "--all").count(" deleted") >= 1
    kubectl.apply(CONFIG_MAPS)
    assert kubectl("delete", "-f", "-", stdin=CONFIG_MAPS).count(" deleted") == 3
    kubectl.apply(CLAIM)
    shown = kubectl("delete", "resourceclaim/shared", "-o", "name")
    assert shown == "resourceclaim.resource.k8s.io/shared\n"
    kubectl.apply(CONFIG_MAPS)
    kubectl("delete", "cm", "--field-selector=metadata.name=c")
    assert kubectl("get", "cm", "-l", "set", "-o", "name").split() == ["configmap/a", "configmap/b"]


def test_finalizers_hold_objects(kubectl: Kubectl) -> None:
    kubectl.apply(CLAIM.replace("name: shared", "name: shared, finalizers: [example.com/hold]"))
    assert "deleted" in kubectl("delete", "resourceclaim", "shared", "--wait=false")
    claim = kubectl.json("get", "resourceclaim", "shared")
    assert claim["metadata"]["deletionTimestamp"]
    assert kubectl.rows("get", "resourceclaims")[1][1] == "deleted"
    added = '{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}'
    assert "Forbidden: no new finalizers can be added if the object is being deleted" in kubectl.fails(
        "patch", "resourceclaim", "shared", "--type=merge", "-p", added
    )
    waiting = subprocess.Popen(
        kubectl.command(["delete", "resourceclaim", "shared", "--timeout=30s"]),
        env=kubectl.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    kubectl("patch", "resourceclaim", "shared", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    waiting.communicate(timeout=WAIT_S)
    assert kubectl("get", "resourceclaim", "shared", "--ignore-not-found") == ""


def test_cascade_and_grace(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    kubectl("delete", "deployment", "web", "--cascade=orphan", "--wait=false")
    finalizers = kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.finalizers}", "--ignore-not-found")
    assert finalizers == '["orphan"]'
    kubectl("create", "deployment", "other", "--image=nginx")
    kubectl("delete", "deployment", "other", "--cascade=foreground", "--wait=false")
    finalizers = kubectl("get", "deployment", "other", "-o", "jsonpath={.metadata.finalizers}")
    assert finalizers == '["foregroundDeletion"]'
    kubectl.apply(POD)
    forced = kubectl.run("delete", "pod", "web", "--grace-period=0", "--force")
    assert forced.returncode == 0
    assert "Immediate deletion does not wait" in forced.stderr
    assert kubectl("get", "pod", "web", "--ignore-not-found") == ""
    kubectl.apply(POD)
    assert 'pod "web"' in kubectl("delete", "pod", "web")
    kubectl.apply(POD.replace("spec:", "spec:\n  nodeName: somewhere", 1))
    kubectl("delete", "pod", "web", "--wait=false")
    pod = kubectl.json("get", "pod", "web")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 1
    assert kubectl.rows("get", "pods")[1][2] == "Terminating"
    kubectl("delete", "pod", "web", "--now", "--wait=false")
    kubectl("delete", "pod", "web", "--grace-period=0", "--force")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_wait(kubectl: Kubectl) -> None:
    kubectl.apply(POD)
    short, long = "--timeout=1s", "--timeout=30s"
    refused = kubectl.fails("wait", "pod/web", "--for=condition=Ready", short)
    assert "timed out waiting for the condition" in refused
    waiting = subprocess.Popen(
        kubectl.command(["wait", "pod/web", "--for=condition=Ready", long]),
        env=kubectl.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    ready = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "web", "--subresource=status", "-p", ready)
    assert waiting.communicate(timeout=40)[0] == "pod/web condition met\n"
    assert kubectl("wait", "pod/web", "--for=jsonpath={.status.phase}=Running", long) == "pod/web condition met\n"
    assert "condition met" in kubectl("wait", "pod", "--all", "--for=condition=Ready", long)
    deleting = subprocess.Popen(
        kubectl.command(["wait", "pod/web", "--for=delete", long]),
        env=kubectl.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    kubectl("delete", "pod", "web")
    assert deleting.communicate(timeout=40)[0] in ("pod/web condition met\n", "")
    assert deleting.returncode == 0
    assert "no matching resources found" in kubectl.fails("wait", "pod", "-l", "x=none", "--for=condition=Ready", short)


def test_a_namespace_is_kept_until_it_is_finalized(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", name := f"{kubectl.namespace}-gone")
    kubectl("create", "configmap", "m", "-n", name)
    assert f'namespace "{name}" deleted' in kubectl("delete", "namespace", name, "--wait=false")
    assert kubectl.rows("get", "namespace", name)[1][1] == "Terminating"
    refused = kubectl.fails("create", "configmap", "other", "-n", name)
    assert f"unable to create new content in namespace {name} because it is being terminated" in refused
    assert 'configmap "m" deleted' in kubectl("delete", "cm", "--all", "-n", name)
    namespace = kubectl.json("get", "namespace", name)
    namespace["spec"]["finalizers"] = []
    kubectl("replace", "--raw", f"/api/v1/namespaces/{name}/finalize", "-f", "-", stdin=json.dumps(namespace))
    assert kubectl("get", "namespace", name, "--ignore-not-found") == ""
    assert f'namespaces "{name}" not found' in kubectl.fails("create", "configmap", "m", "-n", name)
    assert "is forbidden: this namespace may not be deleted" in kubectl.fails("delete", "namespace", "default")
