"""Values of another shape than their field has are named in the manifest's words, and put right where that is certain."""

from __future__ import annotations

from textwrap import dedent

import pytest

from core.advice.lint.linting import findings, fixed, the


def _claim(body: str) -> str:
    head = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n"
    return head + dedent(body)


_RIGHT = _claim("""\
    spec:
      devices:
        requests:
        - name: gpu # why
          exactly:
            deviceClassName: gpu.nvidia.com
            count: 2
    """)


def _mended(text: str) -> str:
    """With the fixes of as many rounds as the command makes."""
    for _ in range(10):
        text = fixed(text)
    return text


@pytest.mark.parametrize(
    ("wrong", "message", "fix"),
    [
        (
            _RIGHT.replace("        deviceClassName", "      - deviceClassName"),
            "exactly is a list: expected one object",
            'remove the "-"',
        ),
        (_RIGHT.replace("count: 2", 'count: "2"'), 'count is "2": expected a whole number', "write 2 without quotes"),
        (_RIGHT.replace("count: 2", "count: '2'"), 'count is "2": expected a whole number', "write 2 without quotes"),
    ],
)
def test_it_is_told_in_the_manifests_words_and_fixed(wrong: str, message: str, fix: str) -> None:
    found = the(wrong, "invalid-value")
    assert found.message == message
    assert found.fix is not None
    assert found.fix.text == fix
    assert _mended(wrong) == _RIGHT


def test_one_object_where_a_list_goes_becomes_its_member() -> None:
    wrong = _claim("""\
        spec:
          devices:
            requests:
              name: gpu
              exactly:
                deviceClassName: gpu.nvidia.com
                selectors: {cel: {expression: 'true'}}
        """)
    assert the(wrong, "invalid-value").message == "requests is an object: expected a list"
    right = _mended(wrong)
    assert "      - name: gpu\n        exactly:\n" in right
    assert "selectors: [{cel: {expression: 'true'}}]" in right
    assert findings(right) == []


def test_a_list_of_several_is_not_made_one_object() -> None:
    text = _RIGHT.replace(
        "        deviceClassName: gpu.nvidia.com\n        count: 2\n",
        "      - deviceClassName: a.example.com\n      - deviceClassName: b.example.com\n",
    )
    found = the(text, "invalid-value")
    assert found.fix is not None
    assert "firstAvailable" in found.fix.text
    assert found.fix.edits == ()


_TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec:
  devices:
    requests:
    # one of them
    - name: gpu
      exactly:
        deviceClassName: gpu.nvidia.com

        selectors:
        - cel:
            expression: |
              device.driver == "gpu.nvidia.com"
                && true
"""


def test_a_template_without_its_inner_spec_is_told_so_and_gets_it() -> None:
    found = the(_TEMPLATE, "unknown-field")
    assert found.fix is not None
    assert found.fix.text == "a template has the spec of its claims in spec.spec: move it to spec.spec.devices"
    right = fixed(_TEMPLATE)
    assert "spec:\n  spec:\n    devices:\n      requests:\n      # one of them\n" in right
    assert findings(right) == []


def test_a_template_on_one_line_gets_it_too() -> None:
    head = _TEMPLATE.partition("spec:")[0]
    wrong = head + "spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}\n"
    right = head + "spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}\n"
    assert fixed(wrong) == right


def test_a_template_whose_spec_has_metadata_keeps_it() -> None:
    wrong = _TEMPLATE.replace("spec:\n  devices", "spec:\n  metadata: {labels: {a: b}}\n  devices")
    right = fixed(wrong)
    assert "spec:\n  metadata: {labels: {a: b}}\n  spec:\n    devices:\n" in right
    assert findings(right) == []


def test_a_claim_with_a_spec_too_many_loses_it() -> None:
    wrong = _RIGHT.replace("\n  ", "\n    ").replace("spec:\n", "spec:\n  spec:\n", 1)
    found = the(wrong, "unknown-field")
    assert found.fix is not None
    assert "remove one of the two levels" in found.fix.text
    assert fixed(wrong) == _RIGHT


def test_the_flat_form_is_put_into_exactly() -> None:
    wrong = _RIGHT.replace("      exactly:\n  ", "").replace("        count", "      count")
    assert fixed(wrong) == _RIGHT


def test_fields_that_do_not_stand_together_are_not_moved() -> None:
    wrong = _claim("""\
        spec:
          devices:
            requests:
            - deviceClassName: gpu.nvidia.com
              name: gpu
              count: 2
        """)
    assert fixed(wrong) == wrong
    assert {found.rule for found in findings(wrong)} == {"unknown-field"}


def test_a_field_that_was_written_too_deep_is_told_where_it_belongs() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: i\n    resourceClaims: []\n"
    found = the(text, "unknown-field")
    assert found.fix is not None
    assert found.fix.text == "resourceClaims is a field of spec: move it there"


def test_a_field_that_was_written_too_high_is_told_where_it_belongs() -> None:
    text = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: d}
        spec:
          nodeSelector: {a: b}
          selector: {matchLabels: {a: b}}
          template:
            metadata: {labels: {a: b}}
            spec: {containers: [{name: c, image: i}]}
        """
    found = the(text, "unknown-field")
    assert found.fix is not None
    assert found.fix.text == "move it to spec.template.spec.nodeSelector"


def test_names_where_objects_with_names_go_become_such_objects() -> None:
    text = """\
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          containers:
          - name: c
            image: i
            resources:
              claims: [gpu]
          resourceClaims:
          - {name: gpu, resourceClaimName: g}
        """
    found = the(text, "invalid-value")
    assert found.message == 'claims[0] is "gpu": expected one object'
    assert "claims: [{name: gpu}]" in fixed(text)


def test_what_came_in_by_an_alias_is_not_changed() -> None:
    text = _claim("""\
        spec:
          devices:
            requests:
            - name: a
              exactly: &gpu
              - deviceClassName: gpu.nvidia.com
            - name: b
              exactly: *gpu
        """)
    assert len(findings(text)) == 2
    assert "exactly: *gpu" in fixed(text)
