"""What is done of a recommendation: windows, rates, smallest and largest numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.workloads.autoscaling.stabilization import Bounds, History

NOW = 1000.0
WIDE = Bounds(1, 1000)


def rules(
    up: list[tuple[str, int, int]] | None = None,
    down: list[tuple[str, int, int]] | None = None,
    *,
    up_window: int = 0,
    down_window: int | None = 300,
    up_select: str = "Max",
    down_select: str = "Max",
) -> dict[str, Any]:
    """A behavior with the API server's defaults. Policies: type, value, seconds."""

    def policies(given: list[tuple[str, int, int]]) -> list[dict[str, Any]]:
        return [{"type": type_, "value": value, "periodSeconds": seconds} for type_, value, seconds in given]

    return {
        "scaleUp": {
            "stabilizationWindowSeconds": up_window,
            "selectPolicy": up_select,
            "policies": policies(up if up is not None else [("Pods", 4, 15), ("Percent", 100, 15)]),
        },
        "scaleDown": {
            **({} if down_window is None else {"stabilizationWindowSeconds": down_window}),
            "selectPolicy": down_select,
            "policies": policies(down if down is not None else [("Percent", 100, 15)]),
        },
    }


@pytest.mark.parametrize(
    ("current", "desired", "bounds", "expected"),
    [
        (4, 8, WIDE, (8, False, "DesiredWithinRange")),
        (4, 9, WIDE, (8, True, "ScaleUpLimit")),
        (1, 9, WIDE, (4, True, "ScaleUpLimit")),
        (4, 9, Bounds(1, 6), (6, True, "TooManyReplicas")),
        (4, 1, Bounds(2, 6), (2, True, "TooFewReplicas")),
    ],
)
def test_without_behavior_growth_at_most_doubles(
    current: int, desired: int, bounds: Bounds, expected: tuple[int, bool, str]
) -> None:
    history = History(1, NOW - 400)
    found = history.normalize(None, current, desired, bounds, NOW)
    assert (found.replicas, found.limited, found.limit[0]) == expected
    assert found.able[0] == "ReadyForNewScale"


def test_without_behavior_the_highest_of_five_minutes_holds() -> None:
    history = History(5, NOW)
    assert history.normalize(None, 5, 10, WIDE, NOW + 100).replicas == 10
    found = history.normalize(None, 10, 2, WIDE, NOW + 200)
    assert (found.replicas, found.able[0]) == (10, "ScaleDownStabilized")
    assert history.normalize(None, 10, 3, WIDE, NOW + 400).replicas == 10
    assert history.normalize(None, 10, 2, WIDE, NOW + 401).replicas == 3
    assert history.normalize(None, 3, 1, WIDE, NOW + 702).replicas == 1


def test_a_controller_that_begins_does_not_take_away_at_once() -> None:
    history = History(7, NOW)
    assert history.normalize(None, 7, 1, WIDE, NOW + 299).replicas == 7
    assert history.normalize(None, 7, 1, WIDE, NOW + 301).replicas == 1


@pytest.mark.parametrize(
    ("behavior", "current", "desired", "expected"),
    [
        # By default four pods or as many as there are, whichever is more.
        (rules(), 1, 100, (5, "ScaleUpLimit")),
        (rules(), 10, 100, (20, "ScaleUpLimit")),
        (rules(up_select="Min"), 10, 100, (14, "ScaleUpLimit")),
        (rules(up_select="Disabled"), 10, 100, (10, "ScaleUpLimit")),
        # Percents are rounded up, or nothing would ever grow.
        (rules(up=[("Percent", 10, 15)]), 3, 100, (4, "ScaleUpLimit")),
        (rules(down_window=0), 10, 1, (1, "DesiredWithinRange")),
        (rules(down=[("Pods", 2, 60)], down_window=0), 10, 1, (8, "ScaleDownLimit")),
        (rules(down=[("Percent", 10, 60)], down_window=0), 15, 1, (13, "ScaleDownLimit")),
        (rules(down=[("Pods", 2, 60), ("Percent", 50, 60)], down_window=0), 10, 1, (5, "ScaleDownLimit")),
        (
            rules(down=[("Pods", 2, 60), ("Percent", 50, 60)], down_window=0, down_select="Min"),
            10,
            1,
            (8, "ScaleDownLimit"),
        ),
        (rules(down_select="Disabled", down_window=0), 10, 1, (10, "ScaleDownLimit")),
    ],
)
def test_rates_of_change(behavior: dict[str, Any], current: int, desired: int, expected: tuple[int, str]) -> None:
    history = History(current, NOW - 4000)
    found = history.normalize(behavior, current, desired, WIDE, NOW)
    assert (found.replicas, found.limit[0]) == expected


