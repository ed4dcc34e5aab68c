"""How many replicas a metric asks for: cases of Kubernetes' replica calculator, with the numbers of its documentation."""

from __future__ import annotations

import pytest

from allot.core.lifecycle.times import time_of
from allot.core.model.core_v1 import (
    Container,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from allot.core.model.meta import ObjectMeta
from allot.core.quantity import Quantity
from allot.core.workloads.autoscaling.proposals import (
    MetricUnavailable,
    Sample,
    Settings,
    Tolerances,
    by_average,
    by_utilization,
    by_value,
    by_value_per_pod,
    requests_of,
)

NOW = 1_800_000_000.0
TOLERANCES = Tolerances(0.1, 0.1)
SETTINGS = Settings()


def pod(
    name: str,
    *,
    phase: str = "Running",
    ready: str = "True",
    ready_ago: float = 3600.0,
    started_ago: float | None = 3600.0,
    leaving: bool = False,
    request: str | None = "1",
    has_ready: bool = True,
) -> Pod:
    """A pod that requests a processor."""
    requests = {} if request is None else {"cpu": Quantity.parse(request), "memory": Quantity.parse("1Gi")}
    return Pod(
        metadata=ObjectMeta(name=name, deletion_timestamp=time_of(NOW) if leaving else None),
        spec=PodSpec(containers=(Container(name="c", resources=ResourceRequirements(requests=requests)),)),
        status=PodStatus(
            phase=phase,
            start_time=None if started_ago is None else time_of(NOW - started_ago),
            conditions=(
                (PodCondition(type="Ready", status=ready, last_transition_time=time_of(NOW - ready_ago)),)
                if has_ready
                else ()
            ),
        ),
    )


def pods(count: int, **more: object) -> list[Pod]:
    return [pod(f"p{number}", **more) for number in range(count)]  # type: ignore[arg-type]


def samples(*values: int | None) -> dict[str, Sample]:
    """In thousandths, by the names of `pods`."""
    return {f"p{number}": Sample(value, NOW, 60.0) for number, value in enumerate(values) if value is not None}


def utilization(
    current: int, target: int, found: dict[str, Sample], these: list[Pod], resource: str = "cpu"
) -> tuple[int, int | None, int]:
    requests = requests_of(these, "", resource)
    proposal = by_utilization(current, target, found, these, requests, resource, TOLERANCES, SETTINGS, NOW)
    return proposal.replicas, proposal.utilization, proposal.value


@pytest.mark.parametrize(
    ("current", "target", "values", "expected"),
    [
        (3, 30, (300, 500, 700), (5, 50, 500)),
        (3, 100, (900, 950, 1100), (3, 98, 983)),
        (3, 100, (1020, 1000, 1030), (3, 101, 1016)),
        (5, 50, (100, 300, 500, 250, 250), (3, 28, 280)),
        (4, 50, (900, 900, 900, 900), (8, 90, 900)),
        (4, 50, (540, 540, 540, 540), (4, 54, 540)),
        (4, 50, (200, 200, 200, 200), (2, 20, 200)),
        # Within a tenth of the target nothing is done; beyond, everything is.
        (10, 50, (550,) * 10, (10, 55, 550)),
        (10, 50, (560,) * 10, (12, 56, 560)),
        (10, 50, (450,) * 10, (10, 45, 450)),
        (10, 50, (440,) * 10, (9, 44, 440)),
    ],
)
def test_utilization_of_pods_that_all_count(
    current: int, target: int, values: tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    assert utilization(current, target, samples(*values), pods(len(values))) == expected


@pytest.mark.parametrize(
    ("values", "others", "target", "expected"),
    [
        # Scale up: who has no sample counts as idle. 3 ready at 90 %, one missing: 67 %, 6 replicas.
        ((900, 900, 900, None), {}, 50, 6),
        # Scale down: as busy with all of its request.
        ((100, 100, 100, None), {}, 50, 3),
        ((100, None), {}, 50, 2),
        # ... or of the target, if that is more.
        ((100, 100, 100, None), {}, 200, 2),
        # It would turn the direction: nothing is done.
        ((600, None), {}, 50, 2),
        # Near enough once they are filled in.
        ((1000, None), {}, 50, 2),
        # Not ready counts as idle when there would be more, and not at all when there would be fewer.
        ((900, 900, 900), {2: {"ready": "False", "ready_ago": 10.0, "started_ago": 20.0}}, 50, 4),
        ((100, 100, 900), {2: {"ready": "False", "ready_ago": 10.0, "started_ago": 20.0}}, 50, 1),
        ((900, 900, None), {2: {"phase": "Pending"}}, 50, 4),
        # Failed pods and those that go are left out.
        ((900, 900, 50), {2: {"phase": "Failed"}}, 50, 4),
        ((900, 900, 50), {2: {"leaving": True}}, 50, 4),
    ],
)
def test_pods_that_cannot_be_counted_on(
    values: tuple[int | None, ...], others: dict[int, dict[str, object]], target: int, expected: int
) -> None:
    these = [pod(f"p{number}", **others.get(number, {})) for number in range(len(values))]  # type: ignore[arg-type]
    assert utilization(len(values), target, samples(*values), these)[0] == expected


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        # Long ago: only who has never been ready is left out.
        ({}, True),
        ({"ready": "False", "ready_ago": 60.0}, True),
        ({"ready": "False", "ready_ago": 3590.0}, False),
        # It began lately: not while it is not ready, nor before a whole window has passed since it is.
        ({"started_ago": 200.0, "ready_ago": 100.0}, True),
        ({"started_ago": 200.0, "ready_ago": 30.0}, False),
        ({"started_ago": 200.0, "ready_ago": 100.0, "ready": "False"}, False),
        ({"started_ago": None}, False),
        ({"has_ready": False}, False),
    ],
)
def test_whose_use_of_the_processor_counts(state: dict[str, object], counts: bool) -> None:
    these = [pod("p0"), pod("p1", **state)]  # type: ignore[arg-type]
    assert utilization(2, 100, samples(400, 800), these)[1] == (60 if counts else 40)
    # Of memory every sample counts.
    assert utilization(2, 100, samples(0, 2**30 * 1000), these, "memory")[1] == 50


