"""Which controllers an option means."""

from __future__ import annotations

import pytest

from allot.controllers.runner import Runnable, Services
from allot.controllers.table import CONTROLLERS, Row, UnknownController, select
from allot.core.features import ALL_GATES, DEFAULT_GATES


def unused(services: Services) -> Runnable:
    raise AssertionError(f"not to be made: {services}")


ROWS = (
    Row(name="a", account="x", make=unused),
    Row(name="b", account="x", make=unused, gates=("GenericWorkload",)),
    Row(name="c", account="x", make=unused, is_upstream=False),
)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [(["*"], "abc"), (["*", "-a"], "bc"), (["a"], "a"), (["-a"], ""), (["c", "a"], "ac"), ([], ""), (["a", "-a"], "")],
)
def test_names_stars_and_exceptions(patterns: list[str], expected: str) -> None:
    assert "".join(row.name for row in select(patterns, ALL_GATES, rows=ROWS)) == expected


def test_a_controller_whose_feature_is_off_stays_off() -> None:
    assert [row.name for row in select(["*", "b"], DEFAULT_GATES, rows=ROWS)] == ["a", "c"]


def test_beside_a_kube_controller_manager_a_star_means_only_what_that_one_lacks() -> None:
    assert [row.name for row in select(["*"], ALL_GATES, beside_upstream=True, rows=ROWS)] == ["c"]
    assert [row.name for row in select(["*", "a"], ALL_GATES, beside_upstream=True, rows=ROWS)] == ["a", "c"]


def test_an_unknown_name_is_refused_with_what_is_known() -> None:
    with pytest.raises(UnknownController, match="unknown controller 'nope': expected \\* or one of a, b, c"):
        select(["*", "-nope"], ALL_GATES, rows=ROWS)


def test_every_controller_has_a_name_of_its_own() -> None:
    names = [row.name for row in CONTROLLERS]
    assert len(set(names)) == len(names)
    assert {"resourceclaim-controller", "device-taint-eviction-controller"} <= set(names)
