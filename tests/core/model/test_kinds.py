"""The table of kinds is complete and consistent."""

from __future__ import annotations

import pytest

from allot.core.model.core_v1 import Pod
from allot.core.model.kinds import KINDS, UnknownKind, deprecation_of, is_kind_type, kind_of, kind_of_type
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import DeviceTaintRule


def test_every_kind_is_found_by_each_of_its_versions_and_by_its_type() -> None:
    for kind in KINDS:
        assert kind_of_type(kind.type) is kind
        assert is_kind_type(kind.type)
        assert [kind_of(api_version, kind.name) for api_version in kind.api_versions] == [kind] * len(kind.versions)


def test_hub_and_stored_version_are_versions_of_the_kind() -> None:
    for kind in KINDS:
        assert {kind.hub_version, kind.stored_version} <= set(kind.versions), kind.name


def test_a_kind_has_a_status_subresource_only_if_its_type_has_a_status() -> None:
    for kind in KINDS:
        assert kind.has_status is ("status" in kind.type.__struct_fields__), kind.name


def test_the_core_group_has_no_name() -> None:
    assert kind_of("v1", "Pod").hub_api_version == "v1"
    assert kind_of("v1", "Pod").singular == "pod"
    assert not is_kind_type(ObjectMeta)


def test_a_taint_rule_is_stored_in_another_version_than_it_is_handled_in() -> None:
    kind = kind_of_type(DeviceTaintRule)
    assert (kind.hub_version, kind.stored_version) == ("v1", "v1beta2")


def test_the_old_alpha_is_known_for_reading_only() -> None:
    kind = kind_of("resource.k8s.io/v1alpha3", "ResourceClaim")
    assert "resource.k8s.io/v1alpha3" not in kind.api_versions


@pytest.mark.parametrize(
    ("api_version", "name", "message"),
    [
        ("v2", "Pod", "kind 'Pod' has no version 'v2': expected v1"),
        ("v1", "Secret", "unknown kind 'Secret' in apiVersion 'v1': expected one of CompositePodGroup, DeviceClass"),
        ("v" * 1000, "x" * 1000, r"x\.\.\.' in apiVersion 'v+\.\.\.'"),
        ("resource.k8s.io/v1alpha2", "ResourceClass", "unknown kind 'ResourceClass'"),
    ],
)
def test_an_unknown_kind_is_answered_with_what_is_known(api_version: str, name: str, message: str) -> None:
    with pytest.raises(UnknownKind, match=message):
        kind_of(api_version, name)


@pytest.mark.parametrize(
    ("api_version", "name", "warning"),
    [
        (
            "resource.k8s.io/v1beta1",
            "ResourceClaim",
            "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
        ),
        (
            "resource.k8s.io/v1alpha3",
            "DeviceTaintRule",
            "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+",
        ),
        ("resource.k8s.io/v1beta2", "DeviceTaintRule", None),
        ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", None),
        ("resource.k8s.io/v1", "ResourceClaim", None),
        ("scheduling.k8s.io/v1beta1", "PodGroup", None),
        ("v1", "Pod", None),
    ],
)
def test_deprecated_versions_have_a_warning(api_version: str, name: str, warning: str | None) -> None:
    assert deprecation_of(api_version, name) == warning


def test_a_part_of_an_object_is_no_kind() -> None:
    with pytest.raises(KeyError):
        kind_of_type(ObjectMeta)
    assert kind_of_type(Pod).namespaced
