"""The table of kinds against the schemas of Kubernetes and the names that clients know."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.resources import Resource

FOLDER = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / "v1.37.0-local"
# What only parts of other answers are of.
NOT_SERVED = {"Status", "Scale", "TokenRequest", "DeleteOptions", "WatchEvent", "APIGroup", "APIResourceList"}


@pytest.fixture(scope="module")
def kinds_with_schema() -> set[tuple[str, str, str]]:
    definitions: dict[str, Any] = json.loads((FOLDER / "_definitions.json").read_text())["$defs"]
    found = set()
    for definition in definitions.values():
        versions = definition.get("x-kubernetes-group-version-kind", ())
        if "metadata" in definition.get("properties", ()) and len(versions) == 1:
            found |= {(entry["group"], entry["version"], entry["kind"]) for entry in versions}
    return {entry for entry in found if not entry[2].endswith("List") and entry[2] not in NOT_SERVED}


def row(group: str, version: str, plural: str) -> Resource:
    found = [r for r in builtin_resources() if (r.group, r.version, r.plural) == (group, version, plural)]
    assert len(found) == 1
    return found[0]


@pytest.mark.slow
def test_every_row_has_a_schema_and_every_schema_of_a_kind_has_a_row(
    kinds_with_schema: set[tuple[str, str, str]],
) -> None:
    rows = {(resource.group, resource.version, resource.kind) for resource in builtin_resources()}
    assert rows - kinds_with_schema == set()
    # policy/v1 Eviction is the body of pods/eviction.
    assert kinds_with_schema - rows == {("policy", "v1", "Eviction")}


def test_no_two_rows_answer_to_the_same_path() -> None:
    paths = Counter((resource.group, resource.version, resource.plural) for resource in builtin_resources())
    assert max(paths.values()) == 1


def test_stored_versions_are_served_versions() -> None:
    served = {(resource.api_version, resource.kind) for resource in builtin_resources()}
    assert all((resource.storage_api_version, resource.kind) in served for resource in builtin_resources())


def test_only_versions_of_one_kind_share_a_folder() -> None:
    kinds: dict[str, set[str]] = {}
    for resource in builtin_resources():
        if resource.stored:
            kinds.setdefault(resource.storage_resource, set()).add(f"{resource.storage_api_version} {resource.kind}")
    # The lifecycle and core evictions aside, folders are named by plurals, which are unique among stored kinds.
    assert {folder: found for folder, found in kinds.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("group", "plural", "folder"),
    [
        ("", "services", "services/specs"),
        ("", "endpoints", "services/endpoints"),
        ("", "nodes", "minions"),
        ("", "replicationcontrollers", "controllers"),
        ("networking.k8s.io", "ingresses", "ingress"),
        ("coordination.k8s.io", "leases", "leases"),
        ("events.k8s.io", "events", "events"),
        ("resource.k8s.io", "resourceclaims", "resourceclaims"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "apiextensions.k8s.io/customresourcedefinitions"),
    ],
)
def test_keys_are_where_kube_apiserver_has_them(group: str, plural: str, folder: str) -> None:
    assert row(group, "v1", plural).storage_resource == folder


def test_short_names_and_categories_are_those_of_kubectl() -> None:
    assert row("", "v1", "pods").short_names == ("po",)
    assert row("apps", "v1", "deployments").categories == ("all",)
    assert row("apiextensions.k8s.io", "v1", "customresourcedefinitions").short_names == ("crd", "crds")


def test_taint_rules_are_stored_as_v1beta2_and_stricter_in_v1() -> None:
    new, old = row("resource.k8s.io", "v1", "devicetaintrules"), row("resource.k8s.io", "v1beta2", "devicetaintrules")
    assert new.storage_api_version == old.storage_api_version == "resource.k8s.io/v1beta2"
    assert (new.unconditional_update, old.unconditional_update) == (False, True)
    assert (new.returns_deleted, old.returns_deleted) == (False, True)


def test_deprecated_versions_carry_the_warning_of_kubernetes() -> None:
    assert (
        row("resource.k8s.io", "v1beta1", "resourceclaims").warning
        == "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+"
    )
    assert row("resource.k8s.io", "v1", "resourceclaims").warning == ""


def test_selectable_fields_read_what_selectors_compare() -> None:
    pods = row("", "v1", "pods").selectable_fields
    pod = {"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}}
    assert pods["spec.nodeName"](pod) == "n1"
    assert pods["status.phase"](pod) == "Running"
    assert pods["status.podIP"](pod) == "10.0.0.1"
    assert pods["spec.hostNetwork"](pod) == "false"
    assert pods["spec.serviceAccountName"]({}) == ""
    assert row("", "v1", "nodes").selectable_fields["spec.unschedulable"]({"spec": {"unschedulable": True}}) == "true"
    event = {"involvedObject": {"kind": "Pod"}, "reportingComponent": "kubelet"}
    assert row("events.k8s.io", "v1", "events").selectable_fields["regarding.kind"](event) == "Pod"
    assert row("", "v1", "events").selectable_fields["source"](event) == "kubelet"
