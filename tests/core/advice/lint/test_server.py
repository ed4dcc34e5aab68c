"""What the API server would say is told with the line, and with what was perhaps meant."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, findings, fixed, the, told

_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  containers:
  - name: c
    image: i
"""


def test_an_object_in_order_gives_no_findings() -> None:
    assert findings(_POD) == []


def test_an_unknown_field_is_told_with_the_nearest_one() -> None:
    found = the(_POD + "    imagePullpolicyy: Always\n", "unknown-field")
    assert (found.line, found.column, found.field) == (9, 5, "spec.containers[0].imagePullpolicyy")
    assert found.fix is not None
    assert found.fix.text == 'did you mean "imagePullPolicy"?'


def test_a_field_in_the_wrong_case_can_be_fixed() -> None:
    assert "    imagePullPolicy: Always # why\n" in fixed(_POD + "    imagepullpolicy: Always # why\n")


def test_a_value_of_the_wrong_type_is_told_where_it_is() -> None:
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: many\n"
    found = the(text, "invalid-value")
    assert found.line == 5
    assert found.message == 'replicas is "many": expected a whole number'


def test_pod_templates_of_workloads_are_validated() -> None:
    text = """\
        apiVersion: batch/v1
        kind: CronJob
        metadata: {name: nightly}
        spec:
          schedule: "0 3 * * *"
          jobTemplate:
            spec:
              template:
                spec:
                  restartPolicy: Never
                  containers:
                  - name: c
                    image: i
                    resources:
                      claims:
                      - name: gpus
                  resourceClaims:
                  - name: gpu
                    resourceClaimTemplateName: t
        """
    found = the(text, "invalid-value")
    assert found.line == 16
    assert found.fix is not None
    assert found.fix.text == 'did you mean "gpu"?'


def test_a_version_that_is_served_but_deprecated_is_a_warning() -> None:
    text = "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {selectors: [{cel: {expression: 'true'}}]}\n"
    assert the(text, "old-api-version").severity is Severity.WARNING


def test_the_flat_form_under_v1_is_told_once_per_field_with_where_it_belongs() -> None:
    text = """\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: c}
        spec:
          devices:
            requests:
            - name: gpu
              deviceClassName: gpu.nvidia.com
        """
    assert told(text) == [(8, "unknown-field")]
    fix = findings(text)[0].fix
    assert fix is not None
    assert "exactly" in fix.text


def test_the_source_wrapper_of_old_pods_is_told_with_the_new_form() -> None:
    text = _POD + "  resourceClaims:\n  - name: gpu\n    source:\n      resourceClaimTemplate: t\n"
    found = the(text, "unknown-field")
    assert found.line == 11
    assert found.fix is not None
    assert "source was removed in Kubernetes 1.31; the field is called resourceClaimTemplateName" in found.fix.text
    assert "invalid-value" not in {finding.rule for finding in findings(text)}


def test_members_of_lists_are_checked_where_they_are() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n  dada: {}\n"
    )
    found = the(text, "unknown-field")
    assert (found.line, found.object) == (7, "ConfigMap c")


def test_fields_that_older_versions_have_elsewhere_are_found_where_they_were_written() -> None:
    text = """\
        apiVersion: resource.k8s.io/v1beta1
        kind: ResourceSlice
        metadata: {name: s}
        spec:
          driver: d.example.com
          nodeName: n1
          pool: {name: n1, resourceSliceCount: 1}
          devices:
          - name: gpu-0
            basic:
              attributes:
                "bad name":
                  string: x
        """
    assert [finding.line for finding in by_rule(text, "invalid-value")] == [11]


def test_a_status_alone_is_not_taken_for_a_new_object() -> None:
    text = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nstatus: {}\n"
    assert findings(text) == []


def test_expressions_that_may_cost_too_much_are_told() -> None:
    looped = (
        "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a == b))))"
    )
    text = f"""\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: c}}
spec:
  selectors:
  - cel:
      expression: "{looped}"
"""
    assert the(text, "cel-cost").line == 7


@pytest.mark.parametrize("word", ["y", "on", "true", "8080", "0755"])
def test_words_and_numbers_that_yaml_takes_for_something_else_are_quoted(word: str) -> None:
    text = _POD + f"    env:\n    - {{name: GOOD, value: fine}}\n    - name: X\n      value: {word} # why\n"
    assert [(finding.line, finding.rule) for finding in findings(text)] == [(12, "invalid-value")]
    assert f'value: "{word}" # why\n' in fixed(text)
    assert findings(fixed(text)) == []
