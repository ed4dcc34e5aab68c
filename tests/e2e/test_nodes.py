"""kubectl taint, cordon, uncordon and drain."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from e2e.kubectl import Kubectl
from e2e.manifests import NODE, POD, named

pytestmark = pytest.mark.slow

Unique = Callable[[str], str]


def test_taints(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(named(NODE, node := unique("node")))
    assert kubectl("taint", "node", node, "a=b:NoSchedule") == f"node/{node} tainted\n"
    assert {"key": "a", "value": "b", "effect": "NoSchedule"} in kubectl.json("get", "node", node)["spec"]["taints"]
    assert "already has a taint" in kubectl.fails("taint", "node", node, "a=c:NoSchedule")
    kubectl("taint", "node", node, "a=c:NoSchedule", "--overwrite")
    kubectl("taint", "node", node, "x:NoExecute")
    assert kubectl("taint", "node", node, "a-") == f"node/{node} untainted\n"
    keys = [taint["key"] for taint in kubectl.json("get", "node", node)["spec"]["taints"]]
    assert sorted(keys) == ["node.kubernetes.io/not-ready", "x"]


def test_cordon_and_drain(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(named(NODE, node := unique("node")))
    assert kubectl("cordon", node) == f"node/{node} cordoned\n"
    assert kubectl.rows("get", "node", node)[1][1] == "Unknown,SchedulingDisabled"
    assert kubectl("cordon", node) == f"node/{node} already cordoned\n"
    assert kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    kubectl.apply(POD.replace("spec:", f"spec:\n  nodeName: {node}", 1).replace("Seconds: 1", "Seconds: 0"))
    refused = kubectl.fails("drain", node, "--timeout=5s")
    assert "declare no controller" in refused
    drained = kubectl("drain", node, "--force", "--timeout=20s")
    assert "pod/web evicted" in drained
    assert f"node/{node} drained" in drained
    assert kubectl("get", "pods", "-o", "name") == ""
    assert kubectl.json("get", "node", node)["spec"]["unschedulable"]


def test_a_budget_stops_evictions(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(named(NODE, node := unique("node")))
    kubectl.apply(POD.replace("spec:", f"spec:\n  nodeName: {node}", 1))
    ready = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "web", "--subresource=status", "-p", ready)
    kubectl("create", "poddisruptionbudget", "pdb", "--selector=app=web", "--min-available=1")
    kubectl("patch", "pdb", "pdb", "--subresource=status", "--type=merge", "-p", '{"status":{"observedGeneration":1}}')
    stopped = kubectl.run("drain", node, "--force", "--timeout=1s")
    assert stopped.returncode == 1
    assert "Cannot evict pod as it would violate the pod's disruption budget" in stopped.stderr
    assert kubectl("get", "pods", "-o", "name") == "pod/web\n"


def test_binding_a_pod(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(named(NODE, node := unique("node")))
    kubectl.apply(POD)
    binding = f"apiVersion: v1\nkind: Binding\nmetadata: {{name: web}}\ntarget: {{kind: Node, name: {node}}}\n"
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/web/binding"
    kubectl("create", "--raw", path, "-f", "-", stdin=_as_json(binding))
    assert kubectl("get", "pods", "--field-selector", f"spec.nodeName={node}", "-o", "name") == "pod/web\n"
    refused = kubectl.fails("create", "--raw", path, "-f", "-", stdin=_as_json(binding))
    assert f'pod web is already assigned to node "{node}"' in refused


def _as_json(manifest: str) -> str:
    return json.dumps(yaml.safe_load(manifest))
