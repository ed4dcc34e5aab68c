"""kubectl get: every output, selector and paging."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import yaml

from e2e.kubectl import Kubectl
from e2e.manifests import CLAIM, CONFIG_MAPS, DEPLOYMENT, DEVICE_CLASS, NODE, NODE_STATUS, POD, SLICE, TEMPLATE, named

pytestmark = pytest.mark.slow

Unique = Callable[[str], str]


def test_outputs_of_a_claim(kubectl: Kubectl) -> None:
    kubectl.apply(CLAIM)
    header, row = kubectl.rows("get", "resourceclaims")
    assert header == ["NAME", "STATE", "AGE"]
    assert row[:2] == ["shared", "pending"]
    assert kubectl("get", "resourceclaim", "-o", "name") == "resourceclaim.resource.k8s.io/shared\n"
    assert kubectl.json("get", "resourceclaim/shared")["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert yaml.safe_load(kubectl("get", "resourceclaim", "shared", "-o", "yaml"))["kind"] == "ResourceClaim"
    path = "jsonpath={.spec.devices.requests[*].exactly.deviceClassName}"
    assert kubectl("get", "resourceclaim", "shared", "-o", path) == "gpu.example.com"
    columns = "custom-columns=N:.metadata.name,MODE:.spec.devices.requests[0].exactly.allocationMode"
    assert kubectl.rows("get", "resourceclaim", "-o", columns) == [["N", "MODE"], ["shared", "ExactCount"]]
    template = "go-template={{range .items}}{{.metadata.name}};{{end}}"
    assert kubectl("get", "resourceclaims", "-o", template) == "shared;"
    assert kubectl.rows("get", "resourceclaims", "--show-labels")[1][-1] == "app=web"
    assert kubectl.rows("get", "resourceclaims", "-L", "app")[1][-1] == "web"
    assert kubectl("get", "resourceclaims", "--no-headers").startswith("shared")
    assert kubectl("get", "resourceclaims", "--show-kind", "--no-headers").startswith(
        "resourceclaim.resource.k8s.io/shared"
    )
    shown = kubectl("get", "resourceclaim", "shared", "-o", "yaml", "--show-managed-fields")
    assert yaml.safe_load(shown)["metadata"]["managedFields"][0]["manager"] == "kubectl-client-side-apply"


def test_selectors_sorting_and_pages(kubectl: Kubectl) -> None:
    kubectl.apply(CONFIG_MAPS)
    names = ("get", "configmaps", "-o", "name")
    assert kubectl(*names, "-l", "set=one").split() == ["configmap/a", "configmap/b"]
    assert kubectl(*names, "-l", "set!=one,set").split() == ["configmap/c"]
    assert kubectl(*names, "-l", "set in (two, three)").split() == ["configmap/c"]
    assert kubectl(*names, "--field-selector", "metadata.name=b").split() == ["configmap/b"]
    assert '"data.rank" is not a known field selector' in kubectl.fails("get", "cm", "--field-selector", "data.rank=1")
    assert "field label not supported: spec.x" in kubectl.fails("get", "pods", "--field-selector", "spec.x=1")
    assert kubectl(*names, "--sort-by", ".data.rank", "-l", "set").split() == [
        "configmap/b",
        "configmap/c",
        "configmap/a",
    ]
    assert kubectl(*names, "--chunk-size", "1", "-l", "set").split() == ["configmap/a", "configmap/b", "configmap/c"]
    assert [row[0] for row in kubectl.rows("get", "cm", "--chunk-size", "2", "-l", "set")] == ["NAME", "a", "b", "c"]
    assert [row[1] for row in kubectl.rows("get", "cm", "-A", "-l", "set=two") if row[0] == kubectl.namespace] == ["c"]
    assert kubectl("get", "cm/a", "cm/c", "-o", "name").split() == ["configmap/a", "configmap/c"]
    assert "No resources found" in kubectl.warns("get", "cm", "-l", "set=none")


def test_get_says_what_is_missing(kubectl: Kubectl) -> None:
    assert kubectl.fails("get", "cm", "nope") == 'Error from server (NotFound): configmaps "nope" not found\n'
    assert kubectl("get", "cm", "nope", "--ignore-not-found") == ""
    assert 'the server doesn\'t have a resource type "unicorns"' in kubectl.fails("get", "unicorns")
    message = 'Error from server (NotFound): resourceclaims.resource.k8s.io "nope" not found\n'
    assert kubectl.fails("get", "resourceclaim", "nope") == message
    assert 'namespaces "no-such-namespace" not found' in kubectl.fails("get", "ns", "no-such-namespace")
    assert "unable to parse requirement" in kubectl.fails("get", "cm", "-l", "a b c")


def test_columns_of_common_kinds(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(POD)
    header, row = kubectl.rows("get", "pods")
    assert (header, row[:4]) == (["NAME", "READY", "STATUS", "RESTARTS", "AGE"], ["web", "0/1", "Pending", "0"])
    header, row = kubectl.rows("get", "pods", "-o", "wide")
    assert header[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert row[5:] == ["<none>", "<none>", "<none>", "<none>"]
    assert (
        kubectl("get", "pods", "--field-selector", "status.phase=Pending,spec.nodeName=", "-o", "name") == "pod/web\n"
    )
    assert kubectl("get", "pods", "--field-selector", "status.phase!=Pending", "-o", "name") == ""
    kubectl.apply(DEPLOYMENT)
    header, row = kubectl.rows("get", "deployments", "-o", "wide")
    assert header == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert (row[0], row[1], row[-3:]) == ("web", "0/2", ["main", "nginx:1", "app=web"])
    assert [row[0] for row in kubectl.rows("get", "all")][:2] == ["NAME", "pod/web"]
    header, row = kubectl.rows("get", "namespace", kubectl.namespace)
    assert (header, row[:2]) == (["NAME", "STATUS", "AGE"], [kubectl.namespace, "Active"])
    node = unique("node")
    kubectl.apply(named(NODE, node))
    assert kubectl.rows("get", "node", node)[1][:3] == [node, "Unknown", "<none>"]
    kubectl("patch", "node", node, "--subresource=status", "-p", NODE_STATUS)
    header, row = kubectl.rows("get", "node", node, "-o", "wide")
    assert header[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert (row[1], row[4], row[5]) == ("Ready", "v1.37.0", "192.0.2.7")


def test_columns_of_device_kinds(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(named(SLICE, slice_name := unique("slice")))
    header, row = kubectl.rows("get", "resourceslice", slice_name)
    assert header == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert row[:4] == [slice_name, f"{slice_name}-node", "fake.example.com", f"{slice_name}-pool"]
    selector = f"spec.driver=fake.example.com,spec.nodeName={slice_name}-node"
    found = kubectl("get", "resourceslices", "--field-selector", selector, "-o", "name")
    assert found == f"resourceslice.resource.k8s.io/{slice_name}\n"
    kubectl.apply(named(DEVICE_CLASS, name := unique("class")))
    assert kubectl.rows("get", "deviceclass", name)[0] == ["NAME", "AGE"]
    kubectl.apply(TEMPLATE)
    assert kubectl.rows("get", "resourceclaimtemplates")[1][0] == "single"


def test_watch_shows_changes_as_they_come(kubectl: Kubectl) -> None:
    kubectl.apply(CLAIM)
    watching = subprocess.Popen(
        kubectl.command(["get", "resourceclaims", "-w", "--output-watch-events", "--request-timeout", "30s"]),
        env=kubectl.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().split() == ["EVENT", "NAME", "STATE", "AGE"]
        assert watching.stdout.readline().split()[:3] == ["ADDED", "shared", "pending"]
        kubectl("label", "resourceclaim", "shared", "x=y")
        assert watching.stdout.readline().split()[:3] == ["MODIFIED", "shared", "pending"]
        kubectl("delete", "resourceclaim", "shared")
        assert watching.stdout.readline().split()[:3] == ["DELETED", "shared", "pending"]
    finally:
        watching.kill()
        watching.communicate()


def test_raw_paths(kubectl: Kubectl) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert kubectl("get", "--raw", path) == "ok"
    assert "[+]ping ok" in kubectl("get", "--raw", "/readyz?verbose")
    assert '"gitVersion"' in kubectl("get", "--raw", "/version")
    assert '"APIGroupList"' in kubectl("get", "--raw", "/apis")
    assert '"resourceclaims"' in kubectl("get", "--raw", "/apis/resource.k8s.io/v1")
    assert "apiserver_request" in kubectl("get", "--raw", "/metrics")
    assert "apis/resource.k8s.io/v1" in kubectl("get", "--raw", "/openapi/v3")
    assert "io.k8s.api" in kubectl("get", "--raw", "/openapi/v2")
    assert "(NotFound)" in kubectl.fails("get", "--raw", "/apis/nope.example.com/v1")


def test_deprecated_versions_warn_whatever_is_asked(kubectl: Kubectl) -> None:
    warning = "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\n"
    kubectl.apply("apiVersion: v1\nkind: Endpoints\nmetadata: {name: e}\n")
    assert warning in kubectl.warns("get", "endpoints")
    assert warning in kubectl.warns("get", "endpoints", "e", "-o", "yaml")
    assert warning in kubectl.warns("label", "endpoints", "e", "a=b")
    assert warning in kubectl.warns("delete", "endpoints", "e")
    assert "Warning: v1 ComponentStatus is deprecated in v1.19+" in kubectl.warns("get", "componentstatuses")
