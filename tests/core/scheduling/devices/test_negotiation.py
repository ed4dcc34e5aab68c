"""What the scheduler offers to controllers that allocate claims, from what they said."""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.model.classic import POTENTIAL_NODES_MAX, SUITABLE_NODES
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from allot.core.scheduling.devices.negotiation import (
    OFFERED_MAX,
    Negotiation,
    allowed_nodes,
    next_offer,
)


class Nodes:
    """Nodes of a cluster, the best first."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __call__(self, excluded: frozenset[str]) -> Iterable[str]:
        return (name for name in self._names if name not in excluded)


def said(potential: tuple[str, ...], selected: str = "", **unsuitable: Iterable[str]) -> Negotiation:
    return Negotiation(
        selected_node=selected,
        potential_nodes=potential,
        unsuitable={name: frozenset(nodes) for name, nodes in unsuitable.items()},
    )


def test_one_claim_is_tried_on_the_best_node_at_once() -> None:
    offer = next_offer(None, ["gpu"], Nodes("n2", "n1"))
    assert (offer.selected_node, offer.potential_nodes) == ("n2", ("n1", "n2"))


def test_of_several_controllers_all_are_heard_before_a_node_is_selected() -> None:
    nodes = Nodes("n1", "n2")
    offer = next_offer(None, ["gpu", "nic"], nodes)
    assert (offer.selected_node, offer.potential_nodes) == ("", ("n1", "n2"))
    half = said(("n1", "n2"), gpu=["n1"])
    assert next_offer(half, ["gpu", "nic"], nodes).selected_node == ""
    whole = said(("n1", "n2"), gpu=["n1"], nic=[])
    assert next_offer(whole, ["gpu", "nic"], nodes).selected_node == "n2"


def test_a_node_that_does_not_suit_is_left_but_stays_in_the_offer() -> None:
    known = said(("n1", "n2"), "n1", gpu=["n1"])
    offer = next_offer(known, ["gpu"], Nodes("n1", "n2"))
    assert (offer.selected_node, offer.potential_nodes) == ("n2", ("n1", "n2"))
    assert next_offer(offer, ["gpu"], Nodes("n1", "n2")) == offer


def test_a_selected_node_that_still_suits_is_kept_although_another_is_better_now() -> None:
    known = said(("n1", "n2"), "n2", gpu=[])
    assert next_offer(known, ["gpu"], Nodes("n1", "n2")).selected_node == "n2"


def test_without_a_node_that_suits_none_is_selected_and_all_are_asked_again() -> None:
    known = said(("n1", "n2"), "n1", gpu=["n1", "n2"])
    offer = next_offer(known, ["gpu"], Nodes("n1", "n2"))
    assert (offer.selected_node, offer.potential_nodes) == ("", ("n1", "n2"))
    assert next_offer(None, ["gpu"], Nodes()) == Negotiation()


def test_what_other_claims_say_does_not_count() -> None:
    known = said(("n1",), gone=["n1"])
    assert next_offer(known, ["gpu"], Nodes("n1")).selected_node == "n1"


def test_an_offer_grows_no_longer_than_the_api_allows() -> None:
    names = tuple(f"n{number:04}" for number in range(3 * POTENTIAL_NODES_MAX))
    known, rounds = next_offer(None, ["gpu"], Nodes(*names)), 0
    assert len(known.potential_nodes) == OFFERED_MAX
    while known.selected_node and rounds < 100:
        full = set(known.unsuitable.get("gpu", ())) | set(known.potential_nodes)
        known = next_offer(said(known.potential_nodes, known.selected_node, gpu=full), ["gpu"], Nodes(*names))
        rounds += 1
        assert len(known.potential_nodes) <= POTENTIAL_NODES_MAX
    assert rounds == -(-len(names) // OFFERED_MAX)


def test_classes_say_which_nodes_are_asked_about() -> None:
    text = '{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}'
    classes = {
        "slots": DeviceClass(metadata=ObjectMeta(name="slots", annotations={SUITABLE_NODES: text})),
        "any": DeviceClass(metadata=ObjectMeta(name="any")),
    }
    nodes = [Node(metadata=ObjectMeta(name=name, labels={"zone": zone})) for name, zone in (("n1", "a"), ("n2", "b"))]

    def claim(*names: str) -> ResourceClaim:
        requests = tuple(DeviceRequest(name=name, exactly=ExactDeviceRequest(device_class_name=name)) for name in names)
        return ResourceClaim(spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))

    assert allowed_nodes([claim("any", "missing")], classes, nodes) == {"n1", "n2"}
    assert allowed_nodes([claim("any"), claim("slots")], classes, nodes) == {"n1"}
