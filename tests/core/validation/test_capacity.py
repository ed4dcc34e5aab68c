"""Request policies: which amounts of a capacity may be offered."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates

from .builders import create_errors, device_slice, texts

POLICY = "spec.devices[0].capacity[m].requestPolicy"


def errors(policy: dict[str, Any], value: str = "10", gates: FeatureGates = DEFAULT_GATES) -> list[str]:
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {"m": {"value": value, "requestPolicy": policy}},
    }
    found = texts(create_errors(device_slice(device), gates))
    return [text.removeprefix(f"{POLICY}.") for text in found]


def in_range(default: str = "2", **bounds: str) -> dict[str, Any]:
    return {"default": default, "validRange": {"min": "2", **bounds}}


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"default": "100"},
        {"default": "2", "validValues": ["1", "2", "10"]},
        in_range(),
        in_range(default="6", step="2", max="8"),
    ],
)
def test_sound_policies_are_accepted(policy: dict[str, Any]) -> None:
    assert errors(policy) == []


def test_values_and_range_exclude_each_other() -> None:
    both = {"default": "2", "validValues": ["2"], "validRange": {"min": "2"}}
    assert errors(both)[0].startswith(f"{POLICY}: Forbidden: exactly one policy can be specified")


@pytest.mark.parametrize(("member", "value"), [("validValues", ["1"]), ("validRange", {"min": "1"})])
def test_a_policy_needs_a_default(member: str, value: Any) -> None:
    assert errors({member: value}) == [f"default: Required value: required when {member} is defined"]


def test_a_step_never_divides_by_zero_or_overflows() -> None:
    huge = "18446744073709551616"
    assert errors(in_range(step=huge), value="1e30") == [
        f'validRange.step: Invalid value: "{huge}": must not be larger than 9223372036854775807'
    ]
    assert errors({"default": "-2", "validRange": {"min": "-4", "step": "2"}})[0] == (
        'validRange.default: Invalid value: "-2": must be greater than or equal to 0'
    )
    assert errors(in_range(step="500m")) == []


def test_fractions_count_only_with_their_gate() -> None:
    policy = {"default": "1", "validRange": {"min": "500m", "step": "300m"}}
    assert errors(policy) == []
    assert errors(policy, gates=ALL_GATES) == [
        'validRange.step: Invalid value: "1": value is not a multiple of a given step (300m) from (500m)'
    ]
    assert errors({"default": "800m", "validRange": {"min": "500m", "step": "300m"}}, gates=ALL_GATES) == []


def test_equal_values_are_found_after_rounding_or_exactly() -> None:
    values = {"default": "1", "validValues": ["500m", "1"]}
    assert errors(values) == ['validValues[1]: Duplicate value: "1"']
    assert errors(values, gates=ALL_GATES) == []
