"""Definitions as kube-apiserver v1.37.0-rc.1 stores them, read as it reads them (apiextensions v1 conversion.go)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from allot.core.customresources.older_definitions import from_v1beta1

SCHEMA = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
COLUMN = {"name": "Age", "type": "date", "JSONPath": ".metadata.creationTimestamp"}


def stored(**spec: Any) -> dict[str, Any]:
    whole = {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Gizmo"}, "version": "v1", **spec}
    return {"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition", "spec": whole}


def test_what_is_said_once_is_true_of_every_version() -> None:
    versions = [{"name": "v1", "served": True, "storage": True}, {"name": "v2", "served": False, "storage": False}]
    given = stored(
        versions=versions,
        validation=SCHEMA,
        subresources={"status": {}},
        additionalPrinterColumns=[COLUMN],
        selectableFields=[{"jsonPath": ".spec.size"}],
        preserveUnknownFields=False,
    )
    before = copy.deepcopy(given)
    read = from_v1beta1(given)
    assert given == before
    assert read["apiVersion"] == "apiextensions.k8s.io/v1"
    shared = {
        "schema": SCHEMA,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
        "selectableFields": [{"jsonPath": ".spec.size"}],
    }
    names = {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Gizmo"}}
    assert read["spec"] == {**names, "versions": [{**one, **shared} for one in versions]}


def test_what_differs_between_versions_stays_in_them() -> None:
    other = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": "v1", "schema": SCHEMA, "additionalPrinterColumns": [COLUMN]}, {"name": "v2", "schema": other}]
    read = from_v1beta1(stored(versions=versions))["spec"]["versions"]
    assert [one["schema"] for one in read] == [SCHEMA, other]
    assert read[0]["additionalPrinterColumns"][0]["jsonPath"] == ".metadata.creationTimestamp"


def test_a_single_version_may_be_a_name_only() -> None:
    assert from_v1beta1(stored())["spec"]["versions"] == [{"name": "v1", "served": True, "storage": True}]


@pytest.mark.parametrize(("told", "kept"), [(None, True), (True, True), (False, None)])
def test_unknown_fields_are_kept_unless_the_definition_says_otherwise(told: bool | None, kept: bool | None) -> None:
    more = {} if told is None else {"preserveUnknownFields": told}
    assert from_v1beta1(stored(**more))["spec"].get("preserveUnknownFields") is kept


def test_the_webhook_that_converts_is_found() -> None:
    client = {"service": {"name": "w", "namespace": "n", "path": "/convert"}}
    given = {"strategy": "Webhook", "webhookClientConfig": client, "conversionReviewVersions": ["v1"]}
    read = from_v1beta1(stored(conversion=given))["spec"]["conversion"]
    assert read == {
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    }
    assert from_v1beta1(stored(conversion={"strategy": "None"}))["spec"]["conversion"] == {"strategy": "None"}
