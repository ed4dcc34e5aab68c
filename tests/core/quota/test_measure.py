"""The usage of a quota, counted from everything in its namespace."""

from __future__ import annotations

from typing import Any

from allot.core.quota.claims import DeviceClasses
from allot.core.quota.measure import frees, may_free, measure, measured_kinds, wanted_quota, with_usage
from allot.core.quota.usage import CLAIMS, PODS, SERVICES

NONE = DeviceClasses()


def quota(limits: dict[str, str], **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": limits}, "status": status}


def test_only_kinds_that_a_quota_limits_are_counted():
    assert measured_kinds({"pods": 1}, NONE) == (PODS,)
    assert measured_kinds({"secrets": 1, "count/widgets.example.com": 1}, NONE) == (
        ("", "secrets"),
        ("example.com", "widgets"),
    )
    assert measured_kinds({"gpu.deviceclass.resource.k8s.io/devices": 1}, NONE) == (PODS, CLAIMS)


def test_usage_is_written_with_the_limits_of_the_spec_and_only_if_it_differs():
    object_ = quota({"pods": "3", "count/secrets": "5"}, hard={"pods": "1"}, used={"pods": "7"})
    wanted = wanted_quota(object_)
    pods = [{"metadata": {"name": "a"}, "status": {"phase": "Running"}}, {"metadata": {"name": "b"}, "status": {}}]
    used = measure(wanted, {PODS: pods, ("", "secrets"): [{"metadata": {"name": "s"}}]}, NONE, "2026-01-01T00:00:00Z")
    changed = with_usage(object_, wanted, used)
    assert changed is not None
    assert changed["status"] == {
        "hard": {"count/secrets": "5", "pods": "3"},
        "used": {"count/secrets": "1", "pods": "2"},
    }
    assert with_usage(changed, wanted, used) is None
    assert frees(object_, changed) and not frees(changed, object_)


def test_room_is_made_by_deletions_ends_of_pods_and_changed_services():
    running, ended = {"status": {"phase": "Running"}}, {"status": {"phase": "Failed"}}
    assert may_free(PODS, running, None)
    assert may_free(PODS, running, ended) and not may_free(PODS, ended, ended) and not may_free(PODS, running, running)
    assert may_free(SERVICES, {"spec": {"type": "NodePort"}}, {"spec": {"type": "ClusterIP"}})
    assert not may_free(("", "secrets"), {"spec": 1}, {"spec": 2})
