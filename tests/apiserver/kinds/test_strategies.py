"""Strategies: Kubernetes' own answers through the way that handlers take, and what every kind has in common."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from allot.apiserver.kinds.claims import ClaimStrategy, ClaimTemplateStrategy
from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.resources import Refused, Resource, Strategy
from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates
from allot.core.validation.fields import FieldError
from vectors import vectors_dir

VECTORS = vectors_dir()
NOW = "2026-08-01T12:00:00Z"
UID = "00000000-0000-0000-0000-000000000001"
Object = dict[str, Any]
# Decided by admission, which is not part of a strategy.
ADMISSION = ("podgroup-priority-class-system",)


def load(name: str) -> Any:
    return json.loads((VECTORS / "api" / name).read_text()) if VECTORS is not None else []


def row_of(object_: Mapping[str, Any]) -> Resource:
    wanted = (object_["apiVersion"], object_["kind"])
    return next(r for r in builtin_resources() if (r.api_version, r.kind) == wanted)


def strategy_of(object_: Mapping[str, Any], gates: FeatureGates = DEFAULT_GATES) -> Strategy:
    return strategy_for(row_of(object_), gates=gates, now=lambda: NOW)


def created(object_: Object, gates: FeatureGates) -> Object:
    strategy = strategy_of(object_, gates)
    read = strategy.read(object_)
    if object_["kind"] == "PodGroup":
        # What admission sets.
        read = {**read, "spec": {"priority": 0, **read["spec"]}}
    stored = strategy.prepare_create(read)
    assert strategy.validate_create(stored) == ()
    return {**stored, "metadata": {**stored["metadata"], "resourceVersion": "1", "uid": UID, "creationTimestamp": NOW}}


def errors_of(case: Mapping[str, Any]) -> tuple[FieldError, ...]:
    gates = ALL_GATES if case.get("gates") else DEFAULT_GATES
    strategy, resource = strategy_of(case["object"], gates), row_of(case["object"])
    if case["operation"] == "create":
        new = strategy.prepare_create(strategy.read(case["object"]))
        first: tuple[FieldError, ...] = ()
        if isinstance(strategy, ClaimStrategy | ClaimTemplateStrategy):
            first = strategy.admin_access_errors(new, {})
        return first + strategy.validate_create(new)
    old = created(case["old"], gates)
    if "oldStatus" in case:
        written = {**old, "status": case["oldStatus"]}
        new = strategy.prepare_update(strategy.read({**written, "apiVersion": resource.api_version}), old, "status")
        assert strategy.validate_update(new, old, "status") == ()
        old = new
    if case["operation"] == "status-deleting":
        old = {**old, "metadata": {**old["metadata"], "deletionTimestamp": NOW}}
    body = {**case["object"], "metadata": {**old["metadata"], **case["object"]["metadata"]}}
    if case["operation"] == "update-unconditional":
        body["metadata"].pop("resourceVersion")
    subresource = "" if case["operation"].startswith("update") else "status"
    new = strategy.prepare_update(strategy.read(body), old, subresource)
    first = ()
    if isinstance(strategy, ClaimStrategy) and subresource == "status":
        first = strategy.admin_status_errors(new, old, {})
    return first + strategy.validate_update(new, old, subresource)


@pytest.mark.skipif(VECTORS is None, reason="vectors are not beside the repository nor in ALLOT_VECTORS")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["id"])
        for case in load("invalid.json")
        if case["code"] == 422 and case["id"] not in ADMISSION
    ],
)
def test_an_invalid_object_gets_the_errors_that_kubernetes_gives(case: Mapping[str, Any]) -> None:
    found = errors_of(case)
    assert Counter((error.field, error.type) for error in found) == Counter(
        (error["field"], error["type"]) for error in case["errors"]
    ), found


@pytest.mark.skipif(VECTORS is None, reason="vectors are not beside the repository nor in ALLOT_VECTORS")
@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in load("accepted-oddities.json")])
def test_an_odd_object_is_stored_as_by_kubernetes(case: Mapping[str, Any]) -> None:
    stored = created(case["object"], DEFAULT_GATES)
    if "stored" in case:
        text = json.dumps(stored).replace(NOW, "<now>")
        assert {name: value for name, value in json.loads(text).items() if name in ("spec", "status")} == case["stored"]


@pytest.mark.parametrize("resource", builtin_resources(), ids=lambda r: f"{r.api_version}-{r.kind}")
@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [{}], {"a": None}, [None]])
def test_no_kind_trips_over_odd_values(resource: Resource, value: Any) -> None:
    strategy = strategy_for(resource, now=lambda: NOW)
    metadata = {"name": "x", "resourceVersion": "1"} | ({"namespace": "d"} if resource.namespaced else {})
    object_ = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    for name in ("spec", "status", "data", "subsets", "rules", "type", "webhooks"):
        try:
            new = strategy.prepare_create(strategy.read({**object_, name: value}))
            strategy.validate_create(new)
            strategy.warnings(new)
            for subresource in ("", *resource.subresources):
                strategy.validate_update(strategy.prepare_update(new, new, subresource), new, subresource)
        except Refused:
            pass


def test_generation_counts_changes_of_the_spec_only() -> None:
    deployment: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    strategy = strategy_of(deployment)
    old = created(deployment, DEFAULT_GATES)
    assert old["metadata"]["generation"] == 1
    relabelled = {**deployment, "metadata": {**deployment["metadata"], "labels": {"x": "y"}}}
    assert strategy.prepare_update(strategy.read(relabelled), old, "")["metadata"]["generation"] == 1
    scaled = {**deployment, "spec": {**deployment["spec"], "replicas": 3}}
    new = strategy.prepare_update(strategy.read(scaled), old, "")
    assert new["metadata"]["generation"] == 2
    assert new["metadata"]["uid"] == UID
    assert new["metadata"]["resourceVersion"] == "1"


def test_status_and_spec_have_different_writers() -> None:
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "d"},
        "spec": {"hard": {"pods": "1"}},
        "status": {"used": {"pods": "9"}},
    }
    strategy = strategy_of(quota)
    old = created(quota, DEFAULT_GATES)
    assert old["status"] == {}
    changed = {**quota, "spec": {"hard": {"pods": "2"}}, "status": {"used": {"pods": "1"}}}
    assert strategy.prepare_update(strategy.read(changed), old, "")["status"] == {}
    written = strategy.prepare_update(strategy.read(changed), old, "status")
    assert (written["spec"]["hard"]["pods"], written["status"]) == ("1", {"used": {"pods": "1"}})


def test_an_update_without_version_is_an_error_where_kubernetes_wants_one() -> None:
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "d"},
    }
    strategy = strategy_of(lease)
    old = created(lease, DEFAULT_GATES)
    errors = strategy.validate_update(strategy.prepare_update(strategy.read(lease), old, ""), old, "")
    assert [str(error) for error in errors] == [
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    ]


def test_what_comes_in_is_never_changed() -> None:
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}, "spec": {}}
    before = json.dumps(pod)
    strategy = strategy_of(pod)
    read = strategy.read(pod)
    seen = json.dumps(read)
    strategy.prepare_create(read)
    assert (json.dumps(pod), json.dumps(read)) == (before, seen)
