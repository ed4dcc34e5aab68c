"""Specs that were found in order are not looked at again, and nothing else gets through because of that."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.kinds.known_specs import KnownSpecs, PodSpecKeys, exact_key
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
    one, other = ({"volumes": [{"name": f"kube-api-access-{suffix}"}]} for suffix in ("abcde", "fghij"))
    keys = PodSpecKeys()
    assert keys.key(one) == keys.key(other)
    both = {"volumes": [*one["volumes"], *other["volumes"]]}
    twice = {"volumes": [*one["volumes"], *one["volumes"]]}
    assert keys.key(both) != keys.key(twice)


def test_what_is_kept_is_bounded() -> None:
    known: KnownSpecs[bool] = KnownSpecs()
    keys = [exact_key({"n": number}) for number in range(1000)]
    for key in keys:
        known.put(key, True)
    assert keys[0] not in known
    assert keys[-1] in known
    assert exact_key("x" * 100_000) is None
    assert exact_key("\ud800") is None


def test_claims_from_one_template_are_stored_alike_and_do_not_share_a_status() -> None:
    claims = strategy_for(next(r for r in builtin_resources() if r.kind == "ResourceClaim" and r.version == "v1"))
    stored = []
    for name in ("a", "b", "c"):
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "d", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "c"}}]}},
        }
        new = claims.prepare_create(claims.read(claim))
        assert claims.validate_create(new) == ()
        stored.append({**new, "metadata": {**new["metadata"], "name": "", "uid": ""}})
    assert stored[0] == stored[1] == stored[2]
    assert stored[0]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    wrong = {**stored[0], "metadata": {"name": "Not A Name", "namespace": "d"}}
    assert [error.field for error in claims.validate_create(claims.prepare_create(wrong))] == ["metadata.name"]


def test_claims_that_differ_in_what_pods_need_not_share_keep_their_own_spec() -> None:
    claims = strategy_for(next(r for r in builtin_resources() if r.kind == "ResourceClaim" and r.version == "v1"))
    for name in ("kube-api-access-aaaaa", "kube-api-access-bbbbb"):
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "d", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": name}}]}},
        }
        new = claims.prepare_create(claims.read(claim))
        assert claims.validate_create(new) == ()
        assert new["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == name
