"""Arithmetic of quotas and limit ranges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.quantity import Quantity
from allot.core.quota.amounts import as_json, increase, parse_amounts, plus
from allot.core.quota.charge import Quota, Refusal, Request, charge, total_usage
from allot.core.quota.claims import ALL_DEVICES, DeviceClasses, claim_usage, device_classes, matching_claim_names
from allot.core.quota.limits import pod_limit_errors, with_default_limits
from allot.core.quota.pods import matching_pod_names, pod_limits, pod_requests, pod_usage
from allot.core.quota.usage import PODS, QuotaContext, concerns, matching_names, object_count, usage_of

NOW = "2026-01-01T00:00:00Z"
AROUND = QuotaContext(now=NOW)


def container(cpu: str = "", limit: str = "", **more: Any) -> dict[str, Any]:
    resources = {kind: {"cpu": value} for kind, value in (("requests", cpu), ("limits", limit)) if value}
    return {"name": "c", "resources": resources, **more}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


def amounts(**values: str) -> dict[str, Quantity]:
    return parse_amounts(values)


def test_containers_add_up_and_init_containers_do_not() -> None:
    made = pod(container("1"), container("2"), initContainers=[container("5"), container("1")])
    assert as_json(pod_requests(made)) == {"cpu": "5"}


def test_sidecars_run_beside_everything_after_them() -> None:
    sidecar = container("1", restartPolicy="Always")
    assert as_json(pod_requests(pod(container("2"), initContainers=[sidecar, container("3")]))) == {"cpu": "4"}
    assert as_json(pod_requests(pod(container("2"), initContainers=[container("3"), sidecar]))) == {"cpu": "3"}


def test_requests_of_the_whole_pod_replace_those_of_containers() -> None:
    made = pod(container("1"), resources={"requests": {"cpu": "4"}}, overhead={"cpu": "100m"})
    assert as_json(pod_requests(made)) == {"cpu": "4100m"}


def test_overhead_is_only_added_to_limits_that_exist() -> None:
    made = pod(container("1", "2"), overhead={"cpu": "1", "memory": "1Gi"})
    assert as_json(pod_limits(made)) == {"cpu": "3"}


def test_a_resized_pod_is_charged_what_it_has_got() -> None:
    made = pod(container("1")) | {"status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}}]}}
    assert pod_usage(made, NOW)["requests.cpu"] == Quantity.parse("3")


@pytest.mark.parametrize(
    ("change", "charged"),
    [
        ({}, True),
        ({"status": {"phase": "Failed"}}, False),
        ({"metadata": {"deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30}}, False),
        ({"metadata": {"deletionTimestamp": "2025-12-31T23:59:50Z", "deletionGracePeriodSeconds": 30}}, True),
    ],
)
def test_only_living_pods_are_charged(change: dict[str, Any], charged: bool) -> None:
    assert ("pods" in pod_usage(pod(container("1")) | change, NOW)) is charged


def test_names_that_pods_are_charged_for() -> None:
    names = ["cpu", "requests.example.com/gpu", "example.com/gpu", "requests.hugepages-2Mi", "services", "limits.cpu"]
    assert matching_pod_names(names) == ["cpu", "requests.example.com/gpu", "requests.hugepages-2Mi", "limits.cpu"]


def test_all_devices_count_as_many_as_one_claim_can_get() -> None:
    claim = {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "g", "allocationMode": "All"}}]}}}
    usage = claim_usage(claim, DeviceClasses(), None, NOW)
    assert usage["g.deviceclass.resource.k8s.io/devices"] == Quantity.from_int(ALL_DEVICES)


def test_of_two_classes_with_one_name_the_newer_has_it() -> None:
    def made(name: str, at: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "creationTimestamp": at}, "spec": {"extendedResourceName": "example.com/g"}}

    early, late = "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
    assert device_classes([made("a", early), made("b", late)]).class_of == {"example.com/g": "b"}
    assert device_classes([made("b", late), made("a", late)]).class_of == {"example.com/g": "a"}


def test_extended_names_apply_to_claims_if_their_class_exists() -> None:
    classes = DeviceClasses({"g": "example.com/g"}, {"example.com/g": "g"})
    names = [
        "requests.example.com/g",
        "requests.example.com/h",
        "requests.deviceclass.resource.kubernetes.io/g",
        "requests.deviceclass.resource.kubernetes.io/h",
        "count/resourceclaims.resource.k8s.io",
    ]
    assert matching_claim_names(names, classes) == [names[0], names[2], names[4]]


def test_everything_else_is_counted() -> None:
    kind = ("example.com", "widgets")
    assert usage_of(kind, {}, AROUND) == {object_count(kind): Quantity.from_int(1)}
    assert matching_names(kind, ["count/widgets.example.com", "pods"], DeviceClasses()) == ["count/widgets.example.com"]


def test_updates_only_concern_what_can_grow() -> None:
    assert concerns(("", "services"), "", "UPDATE", {}, {})
    assert not concerns(("", "configmaps"), "", "UPDATE", {}, {})
    assert not concerns(("", "events"), "", "CREATE", {}, None)
    assert concerns(PODS, "resize", "UPDATE", {}, {})
    assert not concerns(PODS, "status", "UPDATE", {}, {})


def test_a_status_that_is_not_known_is_refused() -> None:
    quota = Quota(name="q", spec={}, hard=amounts(pods="1"), used={})
    answer = charge(quota, Request(kind=PODS, object=pod(container())), AROUND)
    assert answer == Refusal("status unknown for quota: q, resources: pods")


def test_negative_requests_earn_nothing() -> None:
    quota = Quota(name="q", spec={}, hard=amounts(cpu="1"), used=amounts(cpu="0"))
    answer = charge(quota, Request(kind=PODS, object=pod(container("-1"))), AROUND)
    assert answer == Refusal("quota usage is negative for resource(s): cpu,requests.cpu")


def test_limits_are_filled_in_without_touching_the_pod() -> None:
    made = pod(container())
    limits = {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}}
    filled = with_default_limits(made, limits)
    assert filled["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert made == pod(container())
    assert with_default_limits(filled, limits) is not made
    assert pod_limit_errors(filled, {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}) == []


CPUS = st.integers(0, 20).map(str)
PODS_OF = st.lists(st.lists(CPUS, min_size=1, max_size=3), max_size=6)


@given(PODS_OF, st.integers(0, 60))
def test_what_is_admitted_never_exceeds_the_quota(cpus: list[list[str]], limit: int) -> None:
    quota = Quota(name="q", spec={}, hard=amounts(cpu=str(limit), pods="4"), used=amounts(cpu="0", pods="0"))
    admitted: list[dict[str, Any]] = []
    for requests in cpus:
        made = pod(*(container(cpu) for cpu in requests))
        added = charge(quota, Request(kind=PODS, object=made), AROUND)
        if not isinstance(added, Refusal):
            quota = Quota(name="q", spec={}, hard=quota.hard, used=plus(quota.used, added))
            admitted.append(made)
    assert all(quota.used[name] <= quota.hard[name] for name in quota.hard)
    assert total_usage(quota, [(PODS, admitted)], AROUND) == quota.used


@given(st.dictionaries(st.sampled_from("abc"), CPUS), st.dictionaries(st.sampled_from("abc"), CPUS))
def test_what_was_added_can_be_taken_away(left: dict[str, str], right: dict[str, str]) -> None:
    one, other = parse_amounts(left), parse_amounts(right)
    back = increase(plus(one, other), other)
    assert {name: back[name] for name in one} == one


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["containers", "name", "resources", "requests", "cpu"]), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_malformed_objects_are_measured_without_trouble(spec: Any) -> None:
    made = {"spec": spec, "status": spec, "metadata": spec}
    for kind in (PODS, ("resource.k8s.io", "resourceclaims"), ("", "services"), ("", "persistentvolumeclaims")):
        usage_of(kind, made, AROUND)
    pod_limit_errors(made, {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}})
