"""Names that lead nowhere."""

from __future__ import annotations

from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.linter import lint
from allot.reading.sources import read_source
from core.advice.lint.linting import NOTHING, SERVER, by_rule, cluster, findings, hardware, the

_TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu-template}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpu.nvidia.com}
---
"""
_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    image: i
    resources: {claims: [{name: gpu}]}
  resourceClaims:
  - name: gpu
    resourceClaimTemplateName: gpu-template
"""
_EMPTY_CLUSTER = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n"
_CLASS = """\
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: device.driver == "gpu.nvidia.com"}}]}
"""


def test_a_pod_and_its_template_are_in_order() -> None:
    assert findings(_TEMPLATE + _POD) == []


def test_a_template_that_is_elsewhere_is_only_noted() -> None:
    found = the(_POD, "unknown-template")
    assert (found.severity, found.line) == (Severity.NOTE, 11)


def test_a_slip_in_the_name_of_a_template_is_a_warning() -> None:
    found = the(_TEMPLATE + _POD.replace("gpu-template", "gpu-templat"), "unknown-template")
    assert found.severity is Severity.WARNING
    assert found.fix is not None
    assert found.fix.text == 'did you mean "gpu-template"?'


def test_names_that_differ_in_their_numbers_are_no_slips() -> None:
    text = _TEMPLATE.replace("gpu-template", "gpu-1") + _POD.replace("gpu-template", "gpu-2")
    assert the(text, "unknown-template").severity is Severity.NOTE


def test_a_template_in_another_namespace_does_not_help() -> None:
    text = _TEMPLATE.replace("{name: gpu-template}", "{name: gpu-template, namespace: other}") + _POD
    fix = the(text, "unknown-template").fix
    assert fix is not None
    assert "is in namespace other" in fix.text


def test_against_a_cluster_a_missing_template_is_an_error() -> None:
    assert the(_POD, "unknown-template", cluster(_EMPTY_CLUSTER)).severity is Severity.ERROR
    assert not by_rule(_POD, "unknown-template", cluster(_EMPTY_CLUSTER + "---\n" + _TEMPLATE))


def test_claims_are_looked_for_like_templates() -> None:
    pod = _POD.replace("resourceClaimTemplateName", "resourceClaimName")
    assert the(pod, "unknown-claim", cluster(_EMPTY_CLUSTER)).severity is Severity.ERROR


def test_a_device_class_is_known_from_the_cluster_the_profile_or_the_input() -> None:
    assert the(_TEMPLATE, "unknown-device-class", cluster(_EMPTY_CLUSTER)).severity is Severity.ERROR
    assert not by_rule(_TEMPLATE, "unknown-device-class", cluster(_EMPTY_CLUSTER + _CLASS))
    assert not by_rule(_TEMPLATE, "unknown-device-class", hardware("t4"))
    assert not by_rule(_TEMPLATE, "unknown-device-class")
    wrong = _TEMPLATE.replace("gpu.nvidia.com", "gpu.nvidia.co")
    assert the(wrong, "unknown-device-class", hardware("t4")).severity is Severity.WARNING
    found = the(wrong + _CLASS.removeprefix("---\n"), "unknown-device-class")
    assert found.fix is not None
    assert found.fix.text == 'did you mean "gpu.nvidia.com"?'


def test_a_request_that_the_claim_does_not_have_is_told() -> None:
    text = _TEMPLATE + _POD.replace("{name: gpu}]}", "{name: gpu, request: gpus}]}")
    found = the(text, "unknown-request")
    assert found.fix is not None
    assert found.fix.text == 'did you mean "gpu"?'


def test_an_object_that_is_there_twice_is_told() -> None:
    assert the(_TEMPLATE + _TEMPLATE + _POD, "duplicate-object").line == 13


def test_an_object_that_is_in_two_files_is_noted() -> None:
    sources = [read_source(_CLASS.encode(), name) for name in ("a.yaml", "b.yaml")]
    (found,) = lint(sources, NOTHING, SERVER)
    assert (found.rule, found.severity) == ("duplicate-object", Severity.NOTE)


def test_parts_of_one_object_may_be_apart() -> None:
    claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n"
    spec = "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: x}}]}}\n"
    assert not by_rule(f"{claim}{spec}---\n{claim}status: {{}}\n", "duplicate-object")
