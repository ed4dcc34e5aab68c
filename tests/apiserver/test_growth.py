"""What a write costs grows with its size and not faster: counted in calls, over every list and map of every kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from allot.apiserver.errors import StatusError, invalid
from allot.apiserver.objects import objectmeta
from allot.apiserver.objects.fieldchecks import checked_fields
from allot.apiserver.objects.options import write_options
from allot.apiserver.objects.ownership import track
from allot.apiserver.registry import Served
from allot.apiserver.resources import Refused
from allot.apiserver.server_context import ServerContext
from allot.core.access.rules import Rule, TooManyPermissions, missing
from allot.core.patching.json_patch import _Document, json_patch
from allot.core.schema import Schema
from allot.core.validation.builtin.placement import check_tolerations_update
from allot.core.validation.fields import INVALID, FieldError
from apiserver.list_fields import Path, filled, list_fields
from apiserver.live import LiveServer

OPTIONS = write_options({}, "test/1", "Create")


class Counted(dict[str, Any]):
    """An object that counts how often one is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, those of the interpreter included."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def write(context: ServerContext, row: Served, object_: dict[str, Any]) -> None:
    """What a create does with an object between its arrival and the store."""
    try:
        object_, _ = checked_fields(object_, row, "Warn")
        object_ = objectmeta.new_object(row.strategy.read(object_), context.clock, context.ids)
        object_ = track(context, row, None, object_, OPTIONS, "")
        object_, _ = objectmeta.without_duplicate_owners(object_)
        object_ = row.strategy.prepare_create(object_)
        errors = row.strategy.validate_create(object_)
        if errors:
            invalid("", row.resource.kind, "a0", errors)
    except (StatusError, Refused):
        pass


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_calls_of_a_write_grow_no_faster_than_its_lists(server: LiveServer) -> None:
    context, grown, looked_at = server.live.server.context, [], 0

    def counted(row: Served, path: Path, node: Schema, *sizes: int) -> list[int]:
        objects = [filled(row, path, node, size) for size in sizes]
        return [calls(partial(write, context, row, object_)) for object_ in objects]

    for row, path, node in list_fields(context.registry):
        # Caches are filled, then three sizes: the growth of the growth tells lines from parabolas. Small ones, as there are many fields.
        write(context, row, filled(row, path, node, 3))
        looked_at += 1
        few, more, most = counted(row, path, node, 20, 40, 80)
        if most - more <= 2.2 * max(more - few, 20):
            continue
        # Perhaps: larger ones tell for sure.
        few, more, most = counted(row, path, node, 150, 300, 600)
        if most - more > 2.6 * max(more - few, 200):
            grown.append(f"{row.resource.kind} {'.'.join(map(str, path))}: {few}, {more}, {most} calls")
    assert looked_at > 400
    assert not grown, "\n".join(grown)


def test_no_owner_is_compared_with_all_others() -> None:
    for count in (1000, 2000):
        Counted.compared = 0
        owners = [Counted(uid=str(number)) for number in range(count)]
        object_, told = objectmeta.without_duplicate_owners({"metadata": {"ownerReferences": owners}})
        assert (len(object_["metadata"]["ownerReferences"]), told) == (count, ())
        assert Counted.compared == 0


def test_owners_that_occur_twice_are_dropped_and_told_once() -> None:
    one, two = {"uid": "1", "name": "a"}, {"name": "a", "uid": "1"}
    other = {"uid": "1", "name": "a", "controller": False}
    object_, [told] = objectmeta.without_duplicate_owners({"metadata": {"ownerReferences": [one, two, other, one]}})
    assert object_["metadata"]["ownerReferences"] == [one, other]
    assert told.endswith("duplicate UID(s) observed: 1")


def test_existing_tolerations_are_found_without_comparing_pairs() -> None:
    old = [{"key": f"key-{number}", "operator": "Exists"} for number in range(400)]
    new = [{**each, "tolerationSeconds": 5} for each in reversed(old)]
    few = calls(lambda: check_tolerations_update(new[:200], old[200:], ""))
    assert calls(lambda: check_tolerations_update(new, old, "")) < 2.5 * few
    assert check_tolerations_update(new, old, "") == []
    assert check_tolerations_update(new[1:], old, "") != []


def test_a_json_patch_copies_a_list_once_whatever_else_it_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    object_ = {"a": {"long": list(range(1000))}, "b": {}}
    operations: list[dict[str, Any]] = []
    for number in range(100):
        operations.append({"op": "copy", "from": "/b", "path": f"/c{number}"})
        operations.append({"op": "add", "path": "/a/long/-", "value": number})
    copied = []
    own = _Document.own

    def noting(document: _Document, container: Any) -> Any:
        mine = own(document, container)
        copied.extend([mine] if mine is not container else [])
        return mine

    monkeypatch.setattr(_Document, "own", noting)
    assert json_patch(object_, operations)["a"]["long"] == [*range(1000), *range(100)]
    assert len(copied) == 3, "the object, a and the list"
    assert object_ == {"a": {"long": list(range(1000))}, "b": {}}


def test_what_was_copied_is_changed_on_its_own() -> None:
    patched = json_patch(
        {"a": {"x": [1]}},
        [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/x/-", "value": 2}],
    )
    assert patched == {"a": {"x": [1]}, "b": {"x": [1, 2]}}


def test_roles_with_too_many_rules_to_compare_are_refused() -> None:
    owned = [Rule(("get",), (f"group-{number}",), ("things",)) for number in range(2000)]
    with pytest.raises(TooManyPermissions):
        missing(owned, [Rule(("get",), (f"other-{number}",), ("things",)) for number in range(2000)])
    # The same rule again and again is one rule.
    assert missing(owned, [owned[-1]] * 2000) == ()


def test_an_answer_tells_equal_errors_once_and_does_not_grow_without_bound() -> None:
    same = [FieldError("a", INVALID, "Invalid value: 1: no")] * 1000
    assert invalid("", "Pod", "p", same).message == 'Pod "p" is invalid: a: Invalid value: 1: no'
    many = [FieldError(f"a[{number}]", INVALID, "x" * 1000) for number in range(10_000)]
    error = invalid("", "Pod", "p", many)
    assert len(msgspec.json.encode(error.status())) < 1024 * 1024
    assert error.details is not None
    told = len(error.details["causes"])
    assert error.message.endswith(f"and {10_000 - told} more errors]")
