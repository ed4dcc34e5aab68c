"""Who may write which part of a claim's status."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.access.attributes import Attributes, Decision, User
from allot.core.access.claim_status import allocated_node, changed_drivers, check_claim_status_write
from allot.core.validation.fields import FieldError

ALICE = User("alice")
DRIVER_POD = User("system:serviceaccount:drivers:gpu", extra={"authentication.kubernetes.io/node-name": ("n1",)})


def allocation(node: str = "n1") -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {
        "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
    }


def device(driver: str = "gpu.example.com", **more: Any) -> dict[str, Any]:
    return {"driver": driver, "pool": "p", "device": "d", **more}


def check(
    new: dict[str, Any], old: dict[str, Any], allowed: tuple[str, ...] = (), user: User = ALICE, verb: str = "update"
) -> tuple[FieldError, ...]:
    """allowed: `verb subresource namespace/name`."""

    def authorize(asked: Attributes) -> Decision:
        assert (asked.group, asked.resource) == ("resource.k8s.io", "resourceclaims")
        return Decision(f"{asked.verb} {asked.subresource} {asked.namespace}/{asked.name}" in allowed)

    attributes = Attributes(
        user=user,
        verb=verb,
        group="resource.k8s.io",
        resource="resourceclaims",
        subresource="status",
        namespace="default",
        name="claim",
    )
    return check_claim_status_write(authorize, attributes, new, old)


def test_nothing_changed_needs_nothing() -> None:
    status = {"allocation": allocation(), "devices": [device()], "reservedFor": []}
    assert check(status, {"allocation": allocation(), "devices": [device()]}) == ()
    assert check({}, {}) == ()


@pytest.mark.parametrize(
    "changed", [{"allocation": allocation()}, {"reservedFor": [{"resource": "pods", "name": "p"}]}]
)
def test_allocating_and_reserving_need_binding_in_the_whole_cluster(changed: dict[str, Any]) -> None:
    assert check(changed, {}, ("update binding /",)) == ()
    assert check({}, changed, ("update binding /",)) == ()
    assert check(changed, {}, ("patch binding /",), verb="patch") == ()
    (error,) = check(changed, {}, ("update binding default/claim",))
    assert error == FieldError(
        "status.allocation",
        "FieldValueForbidden",
        "Forbidden: changing status.allocation or status.reservedFor requires "
        'resource="resourceclaims/binding", verb="update" permission: resourceclaims.resource.k8s.io is forbidden: '
        'User "alice" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope',
    )


def test_a_driver_reports_about_its_own_devices() -> None:
    old = {"allocation": allocation(), "devices": [device()]}
    new = {"allocation": allocation(), "devices": [device(conditions=[{"type": "Ready"}])]}
    assert check(new, old, ("arbitrary-node:update driver default/gpu.example.com",)) == ()
    (error,) = check(new, old)
    assert error == FieldError(
        "status.devices",
        "FieldValueForbidden",
        'Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" '
        'permission: resourceclaims.resource.k8s.io "gpu.example.com" is forbidden: User "alice" cannot '
        'arbitrary-node:update resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "default"',
    )


def test_a_driver_on_the_claims_node_may_use_the_smaller_right() -> None:
    old = {"allocation": allocation()}
    new = {"allocation": allocation(), "devices": [device()]}
    right = ("associated-node:update driver default/gpu.example.com",)
    assert check(new, old, right, DRIVER_POD) == ()
    assert check(new, old, right) != ()
    elsewhere = {"allocation": allocation("n2"), "devices": [device()]}
    assert check(elsewhere, {"allocation": allocation("n2")}, right, DRIVER_POD) != ()
    (error,) = check(new, old, (), DRIVER_POD)
    assert 'verb="[associated-node:update arbitrary-node:update]"' in error.message


def test_devices_that_go_with_their_allocation_need_only_binding() -> None:
    old = {"allocation": allocation(), "devices": [device()]}
    assert check({}, old, ("update binding /",)) == ()


def test_drivers_are_those_of_added_removed_and_changed_entries() -> None:
    old = {"devices": [device("a"), device("b"), device("c", shareID="1")]}
    new = {"devices": [device("a"), device("b", data={"x": 1}), device("c", shareID="2"), device("d")]}
    assert changed_drivers(new, old) == ["b", "c", "d"]


@pytest.mark.parametrize(
    "selector",
    [
        None,
        {"nodeSelectorTerms": []},
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]},
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]},
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]},
    ],
)
def test_an_allocation_has_a_node_only_if_its_selector_says_just_that(selector: Any) -> None:
    assert allocated_node({"nodeSelector": selector}) == ""
    assert allocated_node(allocation()) == "n1"
    assert allocated_node(None) == ""


def test_deeply_nested_parameters_are_compared_without_recursion() -> None:
    def nested() -> dict[str, Any]:
        value: dict[str, Any] = {}
        for _ in range(5000):
            value = {"a": value}
        return {"devices": [device(data=value)]}

    assert changed_drivers(nested(), nested()) == []
