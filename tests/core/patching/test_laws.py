"""What holds for every sequence of writes, whoever makes them."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.core.patching import ApplyConflict, apply, track_update
from allot.core.patching.comparison import compare, configured_fields
from allot.core.patching.fieldset import difference, has, intersection, paths
from allot.core.patching.managed import stored_entries, tracked

POD = builtin_schemas().for_kind("", "v1", "Pod")
assert POD is not None
NOW = "2026-01-01T00:00:00Z"
Object = dict[str, Any]

words = st.sampled_from(["a", "b", "c"])
maps = st.dictionaries(words, words, min_size=1, max_size=3)
environments = st.lists(
    st.fixed_dictionaries({"name": words}, optional={"value": words}),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each["name"],
)
container = st.fixed_dictionaries(
    {"name": words}, optional={"image": words, "env": environments, "args": st.lists(words, min_size=1, max_size=2)}
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(container, min_size=1, max_size=3, unique_by=lambda each: each["name"]),
        "nodeSelector": maps,
        "hostNetwork": st.booleans(),
        "priority": st.integers(0, 3),
        "securityContext": st.fixed_dictionaries({}, optional={"runAsUser": st.integers(0, 2)}),
    },
)
metadata = st.fixed_dictionaries(
    {"name": st.just("p")},
    optional={"labels": maps, "finalizers": st.lists(words, min_size=1, max_size=3, unique=True)},
)
pods = st.fixed_dictionaries({"metadata": metadata, "spec": specs}).map(
    lambda parts: {"apiVersion": "v1", "kind": "Pod", **parts}
)
managers = st.sampled_from(["one", "two", "three"])


few = settings(max_examples=40)


def force(live: Object | None, config: Object, manager: str) -> Object:
    result = apply(live, config, manager=manager, force=True, schema=POD, api_version="v1", kind="Pod", now=NOW)
    return {**result.object, "metadata": {**result.object["metadata"], "uid": "u"}}


def update(live: Object | None, new: Object, manager: str) -> Object:
    new = {**new, "metadata": {**new["metadata"], "uid": "u"}}
    managed = track_update(live, new, manager=manager, schema=POD, api_version="v1", now=NOW)
    return {**new, "metadata": {**new["metadata"], "managedFields": managed}} if managed else new


def owned(object_: Object, manager: str, operation: str) -> Any:
    for entry in stored_entries(object_).values():
        if entry.manager == manager and entry.operation == operation:
            return entry.fields
    return {}


@few
@given(st.lists(st.tuples(managers, pods, st.booleans()), min_size=2, max_size=5))
def test_managers_that_are_changed_in_place_are_changed_as_those_that_are_taken_apart(
    writes: list[tuple[str, Object, bool]],
) -> None:
    live: Object | None = None
    for manager, new, applied in writes:
        if applied:
            live = force(live, new, manager)
            continue
        # Sent as an equal list that is not the stored one, entries are read.
        sent = copy.deepcopy(live["metadata"].get("managedFields")) if live is not None else None
        stated = {**new, "metadata": {**new["metadata"], "managedFields": sent}} if sent else new
        told = [
            track_update(live, each, manager=manager, schema=POD, api_version="v1", now=NOW) for each in (new, stated)
        ]
        assert told[0] == told[1]
        live = update(live, new, manager)


@few
@given(st.lists(st.tuples(managers, pods), min_size=1, max_size=4))
def test_applying_the_same_twice_is_applying_it_once(applies: list[tuple[str, Object]]) -> None:
    live: Object | None = None
    for manager, config in applies:
        live = force(live, config, manager)
        assert force(live, config, manager) == live


@few
@given(st.lists(st.tuples(managers, pods), min_size=1, max_size=4))
def test_a_forced_apply_owns_exactly_its_fields_and_they_have_its_values(applies: list[tuple[str, Object]]) -> None:
    live: Object | None = None
    for manager, config in applies:
        live = force(live, config, manager)
        claimed = configured_fields(config, POD)
        assert owned(live, manager, "Apply") == tracked(claimed)
        _, changed = compare(config, live, POD)
        assert not intersection(claimed, changed), "what was applied is in the object"


@few
@given(st.lists(st.tuples(managers, pods), min_size=2, max_size=4), pods)
def test_an_apply_without_force_changes_no_field_of_others(applies: list[tuple[str, Object]], config: Object) -> None:
    live: Object | None = None
    for manager, each in applies:
        live = force(live, each, manager)
    assert live is not None
    try:
        result = apply(live, config, manager="new", force=False, schema=POD, api_version="v1", kind="Pod", now=NOW)
    except ApplyConflict as error:
        assert error.conflicts
        return
    for manager, _ in applies:
        assert owned(result.object, manager, "Apply") == owned(live, manager, "Apply")


@few
@given(pods, pods, pods)
def test_an_update_takes_from_others_only_what_it_changes(first: Object, second: Object, third: Object) -> None:
    live = update(update(None, first, "one"), second, "two")
    assume(live["metadata"].get("managedFields"))
    after = update(live, third, "three")
    removed, changed = compare(live, {**third, "metadata": {**third["metadata"], "uid": "u"}}, POD)
    for manager in ("one", "two"):
        before = owned(live, manager, "Update")
        lost = difference(before, owned(after, manager, "Update"))
        for path in paths(lost):
            assert has(changed, path) or has(removed, path)
        gained = difference(owned(after, manager, "Update"), before)
        assert not gained
    assert owned(after, "three", "Update") == tracked(changed)


@few
@given(pods, pods)
def test_nothing_is_changed_in_place(first: Object, second: Object) -> None:
    live = force(None, first, "one")
    before = copy.deepcopy((live, second))
    force(live, second, "two")
    update(live, second, "three")
    assert (live, second) == before


@few
@given(pods, pods)
def test_giving_up_everything_leaves_what_others_own(first: Object, second: Object) -> None:
    live = force(force(None, first, "one"), second, "two")
    nothing = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    left = force(live, nothing, "one")
    assert owned(left, "two", "Apply") == owned(live, "two", "Apply")
    _, changed = compare(second, left, POD)
    assert not intersection(configured_fields(second, POD), changed)
