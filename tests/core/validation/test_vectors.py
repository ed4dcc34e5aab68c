"""Kubernetes' own answers: every object of vectors/api is accepted or refused as a 1.37 API server did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates
from allot.core.model.codec import Envelope, decode_object, encode_envelope
from allot.core.model.meta import ObjectMeta
from allot.core.model.scheduling_v1 import PriorityClass
from allot.core.validation.validate import (
    FieldError,
    Prepared,
    UnknownKind,
    prepare_create,
    prepare_status_update,
    prepare_update,
    validate_create,
    validate_status_update,
    validate_update,
)
from vectors import vectors_dir

VECTORS = vectors_dir()
pytestmark = pytest.mark.skipif(VECTORS is None, reason="vectors are not beside the repository nor in ALLOT_VECTORS")

NOW = "2026-08-01T12:00:00Z"
CLASSES = {"batch-high": PriorityClass(metadata=ObjectMeta(name="batch-high"), value=1000)}


def load(name: str) -> Any:
    return json.loads((VECTORS / "api" / name).read_text()) if VECTORS is not None else []


class Plain(yaml.SafeLoader):
    """YAML as Kubernetes reads it: times stay text."""


Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents(*, status: bool) -> list[Any]:
    """The YAML documents: whole objects, or bodies for the status subresource."""
    if VECTORS is None:
        return []
    found = []
    for path in sorted((VECTORS / "api").glob("*.yaml")):
        if path.stem.endswith("-status") is not status:
            continue
        for number, document in enumerate(yaml.load_all(path.read_text(), Loader=Plain)):
            if document is not None:
                found.append(pytest.param(document, id=f"{path.stem}-{number}"))
    return found


def gates_of(case: Mapping[str, Any]) -> FeatureGates:
    return ALL_GATES if case.get("gates") else DEFAULT_GATES


def create(value: Any, gates: FeatureGates, labels: Mapping[str, str] | None = None) -> Prepared:
    prepared = prepare_create(value, gates=gates, now=NOW, namespace="team-a", priority_classes=CLASSES)
    errors = validate_create(prepared, gates=gates, namespace_labels=labels)
    assert errors == ()
    return prepared


def as_stored(prepared: Prepared) -> Envelope:
    """The envelope as a server would read it back: with a version and a uid."""
    stored = prepared.stored
    stored["metadata"] |= {"resourceVersion": "1", "uid": "00000000-0000-0000-0000-000000000001"}
    if "creationTimestamp" not in stored["metadata"]:
        stored["metadata"]["creationTimestamp"] = NOW
    return decode_object(stored)


def put(value: Mapping[str, Any], old: Envelope) -> dict[str, Any]:
    """The body of a PUT: metadata of the stored object merged in."""
    stored = encode_envelope(old)
    return {**value, "metadata": {**stored["metadata"], **value["metadata"]}}


def errors_of(case: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """What we find wrong with a case."""
    gates = gates_of(case)
    labels: Mapping[str, str] = {}
    if case["operation"] == "create":
        prepared = prepare_create(case["object"], gates=gates, now=NOW, priority_classes=CLASSES)
        return validate_create(prepared, gates=gates, namespace_labels=labels)
    old = as_stored(create(case["old"], gates))
    if "oldStatus" in case:
        written = {**encode_envelope(old), "status": case["oldStatus"]}
        prepared = prepare_status_update(written, old, gates=gates, now=NOW)
        assert validate_status_update(prepared, old, gates=gates, namespace_labels=labels) == ()
        old = as_stored(prepared)
    if case["operation"] == "status-deleting":
        deleting = encode_envelope(old)
        old = decode_object({**deleting, "metadata": {**deleting["metadata"], "deletionTimestamp": NOW}})
    body = put(case["object"], old)
    if case["operation"] == "update-unconditional":
        body["metadata"].pop("resourceVersion")
    if case["operation"] in ("update", "update-unconditional"):
        prepared = prepare_update(body, old, gates=gates, now=NOW)
        return validate_update(prepared, old, gates=gates)
    prepared = prepare_status_update(body, old, gates=gates, now=NOW)
    return validate_status_update(prepared, old, gates=gates, namespace_labels=labels)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in load("invalid.json")])
def test_an_invalid_object_gets_the_errors_that_kubernetes_gives(case: Mapping[str, Any]) -> None:
    found = errors_of(case)
    expected = case["errors"]
    assert Counter((error.field, error.type) for error in found) == Counter(
        (error["field"], error["type"]) for error in expected
    ), found
    exact = [error for error in expected if error.get("messageExact", True)]
    inexact = {(error["field"], error["type"]) for error in expected if not error.get("messageExact", True)}
    assert Counter(error.message for error in found if (error.field, error.type) not in inexact) == Counter(
        error["message"] for error in exact
    )


def without_times(value: Any) -> Any:
    return json.loads(json.dumps(value).replace(NOW, "<now>"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in load("accepted-oddities.json")])
def test_an_odd_object_is_accepted_and_stored_as_by_kubernetes(case: Mapping[str, Any]) -> None:
    prepared = create(case["object"], DEFAULT_GATES, labels={})
    if "stored" in case:
        stored = without_times(prepared.stored)
        assert {name: stored[name] for name in ("spec", "status") if name in stored} == case["stored"]
    if "warning" in case:
        assert case["warning"] == f'299 - "{prepared.warnings[-1]}"'.replace(
            prepared.warnings[-1], prepared.warnings[-1].replace('"', '\\"')
        )


@pytest.mark.parametrize("document", documents(status=False))
def test_every_example_is_accepted_with_all_gates_on(document: Any) -> None:
    try:
        create(document, ALL_GATES, labels={"resource.kubernetes.io/admin-access": "true"})
    except UnknownKind:
        assert document["kind"] in ("ResourceQuota", "Namespace", "PriorityClass"), document["kind"]


@pytest.mark.parametrize("document", documents(status=False))
def test_every_example_but_one_is_accepted_with_the_default_gates(document: Any) -> None:
    if document["metadata"].get("name") == "list-attributes":
        prepared = prepare_create(document, gates=DEFAULT_GATES, now=NOW)
        assert validate_create(prepared, gates=DEFAULT_GATES) != ()
        return
    if document["apiVersion"].startswith("scheduling.k8s.io"):
        pytest.skip("the API is not served with the default gates")
    try:
        create(document, DEFAULT_GATES, labels={"resource.kubernetes.io/admin-access": "true"})
    except UnknownKind:
        assert document["kind"] == "ResourceQuota"


def merged(value: Any, patch: Any) -> Any:
    """RFC 7386 merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, item in patch.items():
        if item is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), item)
    return result


@pytest.mark.skipif(VECTORS is None, reason="vectors are not beside the repository nor in ALLOT_VECTORS")
def test_every_status_example_is_accepted_in_turn_with_all_gates_on() -> None:
    whole = {
        (document.values[0]["kind"], document.values[0]["metadata"].get("name")): document.values[0]
        for document in documents(status=False)
    }
    current: dict[tuple[str, str], Envelope] = {}
    for document in documents(status=True):
        body = document.values[0]
        name = (body["kind"], body["metadata"]["name"])
        if name not in current:
            source = whole.get(name, {key: value for key, value in body.items() if key != "status"})
            current[name] = as_stored(create(source, ALL_GATES))
        old = current[name]
        # Writing None through a merge patch removes the field, as documents 2 and 3 of the claim's status do.
        sent = merged(encode_envelope(old), {"status": body["status"]})
        prepared = prepare_status_update(sent, old, gates=ALL_GATES, now=NOW)
        assert validate_status_update(prepared, old, gates=ALL_GATES, namespace_labels={}) == (), document.id
        current[name] = as_stored(prepared)
    claim = encode_envelope(current[("ResourceClaim", "allocated")])
    assert claim["status"] == {}, "deallocation clears the device reports"
    assert len(current) == 7
