"""Comparisons that CEL allows and that do not do what they say."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, claim, cluster, findings, fixed, hardware, the


def _gpu(relation: str, literal: str, name: str = "memory") -> str:
    return claim(f'device.attributes["gpu.nvidia.com"].{name} {relation} "{literal}"')


def test_sizes_compared_as_text_are_an_error_with_two_examples() -> None:
    found = the(_gpu(">=", "16Gi"), "text-compared-as-size")
    assert found.severity is Severity.ERROR
    assert '"8Gi" >= "16Gi" is true and "141Gi" >= "16Gi" is false' in found.message
    assert "memory is a capacity of gpu.nvidia.com" in found.message


def test_it_is_fixed_where_the_capacity_is_known() -> None:
    right = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("16Gi")) >= 0'
    assert right in fixed(_gpu(">=", "16Gi"))
    assert findings(fixed(_gpu(">=", "16Gi"))) == []


def test_of_an_unknown_driver_it_is_only_suggested() -> None:
    text = claim('device.attributes["gpu-driver.example.com"].memory >= "16Gi"', class_name="x")
    found = the(text, "text-compared-as-size")
    assert found.fix is not None
    assert "compareTo" in found.fix.text
    assert found.fix.edits == ()


@pytest.mark.parametrize(
    ("relation", "literal"), [("<", "9Gi"), ("<=", "100G"), (">", "40960Mi"), (">=", "80"), (">=", "16GB")]
)
def test_every_order_and_unit_is_seen(relation: str, literal: str) -> None:
    assert f'{relation} "{literal}" is' in the(_gpu(relation, literal), "text-compared-as-size").message


def test_the_literal_may_stand_on_the_left() -> None:
    text = claim('"16Gi" <= device.attributes["gpu.nvidia.com"].memory')
    assert '"8Gi" >= "16Gi" is true' in the(text, "text-compared-as-size").message


def test_versions_compared_as_text_are_an_error() -> None:
    found = the(_gpu(">=", "8.0", "cudaComputeCapability"), "text-compared-as-version")
    assert '"12.4" >= "8.0" is false' in found.message
    assert 'compareTo(semver("8.0.0")) >= 0' in fixed(_gpu(">=", "8.0", "cudaComputeCapability"))


@pytest.mark.parametrize("literal", ["a100", "NVIDIA H100", "", "x-1"])
def test_text_that_is_no_size_or_version_may_be_ordered(literal: str) -> None:
    rules = {finding.rule for finding in findings(_gpu(">=", literal, "productName"))}
    assert not rules & {"text-compared-as-size", "text-compared-as-version"}


def test_equality_of_text_is_fine() -> None:
    assert not by_rule(_gpu("==", "16Gi", "productName"), "text-compared-as-size")


_TEXT_SIZES = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, resourceSliceCount: 1}
  devices:
  - name: small
    attributes: {memory: {string: 8Gi}}
  - name: large
    attributes: {memory: {string: 141Gi}}
  - name: middle
    attributes: {memory: {string: 24Gi}}
"""


def test_devices_that_change_sides_are_named() -> None:
    text = claim('device.attributes["gpu.example.com"].memory >= "16Gi"', class_name="x")
    found = the(text, "text-compared-as-size", cluster(_TEXT_SIZES))
    assert "excluded although they fit: gpu.example.com/n1/large" in found.message
    assert "selected although they do not fit: gpu.example.com/n1/small" in found.message
    assert found.fix is not None
    assert 'quantity(device.attributes["gpu.example.com"].memory).compareTo(quantity("16Gi")) >= 0' in found.fix.text


def test_devices_of_a_profile_that_would_do_are_named() -> None:
    found = the(_gpu(">=", "16Gi"), "text-compared-as-size", hardware("h100"))
    assert "excluded although they fit: gpu.nvidia.com/h100/gpu-0" in found.message


def test_devices_on_which_the_expression_fails_are_not_taken() -> None:
    found = the(_gpu(">=", "16Gi"), "text-compared-as-size", hardware("t4"))
    assert "selected although" not in found.message


# --- equality ---


def test_a_capacity_that_must_be_exact_is_warned_of() -> None:
    text = claim('device.capacity["gpu.nvidia.com"].memory == quantity("80Gi")')
    found = the(text, "capacity-equality", hardware("h200"))
    assert found.severity is Severity.WARNING
    assert "known devices have 143771Mi" in found.message
    assert found.fix is not None
    assert 'memory.compareTo(quantity("80Gi")) >= 0' in found.fix.text


def test_a_capacity_that_a_known_device_has_exactly_may_be_asked_for() -> None:
    text = claim('device.capacity["gpu.nvidia.com"].memory == quantity("143771Mi")')
    assert not by_rule(text, "capacity-equality", hardware("h200"))


def test_a_value_that_is_almost_that_of_a_known_device_is_taken_for_misspelt() -> None:
    found = the(_gpu("==", "NVIDIA H100 80GB", "productName"), "unknown-value", hardware("h100"))
    assert found.fix is not None
    assert found.fix.text == 'did you mean "NVIDIA H100 80GB HBM3"?'


@pytest.mark.parametrize("value", ["NVIDIA H100 80GB HBM3", "Tesla T4"])
def test_values_that_known_devices_have_or_other_devices_could_have_are_fine(value: str) -> None:
    assert not by_rule(_gpu("==", value, "productName"), "unknown-value", hardware("h100"))


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["gpu.nvidia.com"].productName == "NVIDIA-H100"',
        'device.attributes["gpu.nvidia.com"].productName in ["NVIDIA H100 80GB HMB3", "Tesla T4"]',
    ],
)
def test_parts_of_values_and_members_of_lists_are_taken_for_misspelt_too(expression: str) -> None:
    found = the(claim(expression), "unknown-value", hardware("h100"))
    assert found.fix is not None
    assert found.fix.text == 'did you mean "NVIDIA H100 80GB HBM3"?'


def test_against_a_cluster_a_value_that_no_device_has_is_told_with_those_that_there_are() -> None:
    text = claim('device.attributes["gpu.example.com"].memory == "1Ti"', class_name="x")
    found = the(text, "unknown-value", cluster(_TEXT_SIZES))
    assert found.fix is not None
    assert found.fix.text == "there is 141Gi, 24Gi, 8Gi"


def test_a_value_in_an_alternative_need_not_be_there() -> None:
    alternatives = """\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: c}
        spec:
          devices:
            requests:
            - name: gpu
              firstAvailable:
              - {name: best, deviceClassName: x, selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].memory == "1Ti"'}}]}
              - {name: other, deviceClassName: x}
        """
    assert not by_rule(alternatives, "unknown-value", cluster(_TEXT_SIZES))
    assert by_rule(alternatives.replace("1Ti", "141gi"), "unknown-value", cluster(_TEXT_SIZES))
