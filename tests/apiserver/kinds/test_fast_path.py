"""What is in order at first sight is in order when looked at closely, and stored in the same form."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.objects.sharing import changed_parts, sharing
from allot.apiserver.resources import Resource
from allot.core.schema import check_fields

Object = dict[str, Any]


def resource_of(group: str, version: str, plural: str) -> Resource:
    wanted = (group, version, plural)
    return next(r for r in builtin_resources() if (r.group, r.version, r.plural) == wanted)


CLAIMS = resource_of("resource.k8s.io", "v1", "resourceclaims")
PODS = resource_of("", "v1", "pods")

MANAGED = [
    {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}
]
METADATA = {
    "name": "x",
    "namespace": "default",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"app": "a"},
    "managedFields": MANAGED,
}
REQUESTS = [
    {"name": "gpu", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}},
    {
        "name": "any",
        "firstAvailable": [{"name": "a", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}],
    },
]
CLAIM: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": METADATA,
    "spec": {"devices": {"requests": REQUESTS}},
    "status": {},
}
RESULT = {"request": "gpu", "driver": "d.example.com", "pool": "node-1", "device": "gpu-0"}
TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
STATUS: Object = {
    "allocation": {
        "devices": {"results": [RESULT, {**RESULT, "request": "any/a", "device": "gpu-1"}]},
        "nodeSelector": {"nodeSelectorTerms": [TERM]},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    },
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}, {"resource": "pods", "name": "q", "uid": "u2"}],
}
ALLOCATED = {**CLAIM, "status": {name: STATUS[name] for name in ("allocation",)}}
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {**METADATA, "generation": 1},
    "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "t"},
            {"name": "nic", "resourceClaimTemplateName": "t"},
        ],
    },
    "status": {"phase": "Pending", "qosClass": "BestEffort"},
}

# Values to put somewhere: right ones, wrong ones, and ones that are not in the form in which objects are stored.
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, "", "x", "X", "a/b", "gpu", "any", "any/a", "-", "a.b", "a" * 64, "a" * 254, "é", "2026-02-30T00:00:00Z", "pods",
        0, 1, True, 1.5, [], {}, ["x"], [""], [{}], {"x": "y"}, {"x": 1}, [None], [RESULT], [RESULT] * 33, TERM,
        [{"manager": "é\n", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
        [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}] * 2,
        [{"apiVersion": "a/b/c", "kind": "Event", "name": "p", "uid": "u", "controller": None}],
        ["orphan", "foregroundDeletion"], ["example.com/f"], ["no slash"],
    ]
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "name", "namespace", "uid", "labels", "annotations", "finalizers", "ownerReferences", "generateName", "generation",
        "deletionTimestamp", "unknown", "devices", "config", "shareID", "adminAccess", "tolerations", "values", "apiGroup",
        "resourceClaimStatuses", "conditions", "extendedResourceClaimStatus", "managedFields", "matchExpressions",
    ]
)  # fmt: skip


def _without(value: Object, member: str) -> Object:
    return {name: part for name, part in value.items() if name != member}


ENDING: Object = {
    **ALLOCATED,
    "metadata": {
        **ALLOCATED["metadata"],
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "deletionGracePeriodSeconds": 0,
        "finalizers": ["example.com/other", "resource.kubernetes.io/delete-protection"],
    },
}


@st.composite
def altered(draw: st.DrawFn, value: Object) -> Object:
    """The value with up to two changes anywhere in it."""
    changed = copy.deepcopy(value)
    for _ in range(draw(st.integers(0, 2))):
        place: Any = changed
        while True:
            steps = list(place) if isinstance(place, dict) else list(range(len(place)))
            if isinstance(place, dict):
                steps.append(draw(NAMES))
            if not steps:
                break
            step = draw(st.sampled_from(steps))
            below = place.get(step) if isinstance(place, dict) else place[step]
            if isinstance(below, dict | list) and below and draw(st.integers(0, 3)):
                place = below
                continue
            if isinstance(place, dict) and step in place and draw(st.booleans()):
                del place[step]
            else:
                place[step] = copy.deepcopy(draw(ODD))
            break
    return changed


def stored_pod() -> Object:
    strategy = strategy_for(PODS)
    return strategy.prepare_create(strategy.read(POD))


def check(resource: Resource, new: Object, old: Object, subresource: str) -> bool:
    """Whether the update is recognized; fails if the long way says something else."""
    fast_path = strategy_for(resource).fast_path
    assert fast_path is not None
    shared = sharing(new, old)
    metadata = shared.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("managedFields") is not old["metadata"]["managedFields"]:
        # The server sees to that.
        return False
    if not fast_path.accepts(shared, old, subresource):
        return False
    stored = fast_path.stored(shared, old, subresource)
    if stored is None:
        return False
    schema = builtin_schemas().for_kind(resource.group, resource.version, resource.kind)
    assert schema is not None
    report = check_fields(changed_parts(shared, old), schema)
    assert not (report.wrong or report.unknown or report.untidy)
    strategy = strategy_for(resource)
    prepared = strategy.prepare_update(strategy.read(new), old, subresource)
    assert strategy.validate_update(prepared, old, subresource) == ()
    assert stored == prepared
    return True


CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available",
    "lastProbeTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}


def test_the_usual_updates_are_recognized() -> None:
    labelled = {**METADATA, "labels": {"app": "b"}, "finalizers": ["example.com/f"]}
    claimed = {**POD["status"], "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "x-gpu"}]}
    assert check(CLAIMS, {**CLAIM, "metadata": labelled}, CLAIM, "")
    assert check(CLAIMS, {**CLAIM, "status": STATUS}, CLAIM, "status")
    assert check(CLAIMS, {**ALLOCATED, "status": STATUS}, ALLOCATED, "status")
    assert check(CLAIMS, {**ENDING, "metadata": _without(ENDING["metadata"], "finalizers")}, ENDING, "")
    assert not check(CLAIMS, {**ENDING, "status": STATUS}, ENDING, "status")
    more = {**ENDING["metadata"], "finalizers": [*ENDING["metadata"]["finalizers"], "example.com/new"]}
    assert not check(CLAIMS, {**ENDING, "metadata": more}, ENDING, "")
    pod = stored_pod()
    assert check(PODS, {**pod, "metadata": {**labelled, "generation": 1}}, pod, "")
    assert check(PODS, {**pod, "status": claimed}, pod, "status")
    waiting = {**claimed, "conditions": [CONDITION], "nominatedNodeName": "node-1", "message": "m"}
    assert check(PODS, {**pod, "status": waiting}, pod, "status")
    assert check(PODS, {**pod, "status": {**claimed, "conditions": [CONDITION]}}, {**pod, "status": waiting}, "status")


@pytest.mark.slow
@given(altered({**CLAIM, "status": STATUS}), st.sampled_from([CLAIM, ALLOCATED]), st.sampled_from(["", "status"]))
@settings(max_examples=300)
def test_a_claim_that_is_recognized_is_in_order(new: Object, old: Object, subresource: str) -> None:
    check(CLAIMS, new, old, subresource)


@pytest.mark.slow
@given(altered(METADATA))
@settings(max_examples=200)
def test_metadata_that_is_recognized_is_in_order(metadata: Object) -> None:
    check(CLAIMS, {**ALLOCATED, "metadata": metadata}, ALLOCATED, "")


CLAIMED = [{"name": name, "resourceClaimName": f"x-{name}"} for name in ("gpu", "nic")]
WAITING = {**POD["status"], "resourceClaimStatuses": CLAIMED, "conditions": [CONDITION], "message": "m"}


@pytest.mark.slow
@given(altered(WAITING), st.sampled_from([POD["status"], WAITING]))
@settings(max_examples=200)
def test_a_pod_status_that_is_recognized_is_in_order(status: Object, before: Object) -> None:
    pod = {**stored_pod(), "status": before}
    check(PODS, {**pod, "status": status}, pod, "status")


MAPPING = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
EXTENDED = {**POD["status"], "extendedResourceClaimStatus": {"resourceClaimName": "x-y", "requestMappings": [MAPPING]}}


def pod_with_extended_resources() -> Object:
    pod = stored_pod()
    asked = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    (container,) = pod["spec"]["containers"]
    container = {**container, "name": "c", "resources": {**container.get("resources", {}), **asked}}
    return {**pod, "spec": {**pod["spec"], "containers": [container]}}


def test_a_claim_for_extended_resources_is_recognized_once() -> None:
    pod = pod_with_extended_resources()
    assert check(PODS, {**pod, "status": EXTENDED}, pod, "status")
    twice = {"resourceClaimName": "x-y", "requestMappings": [MAPPING, MAPPING]}
    other = {"resourceClaimName": "x-y", "requestMappings": [{**MAPPING, "resourceName": "example.com/nic"}]}
    for wrong in (twice, other, {"resourceClaimName": "x-y", "requestMappings": []}):
        assert not check(PODS, {**pod, "status": {**EXTENDED, "extendedResourceClaimStatus": wrong}}, pod, "status")


@pytest.mark.slow
@given(altered(EXTENDED), st.sampled_from([POD["status"], WAITING, EXTENDED]))
@settings(max_examples=200)
def test_a_recognized_claim_for_extended_resources_is_in_order(status: Object, before: Object) -> None:
    pod = {**pod_with_extended_resources(), "status": before}
    check(PODS, {**pod, "status": status}, pod, "status")
