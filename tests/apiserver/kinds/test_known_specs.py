"""Specs that were found in order are not looked at again, and nothing else gets through because of that."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.kinds.known_specs import KnownSpecs
from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.resources import Strategy

Object = dict[str, Any]


@pytest.fixture
def pods() -> Strategy:
    return strategy_for(next(r for r in builtin_resources() if r.kind == "Pod"))


def pod(name: str = "p", **spec: Any) -> Object:
    containers = [{"name": "c", "image": "i:1"}]
    return {"metadata": {"name": name, "namespace": "d"}, "spec": {"containers": containers, **spec}}


def errors(strategy: Strategy, object_: Object) -> list[str]:
    new = strategy.prepare_create(strategy.read(object_))
    return [error.field for error in strategy.validate_create(new)]


def test_a_known_spec_does_not_excuse_bad_metadata(pods: Strategy) -> None:
    assert errors(pods, pod()) == []
    assert errors(pods, pod("Not A Name")) == ["metadata.name"]


def test_a_spec_that_differs_is_looked_at(pods: Strategy) -> None:
    assert errors(pods, pod()) == []
    assert errors(pods, pod(restartPolicy="Sometimes")) == ["spec.restartPolicy"]
    assert errors(pods, pod(restartPolicy="Sometimes")) == ["spec.restartPolicy"]


@pytest.mark.parametrize(
    ("metadata", "spec", "expected"),
    [
        ({"labels": {"a": "b"}}, {}, []),
        ({"labels": {"not a key": "b"}}, {}, ["metadata.labels"]),
        ({"uid": "other"}, {}, ["metadata.uid"]),
        ({}, {"hostNetwork": True}, ["spec"]),
        ({}, {"tolerations": []}, []),
    ],
)
def test_updates_are_judged_alike_whether_or_not_the_spec_is_known(
    pods: Strategy, metadata: Object, spec: Object, expected: list[str]
) -> None:
    object_ = pod()
    object_["metadata"] |= {"uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    stored = pods.prepare_create(pods.read(object_))

    def update_errors() -> list[str]:
        wanted = {**stored, "metadata": {**stored["metadata"], **metadata}, "spec": {**stored["spec"], **spec}}
        new = pods.prepare_update(pods.read(wanted), stored, "")
        return [error.field for error in pods.validate_update(new, stored, "")]

    unknown = update_errors()
    assert pods.validate_create(stored) == ()
    assert update_errors() == unknown == expected


def test_the_name_of_a_pod_counts_where_its_volumes_depend_on_it(pods: Strategy) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [
        {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
        {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}},
    ]
    assert errors(pods, pod("q", volumes=volumes)) == []
    assert errors(pods, pod("p", volumes=volumes)) == ["spec.volumes[1].persistentVolumeClaim.claimName"]


def test_pods_that_differ_in_the_name_of_their_token_are_alike() -> None:
    one, other = ({"spec": {"volumes": [{"name": f"kube-api-access-{suffix}"}]}} for suffix in ("abcde", "fghij"))
    assert KnownSpecs.key(one) == KnownSpecs.key(other)
    both = {"spec": {"volumes": [*one["spec"]["volumes"], *other["spec"]["volumes"]]}}
    twice = {"spec": {"volumes": [*one["spec"]["volumes"], *one["spec"]["volumes"]]}}
    assert KnownSpecs.key(both) != KnownSpecs.key(twice)


def test_what_is_kept_is_bounded() -> None:
    known = KnownSpecs()
    keys = [KnownSpecs.key({"spec": {"n": number}}) for number in range(1000)]
    for key in keys:
        known.add(key)
    assert keys[0] not in known
    assert keys[-1] in known
    assert KnownSpecs.key({"spec": "x" * 100_000}) is None
    assert KnownSpecs.key({"spec": "\ud800"}) is None
