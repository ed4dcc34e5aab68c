"""The arithmetic of Deployments, by the tables in Kubernetes' documentation."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model.apps_v1 import DeploymentSpec, DeploymentStrategy, ReplicaSetStatus, RollingUpdateDeployment
from allot.core.model.meta import ObjectMeta
from allot.core.workloads.rollout import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    Draft,
    is_scaling,
    max_surge,
    max_unavailable,
    new_size,
    scale,
    scale_down_old,
)


def spec(replicas: int, surge: Any = "25%", unavailable: Any = "25%", type_: str = "RollingUpdate") -> DeploymentSpec:
    rolling = RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable)
    return DeploymentSpec(replicas=replicas, strategy=DeploymentStrategy(type=type_, rolling_update=rolling))


def draft(name: str, replicas: int, available: int | None = None, *, desired: int = 0, most: int = 0) -> Draft:
    annotations = {DESIRED_REPLICAS: str(desired), MAX_REPLICAS: str(most)} if most else {}
    metadata = ObjectMeta(name=name, creation_timestamp=f"2026-01-01T00:00:0{name[-1]}Z", annotations=annotations)
    status = ReplicaSetStatus(replicas=replicas, available_replicas=replicas if available is None else available)
    return Draft(metadata, replicas, status)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        # Percentages: surge is rounded up, unavailable down.
        *((count, "25%", "25%", (1, 0)) for count in (1, 2, 3)),
        (4, "25%", "25%", (1, 1)),
        (5, "25%", "25%", (2, 1)),
        (8, "25%", "25%", (2, 2)),
        (10, "25%", "25%", (3, 2)),
        # Both 0, also after rounding: one may be unavailable.
        (3, 0, "25%", (0, 1)),
        (3, "0%", 0, (0, 1)),
        # Never more unavailable than wanted.
        (2, 0, 5, (0, 2)),
        (3, "100%", "100%", (3, 3)),
        (0, 1, 1, (1, 0)),
    ],
)
def test_percentages_round_to_the_safe_side(
    replicas: int, surge: Any, unavailable: Any, expected: tuple[int, int]
) -> None:
    wanted = spec(replicas, surge, unavailable)
    assert (max_surge(wanted), max_unavailable(wanted)) == expected


def test_recreating_has_neither_surge_nor_unavailable_pods() -> None:
    wanted = spec(10, type_="Recreate")
    assert (max_surge(wanted), max_unavailable(wanted)) == (0, 0)
    assert new_size(wanted, 0, 7) == 10


@pytest.mark.parametrize(
    ("replicas", "surge", "new", "old", "expected"),
    [
        (10, 3, 0, 10, 3),
        (10, 3, 3, 8, 5),
        (10, 3, 5, 8, 5),
        (10, 0, 0, 10, 0),
        (10, 0, 0, 8, 2),
        (10, 3, 8, 0, 10),
        (2, "50%", 0, 2, 1),
        (3, 1, 0, 9, 0),
    ],
)
def test_the_new_set_grows_within_the_surge(replicas: int, surge: Any, new: int, old: int, expected: int) -> None:
    assert new_size(spec(replicas, surge, 1), new, new + old) == expected


@pytest.mark.parametrize(
    ("replicas", "unavailable", "new", "old", "expected"),
    [
        # The example in Kubernetes' source: 10 replicas, 2 may be unavailable, 3 surge; the new pods crash.
        (10, 2, (5, 0), ((8, 8),), (8,)),
        # One of the old pods fails too: still none may go.
        (10, 2, (5, 0), ((8, 7),), (8,)),
        # Rolled over by a third template with no pods yet: 5 of the old ones may go, the broken ones first.
        (10, 2, (0, 0), ((8, 8), (5, 0)), (8, 0)),
        # All available.
        (10, 2, (3, 3), ((10, 10),), (5,)),
        (10, 2, (0, 0), ((10, 10),), (8,)),
        # Unhealthy ones of all old sets go first, then healthy ones of the oldest.
        (10, 2, (0, 0), ((5, 3), (5, 5)), (3, 5)),
        (4, 1, (1, 1), ((2, 2), (2, 2)), (0, 2)),
        (3, 0, (1, 0), ((3, 3),), (3,)),
        (3, 0, (1, 1), ((3, 3),), (2,)),
    ],
)
def test_old_sets_shrink_as_far_as_enough_stays_available(
    replicas: int, unavailable: int, new: tuple[int, int], old: tuple[tuple[int, int], ...], expected: tuple[int, ...]
) -> None:
    sets = [draft(f"old-{place}", *sizes) for place, sizes in enumerate(old)]
    is_scaled = scale_down_old(spec(replicas, 3, unavailable), draft("new-9", *new), sets)
    assert tuple(each.replicas for each in sets) == expected
    assert is_scaled == (expected != tuple(size for size, _ in old))


def test_a_status_from_before_the_last_change_of_size_counts_for_nothing() -> None:
    old = draft("old-1", 4, 4)
    new = draft("new-2", 4, 4)
    new.metadata = ObjectMeta(name="new-2", generation=3)
    assert new.sure_available == 0
    assert not scale_down_old(spec(4, 4, 0), new, [old])
    new.status = ReplicaSetStatus(available_replicas=6, observed_generation=3)
    assert new.sure_available == 4


@pytest.mark.parametrize(
    ("before", "after", "surge", "sizes", "expected"),
    [
        # The example in Kubernetes' documentation: 10 to 15 in the middle of an update.
        (10, 15, 3, (8, 5), (11, 7)),
        # Shares are rounded half up, what is left goes to the largest.
        (10, 5, 0, (6, 3, 1), (2, 2, 1)),
        (10, 20, 0, (6, 3, 1), (12, 6, 2)),
        (10, 12, 0, (5, 5), (6, 6)),
        # None left: everything goes.
        (10, 0, 3, (8, 5), (0, 0)),
        # The whole surge is used.
        (10, 10, 3, (7, 3), (10, 3)),
        # Nothing to share out.
        (10, 10, 0, (7, 3), (7, 3)),
        (20, 19, 0, (10, 10), (9, 10)),
        (20, 21, 0, (10, 10), (10, 11)),
    ],
)
def test_a_changed_number_is_shared_out_by_size(
    before: int, after: int, surge: int, sizes: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    sets = [draft(f"set-{place}", size, 0, desired=before, most=before + surge) for place, size in enumerate(sizes)]
    scale(spec(after, surge, 2), sets[-1], sets[:-1], sum(sizes))
    assert tuple(each.replicas for each in sets) == expected
    assert all(each.annotations[DESIRED_REPLICAS] == str(after) for each in sets)
    assert all(each.annotations[MAX_REPLICAS] == str(after + surge) for each in sets)


def test_one_set_or_none_gets_everything() -> None:
    only, empty = draft("set-1", 3), draft("set-2", 0)
    scale(spec(7), empty, [only], 3)
    assert (only.replicas, empty.replicas) == (7, 0)
    old, new = draft("set-1", 0), draft("set-2", 0)
    scale(spec(7), new, [old], 0)
    assert (old.replicas, new.replicas) == (0, 7)
    older, newer = draft("set-1", 0), draft("set-2", 0)
    scale(spec(7), None, [older, newer], 0)
    assert (older.replicas, newer.replicas) == (0, 7)


def test_old_sets_go_when_the_new_one_is_saturated() -> None:
    old, new = draft("set-1", 2, desired=5, most=7), draft("set-2", 5, desired=5, most=7)
    scale(spec(5), new, [old], 7)
    assert (old.replicas, new.replicas) == (0, 5)


def test_scaling_shows_in_what_sizes_were_decided_by() -> None:
    assert not is_scaling(spec(5), [draft("set-1", 5, desired=5, most=7)])
    assert is_scaling(spec(6), [draft("set-1", 5, desired=5, most=7)])
    assert not is_scaling(spec(6), [draft("set-1", 0, desired=5, most=7), draft("set-2", 3)])
