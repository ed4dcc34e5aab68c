"""Lists in strategic merge patches: merged by key or as sets, and brought into order.

Order is what makes this more than a merge: elements that the patch names are in the patch's order, elements that only the
object has stay where they were relative to the others as far as possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allot.core.patching.errors import internal, malformed, unprocessable

DIRECTIVE = "$patch"

_Merge = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


def element_kind(*lists: list[Any]) -> type | None:
    """dict for lists of objects, another type for scalars; PatchError for lists of lists and mixed ones."""
    kinds = {type(each) for list_ in lists for each in list_}
    if list in kinds:
        raise unprocessable("lists of lists are not supported")
    if len(kinds) > 1:
        raise internal(f"list element types are not identical: {str(lists)[:200]}")
    return next(iter(kinds), None)


def merge_scalar_lists(before: list[Any], patch: list[Any]) -> list[Any]:
    """Both lists without duplicates."""
    both = list(dict.fromkeys([*before, *patch]))
    return _ordered(both, patch, before, "")


def merge_lists_by_key(before: list[Any], patch: list[Any], merge_key: str, merge: _Merge) -> list[Any]:
    """Objects with the same key are merged, new ones added, those marked for deletion removed."""
    merged, values, replaced = _without_special_elements(before, patch, merge_key)
    if replaced:
        return values
    places = _places(merged, merge_key)
    for value in values:
        key = _key(value, merge_key)
        place = places.get(_hashable(key))
        if place is None:
            places[_hashable(key)] = len(merged)
            merged.append(value)
        else:
            merged[place] = merge(merged[place], value)
    return _ordered(merged, values, before, merge_key)


def _without_special_elements(before: list[Any], patch: list[Any], merge_key: str) -> tuple[list[Any], list[Any], bool]:
    """The list after elements with a directive have done their work, the rest of the patch, whether it replaces all."""
    deleted, values, replace = set(), [], False
    for each in patch:
        if DIRECTIVE not in each:
            values.append(each)
            continue
        directive = each[DIRECTIVE]
        if directive == "delete":
            deleted.add(_hashable(_key(each, merge_key)))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise internal("merging lists cannot yet be specified in the patch")
        else:
            raise internal(f"unknown patch type: {directive} in map: {str(each)[:200]}")
    return [each for each in before if _hashable(each.get(merge_key)) not in deleted], values, replace


# --- order ---


def check_order(values: list[Any], order: list[Any], merge_key: str) -> None:
    """PatchError unless the elements of the patch occur in the order list, in the same order."""
    if not values or not order:
        return
    wanted = iter(order)
    for value in values:
        if isinstance(value, dict) and DIRECTIVE in value:
            continue
        if not any(_same(value, each, merge_key) for each in wanted):
            texts = f"The order in patch list:\n{str(values)[:200]}\n doesn't match $setElementOrder list:\n"
            raise internal(f"{texts}{str(order)[:200]}\n")


def old_order(before: list[Any], values: list[Any], merge_key: str) -> list[Any]:
    """The order that elements had, which decides where elements that only the object has go.

    Kubernetes deletes elements in place and lets the first new ones take the free places, so that an element that only the
    object has goes before those. Clients see the result, so we do the same.
    """
    if not merge_key or not any(isinstance(each, dict) and DIRECTIVE in each for each in values):
        return before
    left, new, replaced = _without_special_elements(before, values, merge_key)
    if replaced:
        return before
    known = _places(left, merge_key)
    additions = [each for each in new if _identity(each, merge_key) not in known]
    return left + additions[: len(before) - len(left)]


def in_element_order(both: list[Any], order: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """A merged list in the order that the patch states."""
    element_kind(both, order)
    return _ordered(both, order, before, merge_key)


def _ordered(both: list[Any], order: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """Elements that `order` names in that order, the others in the order of `before`, woven together by `before`."""
    ranks = _places(order, merge_key)
    old_ranks = _places(before, merge_key)
    named: list[Any] = []
    others: list[Any] = []
    for each in both:
        (named if _identity(each, merge_key) in ranks else others).append(each)
    last = len(both) + len(before)
    named.sort(key=lambda each: ranks[_identity(each, merge_key)])
    others.sort(key=lambda each: old_ranks.get(_identity(each, merge_key), last))
    return _woven(others, named, [_rank(old_ranks, each, merge_key) for each in others], old_ranks, merge_key)


def _rank(ranks: dict[Any, int], value: Any, merge_key: str) -> int | None:
    return ranks.get(_identity(value, merge_key))


def _woven(
    others: list[Any], named: list[Any], other_ranks: list[int | None], old_ranks: dict[Any, int], merge_key: str
) -> list[Any]:
    """Each of the others goes before the first named element that came after it in the old list."""
    woven = []
    position = 0
    for value in named:
        rank = _rank(old_ranks, value, merge_key)
        while position < len(others):
            other = other_ranks[position]
            if rank is None or other is None or other > rank:
                break
            woven.append(others[position])
            position += 1
        woven.append(value)
    return woven + others[position:]


# --- identity of elements ---


def _places(values: list[Any], merge_key: str) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for index, value in enumerate(values):
        places.setdefault(_identity(value, merge_key), index)
    return places


def _identity(value: Any, merge_key: str) -> Any:
    return _hashable(_key(value, merge_key)) if merge_key else _hashable(value)


def _key(value: Any, merge_key: str) -> Any:
    if not isinstance(value, dict):
        raise internal(f"expected a map[string]interface {{}}, but received a {type(value).__name__}")
    if merge_key not in value:
        raise internal(f"map: {str(value)[:200]} does not contain declared merge key: {merge_key}")
    return value[merge_key]


def _same(one: Any, other: Any, merge_key: str) -> bool:
    return bool(_identity(one, merge_key) == _identity(other, merge_key))


def present(value: Any, values: list[Any]) -> bool:
    """Whether a scalar is in a list; true and 1 are different."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)


def _hashable(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise malformed("lists of lists are not supported" if isinstance(value, list) else "expected a scalar as key")
    return (value,) if isinstance(value, bool) else value