def test_averages_of_pods() -> None:
    def average(current: int, target: int, found: dict[str, Sample], these: list[Pod]) -> tuple[int, int]:
        proposal = by_average(current, target, found, these, "", TOLERANCES, SETTINGS, NOW)
        return proposal.replicas, proposal.value

    assert average(3, 15000, samples(20000, 10000, 30000), pods(3)) == (4, 20000)
    assert average(3, 75000, samples(100000, 50000, 75000), pods(3)) == (3, 75000)
    # Missing: the target itself when there would be fewer, nothing when there would be more.
    assert average(4, 100000, samples(20000, 20000, 20000, None), pods(4)) == (2, 20000)
    assert average(4, 10000, samples(20000, 20000, None, None), pods(4)) == (4, 20000)
    # Readiness does not matter, but Pending does.
    these = [pod("p0"), pod("p1", ready="False"), pod("p2", phase="Pending")]
    assert average(3, 10000, samples(20000, 20000, None), these) == (4, 20000)


def test_values_as_a_whole() -> None:
    assert by_value(3, 25000, 20000, pods(3), TOLERANCES).replicas == 4
    assert by_value(3, 20500, 20000, pods(3), TOLERANCES).replicas == 3
    mixed = [*pods(2), pod("x", ready="False"), pod("y", phase="Pending")]
    assert by_value(4, 40000, 20000, mixed, TOLERANCES).replicas == 4
    # From zero the pods have no say.
    assert by_value(0, 50000, 20000, [], TOLERANCES).replicas == 3
    assert by_value(0, 0, 20000, [], TOLERANCES).replicas == 0
    with pytest.raises(MetricUnavailable, match="unable to calculate ready pods: no pods returned by selector"):
        by_value(3, 50000, 20000, [], TOLERANCES)


def test_values_that_pods_share() -> None:
    assert by_value_per_pod(3, 8600, 2867, TOLERANCES).replicas == 3
    assert by_value_per_pod(3, 8600, 2150, TOLERANCES).replicas == 4
    assert by_value_per_pod(5, 8600, 4000, TOLERANCES).replicas == 3
    assert by_value_per_pod(3, 8600, 2150, TOLERANCES).value == 2867
    assert by_value_per_pod(0, 5000, 1000, TOLERANCES).replicas == 5
    assert by_value_per_pod(1, 10**30, 1, TOLERANCES).replicas == 2**31 - 1


def test_tolerances_of_each_direction() -> None:
    wide = Tolerances(down=0.5, up=0.0)
    these = pods(4)
    assert by_average(4, 1000, samples(*[600] * 4), these, "", wide, SETTINGS, NOW).replicas == 4
    assert by_average(4, 1000, samples(*[1010] * 4), these, "", wide, SETTINGS, NOW).replicas == 5


@pytest.mark.parametrize(
    ("these", "found", "text"),
    [
        ([], samples(1), "no pods returned by selector while calculating replica count"),
        (pods(1, phase="Pending"), samples(1), "did not receive metrics for targeted pods (pods might be unready)"),
        (pods(1), {}, "did not receive metrics for targeted pods (pods might be unready)"),
    ],
)
def test_why_a_metric_says_nothing(these: list[Pod], found: dict[str, Sample], text: str) -> None:
    with pytest.raises(MetricUnavailable) as caught:
        by_average(1, 1000, found, these, "", TOLERANCES, SETTINGS, NOW)
    assert str(caught.value) == text


def test_requests_of_every_pod_are_needed() -> None:
    with pytest.raises(MetricUnavailable, match="missing request for cpu in container c of Pod p0"):
        requests_of(pods(1, request=None), "", "cpu")
    with pytest.raises(MetricUnavailable, match="container x not found in Pod p0"):
        requests_of(pods(1), "x", "cpu")
    sidecar = Container(
        name="s", restart_policy="Always", resources=ResourceRequirements(requests={"cpu": Quantity.parse("1500m")})
    )
    once = Container(name="i", resources=ResourceRequirements())
    main = pods(1)[0].spec.containers
    made = Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=main, init_containers=(once, sidecar)))
    assert requests_of([made], "", "cpu") == {"p": 2500}
    assert requests_of([made], "s", "cpu") == {"p": 1500}
    whole = Pod(
        metadata=ObjectMeta(name="p"),
        spec=PodSpec(containers=main, resources=ResourceRequirements(requests={"cpu": Quantity.parse("4")})),
    )
    assert requests_of([whole], "", "cpu") == {"p": 4000}
    with pytest.raises(MetricUnavailable, match="missing pod-level request for memory in Pod p"):
        requests_of([whole], "", "memory")
