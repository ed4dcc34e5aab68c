"""Defaults are those of the version an object is written in, and inputs stay as they are."""

from __future__ import annotations

import copy
from typing import Any

from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.core.validation.defaults import with_defaults

from .builders import NOW, claim, device_slice, exactly, pod_group, taint_rule


def defaulted(value: dict[str, Any], now: str | None = NOW) -> dict[str, Any]:
    before = copy.deepcopy(value)
    result = with_defaults(value, gates=DEFAULT_GATES, now=now)
    assert value == before
    assert with_defaults(result, gates=DEFAULT_GATES, now="2030-01-01T00:00:00Z") == result, "defaults are idempotent"
    return result


def test_a_request_asks_for_exactly_one_device() -> None:
    request = defaulted(claim(exactly(tolerations=[{"key": "a"}])))["spec"]["devices"]["requests"][0]["exactly"]
    assert request == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "a", "operator": "Equal"}],
    }


def test_all_devices_have_no_count() -> None:
    assert "count" not in defaulted(claim(exactly(allocationMode="All")))["spec"]["devices"]["requests"][0]["exactly"]


def test_flat_requests_without_class_get_no_defaults() -> None:
    flat = [{"name": "a", "count": 2}, {"name": "b", "deviceClassName": "c"}, {"name": "d", "firstAvailable": [{}]}]
    assert defaulted(claim(*flat, version="v1beta1"))["spec"]["devices"]["requests"] == [
        {"name": "a", "count": 2},
        {"name": "b", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1},
        {"name": "d", "firstAvailable": [{"allocationMode": "ExactCount", "count": 1}]},
    ]


def test_taints_get_the_time_that_is_given() -> None:
    assert defaulted(taint_rule())["spec"]["taint"]["timeAdded"] == NOW
    assert "timeAdded" not in with_defaults(taint_rule(), gates=DEFAULT_GATES, now=None)["spec"]["taint"]
    tainted = {"name": "d", "taints": [{"key": "k"}]}
    assert defaulted(device_slice(tainted))["spec"]["devices"][0]["taints"] == [{"key": "k", "timeAdded": NOW}]
    basic = {"name": "d", "basic": {"taints": [{"key": "k"}]}}
    flat = defaulted(device_slice(basic, version="v1beta1"))
    assert flat["spec"]["devices"][0]["basic"]["taints"] == [{"key": "k", "timeAdded": NOW}]


def test_groups_may_be_disrupted_one_by_one() -> None:
    assert defaulted(pod_group())["spec"]["disruptionMode"] == {"single": {}}
    assert defaulted(pod_group(disruptionMode={"all": {}}))["spec"]["disruptionMode"] == {"all": {}}
    assert "preemptionPolicy" not in defaulted(pod_group())["spec"]
    assert with_defaults(pod_group(), gates=ALL_GATES, now=None)["spec"]["preemptionPolicy"] == "PreemptLowerPriority"


def test_what_has_the_wrong_shape_is_left_for_decoding() -> None:
    for broken in (claim(exactly(tolerations=3)), claim(spec=[]), {"apiVersion": "v1", "kind": "Pod", "spec": 3}):
        assert with_defaults(broken, gates=DEFAULT_GATES, now=NOW)["kind"] == broken["kind"]
