"""Pods: claims, resources and the basics."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import create_errors, pod, texts

CLAIMS = [{"name": "a", "resourceClaimName": "x"}]
REQUESTS = "spec.containers[0].resources.requests"
LIMITS = "spec.containers[0].resources.limits"


def with_resources(**resources: Any) -> list[str]:
    return texts(
        create_errors(pod(containers=[{"name": "c", "image": "i", "resources": resources}], resourceClaims=CLAIMS))
    )


def test_a_container_needs_a_name_and_an_image() -> None:
    assert texts(create_errors(pod(containers=[{}]))) == [
        "spec.containers[0].name: Required value",
        "spec.containers[0].image: Required value",
    ]
    assert texts(create_errors(pod(containers=[]))) == ["spec.containers: Required value"]


def test_container_names_are_unique_over_all_lists() -> None:
    again = [{"name": "main", "image": "i"}]
    assert texts(create_errors(pod(initContainers=again))) == ['spec.initContainers[0].name: Duplicate value: "main"']


@pytest.mark.parametrize(
    ("claims", "position"),
    [
        ([{"name": "a"}, {"name": "a"}], 1),
        ([{"name": "a"}, {"name": "a", "request": "r"}], 1),
        ([{"name": "a", "request": "r"}, {"name": "a"}], 1),
        ([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}], 1),
    ],
)
def test_a_claim_is_used_whole_or_by_request_but_not_twice(claims: list[Any], position: int) -> None:
    found = with_resources(claims=claims)
    assert len(found) == 1
    assert found[0].startswith(f"spec.containers[0].resources.claims[{position}]: Duplicate value: ")


def test_a_request_inside_a_claim_is_a_label() -> None:
    assert with_resources(claims=[{"name": "a", "request": "main/sub"}])[0].startswith(
        "spec.containers[0].resources.claims[0].request: Invalid value"
    )


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, []),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, [f'{REQUESTS}: Invalid value: "2": must be less than or equal to cpu limit of 1']),
        ({"limits": {"example.com/gpu": "500m"}}, None),
        ({"requests": {"example.com/gpu": "1"}}, [f"{LIMITS}: Required value: Limit must be set for non overcommitable resources"]),
        ({"requests": {"deviceclass.resource.kubernetes.io/c": "500m"}}, []),
        ({"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}, []),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, ["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"]),
    ],
)  # fmt: skip
def test_amounts_follow_their_resource(resources: dict[str, Any], expected: list[str] | None) -> None:
    found = with_resources(**resources)
    if expected is None:
        assert set(found) == {
            f'{LIMITS}[example.com/gpu]: Invalid value: "500m": must be an integer',
            f'{REQUESTS}[example.com/gpu]: Invalid value: "500m": must be an integer',
        }
    else:
        assert found == expected


def test_a_bare_name_must_be_known() -> None:
    assert with_resources(limits={"gpu": "1"}, requests={})[:2] == [
        f'{LIMITS}[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
        f'{LIMITS}[gpu]: Invalid value: "gpu": must be a standard resource for containers',
    ]


def test_claims_belong_to_containers_not_to_the_pod() -> None:
    value = pod(resources={"claims": [{"name": "a"}]}, resourceClaims=CLAIMS)
    assert texts(create_errors(value)) == [
        "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"
    ]


def test_ephemeral_containers_have_no_resources_and_come_later() -> None:
    ephemeral = {"name": "debug", "image": "i", "resources": {"claims": [{"name": "a"}]}}
    assert texts(create_errors(pod(ephemeralContainers=[ephemeral], resourceClaims=CLAIMS))) == [
        "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    ]
