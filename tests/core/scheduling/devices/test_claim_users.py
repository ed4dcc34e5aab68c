"""Law: the index of claims by their users says what going through all claims says, whenever it is asked."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.allocation import ClaimID
from allot.core.model import resource_v1 as api
from allot.core.model.meta import ObjectMeta
from allot.core.scheduling.devices.claims import Claims

NAMES = ("a", "b", "c")
UIDS = ("u1", "u2", "u3")

users = st.lists(st.sampled_from(UIDS), unique=True, max_size=3)
changes = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.booleans(), users),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(False), st.just([])),
    st.tuples(st.just("ask"), st.just(""), st.just(False), users),
)


def claim(name: str, version: int, is_allocated: bool, uids: list[str]) -> api.ResourceClaim:
    reserved = tuple(api.ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid) for uid in uids)
    allocation = api.AllocationResult() if is_allocated else None
    return api.ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=name, resource_version=str(version)),
        spec=api.ResourceClaimSpec(),
        status=api.ResourceClaimStatus(allocation=allocation, reserved_for=reserved),
    )


@given(st.lists(changes, max_size=30))
@settings(max_examples=300)
def test_what_only_departed_pods_use_is_left_over(history: list[tuple[str, str, bool, list[str]]]) -> None:
    claims = Claims()
    there: dict[str, tuple[bool, list[str]]] = {}
    for version, (what, name, is_allocated, uids) in enumerate(history, start=1):
        match what:
            case "put":
                claims.put_claim(claim(name, version, is_allocated, uids))
                there[name] = (is_allocated, uids)
            case "delete":
                claims.delete_claim("default", name)
                there.pop(name, None)
            case "ask":
                expected = [one for one, (held, by) in there.items() if held and by and set(by) <= set(uids)]
                assert claims.leftovers(dict.fromkeys(uids)) == tuple(
                    ClaimID("default", one) for one in sorted(expected)
                )
