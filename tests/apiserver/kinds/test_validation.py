"""The cases that `tests/security/test_kinds.py` sends to servers, asked of the strategies alone."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources
from allot.core.validation.fields import FieldError
from security.kind_cases import CASES, CHANGES, Case, Change

RESOURCES = {(resource.kind, resource.version): resource for resource in builtin_resources()}
NOW = "2026-01-01T00:00:00Z"


def stored(kind: str, object_: dict[str, Any]) -> tuple[Any, dict[str, Any], tuple[FieldError, ...]]:
    """The strategy, and what it makes of a new object."""
    resource = RESOURCES[kind, "v1"]
    strategy = strategy_for(resource, now=lambda: NOW)
    metadata = {**object_["metadata"], "uid": "u", "creationTimestamp": NOW}
    if resource.namespaced:
        metadata["namespace"] = "default"
    written = {"apiVersion": resource.api_version, "kind": kind, **object_, "metadata": metadata}
    prepared = strategy.prepare_create(strategy.read(written))
    return strategy, prepared, strategy.validate_create(prepared)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_new_object_is_taken_or_refused_for_its_fault(case: Case) -> None:
    _, _, errors = stored(case.kind, case.object)
    first = [(error.field, error.type) for error in errors[:1]]
    assert first == ([(case.field, case.reason)] if case.field else []), errors


def merged(object_: Any, patch: Any) -> Any:
    """The object with a merge patch."""
    if not isinstance(patch, dict):
        return patch
    base = object_ if isinstance(object_, dict) else {}
    return {**base, **{name: merged(base.get(name), value) for name, value in patch.items()}}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_change_is_taken_or_refused_for_its_fault(change: Change) -> None:
    strategy, object_, errors = stored(change.kind, change.object)
    assert errors == ()
    old = {**object_, "metadata": {**object_["metadata"], "resourceVersion": "1"}}
    new = strategy.prepare_update(strategy.read(merged(old, change.patch)), old, change.subresource)
    errors = strategy.validate_update(new, old, change.subresource)
    first = [(error.field, error.type) for error in errors[:1]]
    assert first == ([(change.field, change.reason)] if change.field else []), errors


def test_conditions_of_signing_requests_get_the_time_of_the_server() -> None:
    approved = next(change for change in CHANGES if str(change) == "CertificateSigningRequest-approved")
    strategy, old, _ = stored(approved.kind, approved.object)
    new = strategy.prepare_update(merged(old, approved.patch), old, "approval")
    (condition,) = new["status"]["conditions"]
    assert (condition["lastUpdateTime"], condition["lastTransitionTime"]) == (NOW, NOW)
    earlier = "2025-01-01T00:00:00Z"
    kept = {**new, "status": {"conditions": [{**condition, "lastTransitionTime": earlier}]}}
    again = strategy.prepare_update(merged(kept, approved.patch), kept, "approval")
    assert again["status"]["conditions"][0]["lastTransitionTime"] == earlier


def test_stored_addresses_may_stay_as_they_are_spelled() -> None:
    odd = "010.1.2.3"
    strategy, good, _ = stored("EndpointSlice", next(case.object for case in CASES if case.kind == "EndpointSlice"))
    old = {**good, "metadata": {**good["metadata"], "resourceVersion": "1"}, "endpoints": [{"addresses": [odd]}]}
    labelled = merged(old, {"metadata": {"labels": {"a": "b"}}})
    assert strategy.validate_update(strategy.prepare_update(labelled, old, ""), old, "") == ()
    more = merged(old, {"endpoints": [{"addresses": [odd]}, {"addresses": ["10.1.2.4"]}]})
    assert strategy.validate_update(strategy.prepare_update(more, old, ""), old, "") != ()
