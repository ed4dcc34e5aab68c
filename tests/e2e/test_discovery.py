"""kubectl explain, api-resources, api-versions, version, cluster-info and validation."""

from __future__ import annotations

import json

import pytest

from e2e.kubectl import Kubectl

pytestmark = pytest.mark.slow

_DEVICE_KINDS = ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses", "devicetaintrules")


@pytest.mark.parametrize("kind", _DEVICE_KINDS)
def test_explain_device_kinds(kubectl: Kubectl, kind: str) -> None:
    shown = kubectl("explain", kind)
    assert "GROUP:      resource.k8s.io" in shown
    assert "VERSION:    v1\n" in shown
    assert "spec\t<" in shown
    deep = kubectl("explain", kind, "--recursive")
    assert deep.count("\n") > shown.count("\n")
    older = "v1alpha3" if kind == "devicetaintrules" else "v1beta1"
    assert f"VERSION:    {older}" in kubectl("explain", kind, f"--api-version=resource.k8s.io/{older}")


def test_explain_fields(kubectl: Kubectl) -> None:
    shown = kubectl("explain", "resourceclaim.spec.devices.requests.exactly.selectors.cel.expression")
    assert "FIELD: expression <string>" in shown
    assert "FIELD: containers <[]Container>" in kubectl("explain", "pod.spec.containers")
    assert "FIELD: restartPolicy <string>" in kubectl("explain", "pod.spec.restartPolicy")
    assert "FIELD: replicas <integer>" in kubectl("explain", "deployment.spec.replicas")
    assert "allocationMode" in kubectl("explain", "resourceclaim.spec.devices.requests.exactly")
    assert 'the server doesn\'t have a resource type "unicorn"' in kubectl.fails("explain", "unicorn")
    assert 'field "nope" does not exist' in kubectl.fails("explain", "pod.nope")
    assert "resourceClaims" in kubectl("explain", "pod.spec", "--recursive")
    assert "GROUP:      apps" in kubectl("explain", "deployments.apps")


def test_api_resources(kubectl: Kubectl) -> None:
    names = kubectl("api-resources", "--api-group=resource.k8s.io", "-o", "name").split()
    assert {f"{kind}.resource.k8s.io" for kind in _DEVICE_KINDS} <= set(names)
    header, *rows = kubectl.rows("api-resources", "--api-group=apps")
    assert header == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in rows
    everything = set(kubectl("api-resources", "-o", "name").split())
    assert {"pods", "nodes", "jobs.batch", "leases.coordination.k8s.io"} <= everything
    assert len(everything) >= 60
    assert "bindings" not in kubectl("api-resources", "--verbs=list", "-o", "name").split()
    assert "nodes" in kubectl("api-resources", "--namespaced=false", "-o", "name").split()
    wide = kubectl("api-resources", "-o", "wide", "--api-group=resource.k8s.io")
    assert "create,delete,deletecollection,get,list,patch,update,watch" in wide
    assert "pods" in kubectl("api-resources", "--categories=all", "-o", "name").split()
    assert "resourceclaims.resource.k8s.io" in kubectl("api-resources", "--cached", "-o", "name").split()
    versions = kubectl("api-versions").split()
    assert {"v1", "apps/v1", "resource.k8s.io/v1", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"} <= set(
        versions
    )


def test_the_server_says_what_it_is(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("version", "-o", "json"))
    assert version["serverVersion"]["major"] == "1"
    assert "Kubernetes control plane" in kubectl("cluster-info")
    assert '"kind": "PodList"' in kubectl("cluster-info", "dump", "--namespaces", kubectl.namespace)
    assert "ok" in kubectl("get", "--raw", "/readyz")
    assert "kubectl" in kubectl("completion", "bash")
    assert "resourceclaims" in kubectl("__complete", "get", "resourcecl")
    kubectl("create", "cm", "findme")
    assert "findme" in kubectl("__complete", "get", "cm", "fi")


def test_unknown_fields(kubectl: Kubectl) -> None:
    wrong = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, colour: red}\nvalues: {}\n"
    refused = kubectl.fails("create", "-f", "-", stdin=wrong)
    assert 'strict decoding error: unknown field "metadata.colour", unknown field "values"' in refused
    warned = kubectl.warns("create", "--validate=warn", "-f", "-", stdin=wrong)
    assert 'Warning: unknown field "metadata.colour"' in warned
    assert kubectl.warns("replace", "--validate=ignore", "-f", "-", stdin=wrong) == ""
    claim = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n"
        "spec: {devices: {requests: [{name: a, exactly: {deviceClass: x}}]}}\n"
    )
    refused = kubectl.fails("apply", "-f", "-", stdin=claim)
    assert 'unknown field "spec.devices.requests[0].exactly.deviceClass"' in refused
    warned = kubectl.warns("patch", "cm", "m", "--type=merge", "-p", '{"dat":{"a":"b"}}')
    assert 'Warning: unknown field "dat"' in warned
    kubectl.fails("create", "-f", "-", stdin="apiVersion: v1\nkind: Unicorn\nmetadata: {name: u}\n")
    assert "no matches for kind" in kubectl.fails(
        "create", "-f", "-", stdin="apiVersion: x/v1\nkind: Yes-1\nmetadata: {name: u}\n"
    )
    kubectl.fails("create", "-f", "-", stdin="kind: ConfigMap\nmetadata: {name: u}\n")
