"""Every device kind in every version it is served in, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from e2e.kubectl import Kubectl
from e2e.manifests import CLAIM, DEVICE_CLASS, SLICE, TAINT_RULE, TEMPLATE, named

pytestmark = pytest.mark.slow

Unique = Callable[[str], str]

_OLD_CLAIM = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: old}
spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.example.com, count: 2}]}}
"""


def test_claims_in_every_version(kubectl: Kubectl) -> None:
    kubectl.apply(CLAIM)
    kubectl.apply(_OLD_CLAIM)
    current = kubectl.json("get", "resourceclaims.v1.resource.k8s.io", "old")
    assert current["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    middle = kubectl.json("get", "resourceclaims.v1beta2.resource.k8s.io", "old")
    assert middle["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.example.com"
    oldest = kubectl.json("get", "resourceclaims.v1beta1.resource.k8s.io", "shared")
    assert oldest["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
    kubectl("annotate", "resourceclaims.v1beta1.resource.k8s.io", "shared", "via=old")
    assert kubectl("get", "resourceclaim", "shared", "-o", "jsonpath={.metadata.annotations.via}") == "old"
    server_side = kubectl.apply(_OLD_CLAIM, "--server-side", "--force-conflicts")
    assert server_side == "resourceclaim.resource.k8s.io/old serverside-applied\n"
    kubectl.apply(TEMPLATE.replace("/v1", "/v1beta2"))
    assert kubectl("get", "resourceclaimtemplates.v1beta1.resource.k8s.io", "-o", "name").count("\n") == 1


def test_cluster_kinds_in_every_version(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(named(DEVICE_CLASS, name := unique("class")))
    for version in ("v1beta1", "v1beta2"):
        found = kubectl.json("get", f"deviceclasses.{version}.resource.k8s.io", name)
        assert found["apiVersion"] == f"resource.k8s.io/{version}"
    kubectl.apply(named(SLICE, name := unique("slice")))
    old = kubectl.json("get", "resourceslices.v1beta1.resource.k8s.io", name)["spec"]["devices"][0]
    assert old["basic"]["capacity"] == {"memory": {"value": "80Gi"}}
    assert kubectl.json("get", "resourceslices.v1beta2.resource.k8s.io", name)["spec"]["devices"][0]["attributes"]
    kubectl.apply(named(TAINT_RULE, name := unique("rule")))
    assert kubectl.rows("get", "devicetaintrule", name)[0][:3] == ["NAME", "KEY", "VALUE"]
    rule = kubectl.json("get", "devicetaintrules.v1beta2.resource.k8s.io", name)
    assert rule["spec"]["taint"]["timeAdded"]
    assert kubectl.json("get", "devicetaintrules.v1alpha3.resource.k8s.io", name)["metadata"]["generation"] == 1
    request = (
        "apiVersion: resource.k8s.io/v1alpha3\nkind: ResourcePoolStatusRequest\n"
        f"metadata: {{name: {unique('pool')}}}\nspec: {{driver: fake.example.com}}\n"
    )
    assert "created" in kubectl.apply(request)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("deviceClassName: ''", "spec.devices.requests[0].exactly.deviceClassName: Required value"),
        (
            "deviceClassName: x, count: -1",
            "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
        ),
        (
            "deviceClassName: x, allocationMode: Some",
            'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some"',
        ),
        (
            "deviceClassName: x, selectors: [{cel: {expression: 'nope('}}]",
            "exactly.selectors[0].cel.expression: Invalid value:",
        ),
        (
            "deviceClassName: x, adminAccess: true",
            "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label",
        ),
    ],
    ids=["no class", "negative count", "unknown mode", "bad expression", "admin access"],
)
def test_invalid_claims_get_the_usual_message(kubectl: Kubectl, change: str, message: str) -> None:
    refused = kubectl.fails("create", "-f", "-", stdin=CLAIM.replace("deviceClassName: gpu.example.com", change))
    assert 'The ResourceClaim "shared" is invalid: ' in refused
    assert message in refused


def test_other_invalid_objects(kubectl: Kubectl, unique: Unique) -> None:
    name = unique("bad")
    refused = kubectl.fails("create", "-f", "-", stdin=named(SLICE, name).replace("driver: fake", "driver: FAKE_"))
    assert f'The ResourceSlice "{name}" is invalid: ' in refused
    assert "spec.driver: Invalid value: " in refused
    twice = kubectl.fails("create", "-f", "-", stdin=named(SLICE, name).replace("gpu-1", "gpu-0"))
    assert 'spec.devices[1]: Duplicate value: "gpu-0"' in twice
    wrong = named(TAINT_RULE, name).replace("NoExecute", "Sometimes")
    assert 'spec.taint.effect: Unsupported value: "Sometimes"' in kubectl.fails("create", "-f", "-", stdin=wrong)
    wrong = named(DEVICE_CLASS, name).replace("device.driver ==", "device.nope ==")
    assert "undefined field 'nope'" in kubectl.fails("create", "-f", "-", stdin=wrong)
    bad_name = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_Good}\n"
    refused = kubectl.fails("create", "-f", "-", stdin=bad_name)
    assert (
        'The ConfigMap "Not_Good" is invalid: metadata.name: Invalid value: "Not_Good": a lowercase RFC 1123 subdomain'
        in refused
    )
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a}, {name: a, image: x}]}\n"
    refused = kubectl.fails("create", "-f", "-", stdin=pod)
    assert "* spec.containers[0].image: Required value" in refused
    assert '* spec.containers[1].name: Duplicate value: "a"' in refused
    typed = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: 7}]}\n"
    assert "(BadRequest)" in kubectl.fails("create", "-f", "-", "--validate=false", stdin=typed)


def test_a_round_trip_changes_nothing(kubectl: Kubectl, unique: Unique) -> None:
    kubectl("create", "-f", "-", stdin=named(SLICE, name := unique("slice")))
    shown = kubectl("get", "resourceslice", name, "-o", "yaml", "--show-managed-fields")
    kubectl("replace", "-f", "-", stdin=shown)
    again = yaml.safe_load(kubectl("get", "resourceslice", name, "-o", "yaml"))
    assert again["spec"] == yaml.safe_load(shown)["spec"]
    assert again["metadata"]["generation"] == 1
    assert again["metadata"]["resourceVersion"] == yaml.safe_load(shown)["metadata"]["resourceVersion"]
