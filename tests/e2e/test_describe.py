"""kubectl describe and events."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from e2e.kubectl import Kubectl
from e2e.manifests import (
    CLAIM,
    DEPLOYMENT,
    DEVICE_CLASS,
    NODE,
    NODE_STATUS,
    POD,
    SLICE,
    TAINT_RULE,
    TEMPLATE,
    named,
)

pytestmark = pytest.mark.slow

Unique = Callable[[str], str]

_EVENT = """
apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: v1, kind: Pod, name: web, namespace: NAME, uid: UID}
reason: Tested
message: something happened
type: Warning
source: {component: tester}
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:00:00Z"
count: 1
"""


def test_device_kinds(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(CLAIM)
    shown = kubectl("describe", "resourceclaim", "shared")
    assert re.search(r"Device Class Name: +gpu.example.com", shown)
    assert re.search(r"Allocation Mode: +ExactCount", shown)
    kubectl.apply(TEMPLATE)
    assert re.search(r"Kind: +ResourceClaimTemplate", kubectl("describe", "resourceclaimtemplate", "single"))
    kubectl.apply(named(DEVICE_CLASS, name := unique("class")))
    assert 'Expression:  device.driver == "fake.example.com"' in kubectl("describe", "deviceclass", name)
    kubectl.apply(named(SLICE, name := unique("slice")))
    shown = kubectl("describe", "resourceslice", name)
    assert re.search(r"Resource Slice Count: +1", shown)
    assert re.search(r"String: +A100", shown)
    kubectl.apply(named(TAINT_RULE, name := unique("rule")))
    assert re.search(r"Effect: +NoExecute", kubectl("describe", "devicetaintrule", name))


def test_pods_and_nodes(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(POD)
    uid = kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
    kubectl.apply(_EVENT.replace("NAME", kubectl.namespace).replace("UID", uid))
    shown = kubectl("describe", "pod", "web")
    assert re.search(r"Status: +Pending", shown)
    assert re.search(r"QoS Class: +Burstable", shown)
    assert "node.kubernetes.io/not-ready:NoExecute op=Exists for 300s" in shown
    assert re.search(r"Warning +Tested .* tester +something happened", shown)
    node = unique("node")
    kubectl.apply(named(NODE, node))
    kubectl("patch", "node", node, "--subresource=status", "-p", NODE_STATUS)
    shown = kubectl("describe", "node", node)
    assert re.search(r"PodCIDR: +10.1.0.0/24", shown)
    assert re.search(r"Ready +True .* KubeletReady", shown)


def test_events(kubectl: Kubectl) -> None:
    kubectl.apply(_EVENT.replace("NAME", kubectl.namespace))
    header, row = kubectl.rows("get", "events")
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:] == ["Warning", "Tested", "pod/web", "something happened"]
    assert "something happened" in kubectl("events")
    assert "Tested" in kubectl("events", "--for", "pod/web")
    assert "No events found" in kubectl.warns("events", "--types", "Normal")
    assert kubectl("get", "events", "--field-selector", "involvedObject.name=web,reason=Tested", "-o", "name")
    assert kubectl("get", "events", "--field-selector", "involvedObject.name=other", "-o", "name") == ""
    newer = kubectl.json("get", "events.v1.events.k8s.io")["items"][0]
    assert (newer["note"], newer["regarding"]["name"], newer["deprecatedCount"]) == ("something happened", "web", 1)


def test_other_kinds(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(DEPLOYMENT)
    shown = kubectl("describe", "deployment", "web")
    assert "Replicas:               2 desired | 0 updated | 0 total | 0 available | 0 unavailable" in shown
    assert re.search(r"StrategyType: +RollingUpdate", shown)
    kubectl("expose", "deployment", "web", "--port=80")
    assert re.search(r"Port: +<unset>  80/TCP", kubectl("describe", "service", "web"))
    kubectl("create", "quota", "q", "--hard=pods=2")
    assert re.search(r"Resource +Used +Hard", kubectl("describe", "quota", "q"))
    assert "Resource Quotas" in kubectl("describe", "namespace", kubectl.namespace)
    kubectl("create", "configmap", "c", "--from-literal=a=1")
    assert "a:\n----\n1\n" in kubectl("describe", "cm", "c")
    kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    assert "k:  1 bytes" in kubectl("describe", "secret", "s")
    kubectl("create", "serviceaccount", "robot")
    assert re.search(r"Name: +robot", kubectl("describe", "sa", "robot"))
    kubectl("create", "role", "r", "--verb=get", "--resource=pods")
    assert re.search(r"pods +\[\] +\[\] +\[get\]", kubectl("describe", "role", "r"))
    kubectl("create", "job", "j", "--image=busybox")
    assert re.search(r"Parallelism: +1", kubectl("describe", "job", "j"))
    kubectl("create", "poddisruptionbudget", "pdb", "--selector=a=b", "--min-available=1")
    assert re.search(r"Min available: +1", kubectl("describe", "pdb", "pdb"))
    kubectl("create", "priorityclass", name := unique("pc"), "--value=7")
    assert re.search(r"Value: +7", kubectl("describe", "priorityclass", name))
