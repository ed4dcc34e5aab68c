"""What has to be looked at after a change."""

from __future__ import annotations

from allot.core.features import DEFAULT_GATES
from allot.core.lifecycle.claim_keys import keys_of_claim, keys_of_pod, keys_of_pod_group
from core.lifecycle.claim_world import World, claim, consumer, entry, group, group_entry, pod, template

GROUP_GATES = DEFAULT_GATES.changed(enable=("GenericWorkload", "DRAWorkloadResourceClaims"))


def test_a_pod_without_claims_concerns_nobody() -> None:
    assert list(keys_of_pod(pod("p"), World(), DEFAULT_GATES, is_deleted=True)) == []


def test_a_new_pod_is_looked_at_until_it_has_its_claims() -> None:
    new = pod("p", entry("a", template="t"))
    assert list(keys_of_pod(new, World(new), DEFAULT_GATES)) == [("pod", "ns/p")]
    done = pod("p", entry("a", template="t"), recorded={"a": "c"})
    assert list(keys_of_pod(done, World(done, claim("c", owner=done)), DEFAULT_GATES)) == []


def test_the_claims_of_a_pod_that_is_done_are_looked_at_the_extended_one_too() -> None:
    done = pod("p", entry("a", template="t"), entry("b", claim="x"), phase="Failed", recorded={"a": "c"}, extended="e")
    expected = [("claim", "ns/c"), ("claim", "ns/x"), ("claim", "ns/e")]
    assert list(keys_of_pod(done, World(done), DEFAULT_GATES)) == expected
    orphan = claim("made", owner=done, entry_name="a")
    assert list(keys_of_pod(done, World(done, orphan), DEFAULT_GATES)) == [*expected, ("claim", "ns/made")]
    gone = pod("p", entry("b", claim="x"), node="n", phase="Running")
    assert list(keys_of_pod(gone, World(), DEFAULT_GATES, is_deleted=True)) == [("claim", "ns/x")]


def test_a_claim_is_looked_at_only_if_something_is_to_be_written() -> None:
    user = pod("p", entry("a", claim="c"), node="n", phase="Running")
    used = claim("c", consumer(user), allocated=True)
    assert list(keys_of_claim(used, World(user, used), DEFAULT_GATES)) == []
    free = claim("c", allocated=True)
    assert list(keys_of_claim(free, World(user, free), DEFAULT_GATES)) == [("pod", "ns/p")]
    gone = pod("p", uid="other", node="n", phase="Running")
    assert list(keys_of_claim(used, World(gone, used), DEFAULT_GATES)) == [("claim", "ns/c")]


def test_a_claim_that_is_gone_concerns_its_pods() -> None:
    owner = pod("p", entry("a", template="t"), recorded={"a": "c"})
    assert list(keys_of_claim(claim("c", owner=owner), World(owner), DEFAULT_GATES, is_deleted=True)) == [
        ("pod", "ns/p")
    ]


def test_a_group_concerns_itself_its_pods_and_at_the_end_its_claims() -> None:
    gang, member = group("g", group_entry("a", "t")), pod("p", entry("a", template="t"), group="g")
    world = World(gang, member, template())
    assert list(keys_of_pod_group(gang, world, GROUP_GATES)) == [("podgroup", "ns/g"), ("pod", "ns/p")]
    assert list(keys_of_pod_group(group("g"), world, GROUP_GATES)) == [("pod", "ns/p")]
    ready = group("g", group_entry("a", "t"), recorded={"a": "c"})
    assert list(keys_of_pod_group(ready, World(), GROUP_GATES, is_deleted=True)) == [("claim", "ns/c")]
