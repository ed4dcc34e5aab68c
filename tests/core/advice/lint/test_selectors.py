"""Expressions that do not compile, and names in them that lead nowhere."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, claim, cluster, findings, fixed, hardware, the

_SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: a}, version: {version: 1.2.3}}
    capacity: {memory: {value: 40Gi}}
"""
_CLASS = """\
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec:
  selectors:
  - cel:
      expression: device.driver == "gpu.example.com"
"""
_KNOWN = cluster(_SLICE + _CLASS)


def _claim(expression: str) -> str:
    return claim(expression, class_name="gpu.example.com")


def test_an_expression_that_does_not_compile_is_told_on_its_line() -> None:
    found = the(claim("device.driver = 1"), "cel-error")
    assert found.line == 14
    assert found.severity is Severity.ERROR
    assert "compilation failed" in found.message


def test_a_capacity_compared_with_text_is_fixed() -> None:
    text = claim('device.capacity["gpu.nvidia.com"].memory >= "16Gi"')
    right = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("16Gi")) >= 0'
    assert the(text, "cel-error").fix is not None
    assert right in fixed(text)


def test_what_is_fixed_has_nothing_to_fix() -> None:
    once = fixed(claim('device.capacity["gpu.nvidia.com"].memory >= "16Gi"'))
    assert fixed(once) == once
    assert findings(once) == []


@pytest.mark.parametrize("style", ["{}", '"{}"'])
def test_quotes_of_print_are_fixed_whatever_stands_around_the_expression(style: str) -> None:
    text = claim("true").replace("|\n              true", "x").replace("expression: |", "expression: E")
    text = text[: text.index("expression:")] + "expression: " + style.format("device.driver == “gpu.nvidia.com”") + "\n"
    assert the(text, "typographic-character").severity is Severity.ERROR
    assert findings(fixed(text)) == []


def test_a_driver_that_no_device_has_is_told_with_the_nearest() -> None:
    found = the(_claim('device.driver == "gpu.exmaple.com"'), "unknown-driver", _KNOWN)
    assert found.fix is not None
    assert found.fix.text == 'did you mean "gpu.example.com"?'


def test_without_devices_only_slips_in_names_of_known_drivers_are_told() -> None:
    assert by_rule(claim('device.driver == "gpu.nvidia.con"'), "unknown-driver")
    assert not by_rule(claim('device.driver == "fpga.example.com"'), "unknown-driver")


def test_a_domain_that_no_device_has_is_told() -> None:
    found = the(_claim('device.attributes["gpu.example.org"].model == "a"'), "unknown-domain", _KNOWN)
    assert found.fix is not None
    assert found.fix.text == 'did you mean "gpu.example.com"?'


def test_an_attribute_that_no_device_has_is_told() -> None:
    found = the(_claim('device.attributes["gpu.example.com"].modle == "a"'), "unknown-attribute", _KNOWN)
    assert found.fix is not None
    assert found.fix.text == 'did you mean "model"?'


def test_a_capacity_that_is_an_attribute_is_told_as_such() -> None:
    text = _claim('device.capacity["gpu.example.com"].model.isGreaterThan(quantity("1"))')
    assert "is an attribute" in the(text, "unknown-capacity", _KNOWN).message


def test_the_table_of_drivers_knows_capacities_without_a_cluster() -> None:
    text = claim('device.attributes["gpu.nvidia.com"].memory == "80Gi"')
    assert "memory is a capacity of gpu.nvidia.com" in the(text, "unknown-attribute").message


def test_an_attribute_without_domain_is_told() -> None:
    found = the(claim('device.attributes["model"].x == "a"'), "missing-domain")
    assert found.fix is not None
    assert 'device.attributes["gpu.nvidia.com"].model' in found.fix.text


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["resource.kubernetes.io"].pcieRoot == "x"',
        'device.attributes["gpu.example.com"].model == "a"',
        "device.attributes[device.driver].model == 'a'",
        'cel.bind(a, device.attributes["gpu.example.com"], a.model == "a")',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
        'device.attributes["gpu.example.com"].?model.orValue("") == "a"',
    ],
)
def test_names_that_exist_are_nothing_to_talk_about(expression: str) -> None:
    rules = {finding.rule for finding in findings(_claim(expression), _KNOWN)}
    assert not rules & {"unknown-domain", "unknown-attribute", "unknown-capacity", "unknown-driver", "cel-error"}


# --- tried on devices ---


def test_a_selector_that_fails_on_devices_which_lack_an_attribute_is_told() -> None:
    more = _SLICE.replace("  - name: gpu-0", "  - name: bare\n  - name: gpu-0")
    found = the(
        _claim('device.attributes["gpu.example.com"].model == "a"'), "missing-attribute", cluster(more + _CLASS)
    )
    assert "gpu.example.com/n1/bare" in found.message
    assert found.fix is not None
    assert 'has(device.attributes["gpu.example.com"].model)' in found.fix.text


def test_devices_of_other_classes_are_not_asked() -> None:
    other = (
        _SLICE.replace("gpu.example.com", "nic.example.com").replace("name: s}", "name: o}").replace("model", "port")
    )
    known = cluster(f"{_SLICE}---\n{other}{_CLASS}")
    assert not by_rule(_claim('device.attributes["gpu.example.com"].model == "a"'), "missing-attribute", known)


def test_a_class_that_forgets_the_driver_fails_on_devices_of_others() -> None:
    text = _CLASS.replace('device.driver == "gpu.example.com"', 'device.attributes["gpu.example.com"].model == "a"')
    text = text.replace("name: gpu.example.com", "name: other")
    nic = _SLICE.replace("gpu.example.com", "nic.example.com").replace("name: s}", "name: o}")
    found = the(text, "missing-attribute", cluster(f"{_SLICE}---\n{nic}{_CLASS}"))
    assert "nic.example.com/n1/gpu-0" in found.message


def test_other_failures_are_told_in_the_words_of_cel() -> None:
    found = the(_claim('device.attributes["gpu.example.com"].model > 3'), "selector-error", _KNOWN)
    assert "no such overload" in found.message


def test_an_attribute_that_other_devices_of_the_driver_have_is_missing_but_not_unknown() -> None:
    text = claim('device.attributes["gpu.nvidia.com"].profile == "1g.10gb"')
    rules = {finding.rule for finding in findings(text, hardware("h100x8"))}
    assert "missing-attribute" in rules
    assert "unknown-attribute" not in rules


def test_an_attribute_that_no_device_has_is_told_once() -> None:
    text = _claim('device.attributes["gpu.example.com"].modle == "a"')
    assert not by_rule(text, "missing-attribute", _KNOWN)


def test_hardware_profiles_are_devices_too() -> None:
    text = claim('device.attributes["gpu.nvidia.com"].productname == "x"')
    assert by_rule(text, "unknown-attribute", hardware("h100x8"))