def test_a_rate_counts_what_was_done_in_its_period() -> None:
    behavior = rules(up=[("Pods", 4, 60)])
    history = History(10, NOW)
    assert history.normalize(behavior, 10, 50, WIDE, NOW).replicas == 14
    history.scaled(behavior, 10, 14, NOW)
    assert history.normalize(behavior, 14, 50, WIDE, NOW + 30).replicas == 14
    # What was taken away gives room again.
    history.scaled(behavior, 14, 12, NOW + 30)
    assert history.normalize(behavior, 12, 50, WIDE, NOW + 40).replicas == 14
    assert history.normalize(behavior, 12, 50, WIDE, NOW + 61).replicas == 18


def test_windows_of_both_directions() -> None:
    behavior = rules(up_window=60, down_window=120)
    history = History(5, NOW - 1000)
    assert history.normalize(behavior, 5, 3, WIDE, NOW).replicas == 3
    found = history.normalize(behavior, 3, 8, WIDE, NOW + 30)
    assert (found.replicas, found.able[0]) == (3, "ScaleUpStabilized")
    assert history.normalize(behavior, 3, 8, WIDE, NOW + 61).replicas == 7
    found = history.normalize(behavior, 7, 2, WIDE, NOW + 100)
    assert (found.replicas, found.able[0]) == (7, "ScaleDownStabilized")
    assert history.normalize(behavior, 7, 2, WIDE, NOW + 182).replicas == 2


def test_a_window_that_is_not_given_is_five_minutes() -> None:
    behavior = rules(down_window=None)
    history = History(9, NOW)
    assert history.normalize(behavior, 9, 1, WIDE, NOW + 299).replicas == 9
    assert history.normalize(behavior, 9, 1, WIDE, NOW + 301).replicas == 1


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_is_recommended_bounds_and_rates_hold(data: st.DataObject) -> None:
    least = data.draw(st.integers(0, 5))
    bounds = Bounds(least, least + data.draw(st.integers(1, 30)))
    pods_up, pods_down = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    behavior = rules(
        up=[("Pods", pods_up, 60)],
        down=[("Pods", pods_down, 60)],
        up_window=data.draw(st.sampled_from((0, 45))),
        down_window=data.draw(st.sampled_from((0, 90))),
    )
    current = data.draw(st.integers(bounds.least, bounds.most))
    history = History(current, NOW)
    done: list[tuple[float, int]] = []
    for number, desired in enumerate(data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=30))):
        now = NOW + 15 * (number + 1)
        found = history.normalize(behavior, current, desired, bounds, now)
        assert bounds.least <= found.replicas <= bounds.most
        change = found.replicas - current
        # Never away from what was recommended.
        assert (change > 0) <= (desired > current) or found.replicas <= max(desired, current)
        if change:
            # As compared with the beginning of the period.
            net = change + sum(delta for at, delta in done if at > now - 60)
            assert net <= pods_up if change > 0 else -net <= pods_down
            history.scaled(behavior, current, found.replicas, now)
            done.append((now, change))
        current = found.replicas
