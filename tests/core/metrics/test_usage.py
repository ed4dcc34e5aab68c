"""Use of processor and memory out of counters, as metrics-server has it; series of pods; what simulated pods are said to use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.metrics import series
from allot.core.metrics.declared_usage import ContainerLoad, load_of, owner_of
from allot.core.metrics.exposition import Sample, parse
from allot.core.metrics.pod_index import PodIndex
from allot.core.metrics.resource_usage import UsageBoard
from allot.core.metrics.series import SeriesBoard, combined, owned_by_pod, told_by_pod, total
from allot.core.selectors import parse_label_selector

NOW = 10_000.0
MI = 2**20


def container(cpu: float, memory: int, at: float, pod: str = "p", name: str = "c", started: float = 1.0) -> str:
    labels = f'{{namespace="ns",pod="{pod}",container="{name}"}}'
    return (
        f"container_cpu_usage_seconds_total{labels} {cpu} {int(at * 1000)}\n"
        f"container_memory_working_set_bytes{labels} {memory} {int(at * 1000)}\n"
        f"container_start_time_seconds{labels} {started}\n"
    )


def put(board: UsageBoard, text: str, now: float, nodes: tuple[str, ...] = ("n1",), endpoint: str = "e") -> None:
    board.put(endpoint, nodes, parse(text, samples_max=1000).samples, now)


def test_two_points_make_a_rate() -> None:
    board = UsageBoard(15.0)
    put(board, container(100.0, 5 * MI, NOW), NOW)
    assert board.pod("ns", "p", NOW) is None
    put(board, container(103.0, 7 * MI, NOW + 15), NOW + 15)
    found = board.pod("ns", "p", NOW + 15)
    assert found is not None and (found["c"].cpu_nano, found["c"].memory_bytes) == (200_000_000, 7 * MI)
    assert (found["c"].at, found["c"].window_s) == (NOW + 15, 15.0)
    # Too old to say something about now.
    assert board.pod("ns", "p", NOW + 200) is None


def test_a_pod_is_known_when_all_its_containers_are() -> None:
    board = UsageBoard(15.0)
    put(board, container(1.0, MI, NOW, name="a"), NOW)
    put(board, container(2.0, MI, NOW + 15, name="a") + container(1.0, MI, NOW + 15, name="b"), NOW + 15)
    assert board.pod("ns", "p", NOW + 15) is None
    put(board, container(3.0, MI, NOW + 30, name="a") + container(2.0, MI, NOW + 30, name="b"), NOW + 30)
    found = board.pod("ns", "p", NOW + 30)
    assert found is not None and sorted(found) == ["a", "b"]


@pytest.mark.parametrize(("age", "expected"), [(5.0, None), (12.0, 500_000_000), (60.0, None)])
def test_a_container_that_began_lately_is_rated_from_its_start(age: float, expected: int | None) -> None:
    board = UsageBoard(15.0)
    put(board, container(age / 2, MI, NOW, started=NOW - age), NOW)
    found = board.pod("ns", "p", NOW)
    assert (None if found is None else found["c"].cpu_nano) == expected


def test_a_counter_that_begins_anew_says_nothing_once() -> None:
    board = UsageBoard(15.0)
    put(board, container(100.0, MI, NOW), NOW)
    put(board, container(1.0, MI, NOW + 15), NOW + 15)
    assert board.pod("ns", "p", NOW + 15) is None
    put(board, container(2.5, MI, NOW + 30), NOW + 30)
    assert board.pod("ns", "p", NOW + 30) is not None


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-Inf", "-1"])
def test_what_is_no_amount_is_not_known(bad: str) -> None:
    board = UsageBoard(15.0)
    for at in (NOW, NOW + 15):
        text = f"node_cpu_usage_seconds_total {bad}\nnode_memory_working_set_bytes 1\n" + container(at, MI, at)
        put(board, text.replace(f"{MI}", bad), at)
    assert board.node("n1", NOW + 15) is None and board.pod("ns", "p", NOW + 15) is None


def test_more_than_any_machine_has_says_nothing() -> None:
    board = UsageBoard(15.0)
    put(board, container(0.0, MI, NOW), NOW)
    put(board, container(1e308, MI, NOW + 15), NOW + 15)
    assert board.pod("ns", "p", NOW + 15) is None
    put(board, container(1e308, 2**61, NOW + 30), NOW + 30)
    assert board.pod("ns", "p", NOW + 30) is None


def test_clocks_that_jump() -> None:
    board = UsageBoard(15.0)
    # An agent whose clock is behind for years is known, by what it says of the time between.
    for step in (0, 1):
        put(board, container(step * 3.0, MI, 100.0 + 15 * step), NOW + 15 * step)
    found = board.pod("ns", "p", NOW + 15)
    assert found is not None and found["c"].cpu_nano == 200_000_000
    # One that goes back says nothing once.
    put(board, container(6.0, MI, 50.0), NOW + 30)
    assert board.pod("ns", "p", NOW + 30) is None
    put(board, container(9.0, MI, 65.0), NOW + 45)
    assert board.pod("ns", "p", NOW + 45) is not None
    # What is said of the far future is no time.
    put(board, container(12.0, MI, NOW * 1000), NOW + 60)
    assert board.pod("ns", "p", NOW + 60) is None
    # A server whose clock goes back by an hour does not keep what it knows for an hour.
    put(board, container(15.0, MI, NOW + 75), NOW + 75)
    put(board, container(18.0, MI, NOW + 90), NOW + 90)
    assert board.pod("ns", "p", NOW + 80) is not None and board.pod("ns", "p", NOW - 3600) is None


def test_nodes_of_one_endpoint_or_several() -> None:
    board = UsageBoard(15.0)
    for step in range(2):
        at = NOW + 15 * step
        put(board, f"node_cpu_usage_seconds_total {step * 30}\nnode_memory_working_set_bytes {MI}\n", at)
        text = "".join(
            f'node_cpu_usage_seconds_total{{node="{name}"}} {step * used}\nnode_memory_working_set_bytes{{node="{name}"}} 1\n'
            for name, used in (("a", 15), ("b", 3), ("stranger", 9))
        )
        put(board, text, at, ("a", "b"), "many")
    found = {name: board.node(name, NOW + 15) for name in ("n1", "a", "b", "stranger")}
    assert {name: usage and usage.cpu_nano for name, usage in found.items()} == {
        "n1": 2 * 10**9,
        "a": 10**9,
        "b": 200_000_000,
        "stranger": None,
    }
    board.keep(["e"])
    assert board.node("a", NOW + 15) is None and board.node("n1", NOW + 15) is not None


# --- series ---


def told(text: str) -> tuple[Sample, ...]:
    return parse(text, samples_max=1000).samples


def test_series_by_pod_and_label() -> None:
    board = SeriesBoard()
    text = (
        'q{namespace="ns",pod="a",kind="x"} 3\nq{namespace="ns",pod="a",kind="y"} 4\n'
        'q{namespace="ns",pod="b"} 5\nq{namespace="other",pod="a"} 9\nq{pod="nobody"} 1\n'
        'G_UTIL{namespace="ns",pod="a",gpu="0"} 100\nG_UTIL{namespace="ns",pod="a",gpu="1"} 50\n'
    )
    board.put("e", told(text), NOW)
    found = combined("q", board.of("ns", "q", NOW))
    assert {pod: series.value for pod, series in found.items()} == {"a": 7.0, "b": 5.0}
    # Parts of a whole are averaged.
    assert combined("G_UTIL", board.of("ns", "G_UTIL", NOW))["a"].value == 75.0
    everything = total("q", board.of("ns", "q", NOW))
    assert everything is not None and everything.value == 12.0 and total("q", []) is None
    assert board.names() == ("G_UTIL", "q")
    assert not list(board.of("ns", "q", NOW + 1000))
    board.keep([])
    assert board.names() == ()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1 -5", f"1 {10**18}", f"1 {int((NOW + 601) * 1000)}"])
def test_values_that_are_no_numbers_and_times_that_cannot_be(value: str) -> None:
    board = SeriesBoard()
    board.put("e", parse(f'q{{namespace="ns",pod="p"}} {value}', samples_max=9).samples, NOW)
    assert list(board.of("ns", "q", NOW)) == [] and board.names() == ()


def test_a_value_of_the_near_future_is_of_now() -> None:
    board = SeriesBoard()
    board.put("e", parse(f'q{{namespace="ns",pod="p"}} 1 {int((NOW + 300) * 1000)}', samples_max=9).samples, NOW)
    assert [each.at for each in board.of("ns", "q", NOW)] == [NOW]


def test_all_endpoints_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SERIES_MAX", 3)
    board = SeriesBoard()
    two = parse('a{namespace="ns",pod="p"} 1\nb{namespace="ns",pod="p"} 1\n', samples_max=9).samples
    assert board.put("one", two, NOW) == 0 and board.put("two", two, NOW) == 1
    # Who tells again takes the place that it had.
    assert board.put("one", two, NOW) == 0 and len(list(board.of("ns", "a", NOW))) == 2
    board.keep(["two"])
    assert board.put("two", two, NOW) == 0


def test_counters_become_rates_under_their_name() -> None:
    board = SeriesBoard()
    text = '# TYPE hits_total counter\nhits_total{{namespace="ns",pod="a"}} {}\n'
    board.put("e", told(text.format(100)), NOW)
    assert board.names() == ()
    board.put("e", told(text.format(130)), NOW + 15)
    (series,) = board.of("ns", "hits", NOW + 15)
    assert (series.value, series.window_s) == (2.0, 15.0)
    # It began anew.
    board.put("e", told(text.format(1)), NOW + 30)
    assert not list(board.of("ns", "hits", NOW + 30))


def test_what_a_pod_says_of_types_counts_for_itself() -> None:
    text = (
        "# TYPE t histogram\nt_bucket 1\nt_count 1\nt_sum 1\n# TYPE s summary\ns 1\ns_count 1\n"
        "# TYPE c counter\nc 1\nd_total 1\n# TYPE g gauge\ng 1\nother_count 1\n"
    )
    found = told_by_pod(parse(text, samples_max=99), "ns", "p", trusted=False)
    assert [sample.name for sample in found] == ["c_total", "d_total", "g", "other_count"]


def test_a_pod_cannot_speak_for_another() -> None:
    lie = Sample("q", {"namespace": "victim", "pod": "other", "x": "y"}, 1.0)
    assert owned_by_pod(lie, "ns", "me", trusted=False).labels == {
        "namespace": "ns",
        "pod": "me",
        "x": "y",
        "exported_namespace": "victim",
        "exported_pod": "other",
    }
    # Exporters of the cluster's own may.
    assert owned_by_pod(lie, "kube-system", "exporter", trusted=True) is lie


def test_pods_are_found_by_labels() -> None:
    index = PodIndex(
        [("ns", "a", {"app": "x", "v": "1"}, ""), ("ns", "b", {"app": "x"}, "n"), ("o", "a", {"app": "x"}, "")]
    )

    def names(selector: str) -> list[str]:
        return [name for name, _ in index.selected("ns", parse_label_selector(selector))]

    assert names("app=x") == ["a", "b"]
    assert names("app=x,v=1") == ["a"] and names("v=1,app=x") == ["a"]
    assert names("!v") == ["b"] and names("app=none") == [] and names("app in (x,y),v") == ["a"]
    assert index.namespaces() == ("ns", "o")


# --- declared ---


def pod(*containers: dict[str, Any], **annotations: str) -> dict[str, Any]:
    named = {f"allot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"metadata": {"uid": "u", "annotations": named}, "spec": {"containers": list(containers)}}


def asks(name: str, cpu: str = "", memory: str = "", limit: str = "") -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": name, "resources": {"requests": requests, "limits": {"cpu": limit} if limit else {}}}


def test_half_of_the_request_unless_something_else_is_said() -> None:
    load = load_of(pod(asks("a", "2", "4Gi"), asks("b")), 1)
    assert load.containers == {"a": ContainerLoad(10**9, 2**31), "b": ContainerLoad(1_000_000, 16 * MI)}
    assert load.gpu_percent == 50.0
    load = load_of(pod(asks("a"), asks("b"), cpu_usage="3", memory_usage="2Gi", gpu_utilization="80"), 4)
    assert load.containers["b"] == ContainerLoad(1_500_000_000, 2**30) and load.gpu_percent == 80.0


def test_sidecars_and_requests_of_the_pod_count() -> None:
    told = pod(asks("a", "2"), asks("b"))
    told["spec"] |= {
        "initContainers": [{**asks("side", "1"), "restartPolicy": "Always"}, asks("first", "8")],
        "resources": {"requests": {"cpu": "6", "memory": "6Gi"}},
    }
    load = load_of(told, 1)
    assert {name: each.cpu_nano for name, each in load.containers.items()} == {
        "a": 10**9,
        "b": 10**9,
        "side": 5 * 10**8,
    }
    assert load.containers["b"].memory_bytes == 2**30


def test_a_load_is_shared_and_limited() -> None:
    shared = pod(asks("a", limit="1"), cpu_usage="6", gpu_utilization="240", load_is_shared="true")
    assert [load_of(shared, count).gpu_percent for count in (1, 2, 3, 6)] == [100.0, 100.0, 80.0, 40.0]
    assert [load_of(shared, count).containers["a"].cpu_nano for count in (1, 12)] == [10**9, 500_000_000]


@pytest.mark.parametrize("bad", ["much", "-1", ""])
def test_what_says_nothing_is_told_and_the_default_holds(bad: str) -> None:
    load = load_of(pod(asks("a", "2"), cpu_usage=bad), 1)
    assert load.containers["a"].cpu_nano == 10**9
    assert f'annotation allot.dev/cpu-usage: "{bad}": expected a quantity' in load.problem


def test_pods_of_one_controller_share() -> None:
    owned = {"metadata": {"uid": "u", "ownerReferences": [{"uid": "x"}, {"uid": "rs", "controller": True}]}, "spec": {}}
    assert owner_of(owned) == "rs" and owner_of(pod()) == "u"


def test_a_pod_is_said_to_tell_values_of_its_own() -> None:
    text = 'waiting{model="m"} 12\npod_is{pod="other"} 1 5\n'
    told = {**pod(metrics=text, load_is_shared="true", gpu_memory_usage="60Gi")}
    told["metadata"] |= {"name": "me", "namespace": "ns"}
    load = load_of(told, 4)
    assert load.samples == (
        Sample("waiting", {"namespace": "ns", "pod": "me", "model": "m"}, 3.0),
        Sample("pod_is", {"namespace": "ns", "pod": "me", "exported_pod": "other"}, 0.25),
    )
    assert (load.gpu_memory_bytes, load.problem) == (15 * 2**30, "")


def test_what_a_pod_cannot_be_said_to_tell() -> None:
    load = load_of(pod(metrics="requests_total 5\nno sample\nfine 1\n"), 1)
    assert [sample.name for sample in load.samples] == ["fine"]
    assert load.problem == (
        "annotation allot.dev/metrics: 1 lines: expected NAME{LABELS} VALUE, 200 at most; "
        'annotation allot.dev/metrics: "requests_total": expected a value, such as a rate without _total; '
        "a counter would stand still"
    )
    assert len(load_of(pod(metrics="a 1\n" * 1000), 1).samples) == 200


def test_who_asks_for_few_does_not_look_at_all() -> None:
    """Hundreds of autoscalers ask for a metric that thousands of pods have."""
    text = "".join(f'q{{namespace="ns",pod="p{number}",queue="{number % 50}"}} {number}\n' for number in range(500))
    board = SeriesBoard()
    board.put("e", told(text), NOW)
    assert [each.value for each in board.of("ns", "q", NOW, ["p7", "gone", "p9"])] == [7.0, 9.0]
    (index,) = board._indexes.values()
    assert len(list(index.candidates(["p7"], series.EVERYTHING))) == 1
    assert len(list(index.candidates(None, parse_label_selector("queue=7,other!=x")))) == 10
    assert len(list(index.candidates(None, parse_label_selector("pod=p7")))) == 1
    assert len(list(index.candidates(None, parse_label_selector("queue in (7,8)")))) == 500
    assert [each.value for each in board.of("ns", "q", NOW, wanted=parse_label_selector("queue=7,pod=p57"))] == [57.0]
    # What nobody tells is not remembered.
    assert list(board.of("ns", "none", NOW)) == [] and len(board._indexes) == 1
    board.put("e", told('q{namespace="ns",pod="p7"} 1\n'), NOW)
    assert [each.value for each in board.of("ns", "q", NOW)] == [1.0]


@given(st.data())
def test_selections_are_what_looking_at_all_finds(data: st.DataObject) -> None:
    names = st.sampled_from(["a", "b", "c"])
    found = data.draw(st.lists(st.tuples(names, names, st.integers(0, 9)), max_size=20))
    board = SeriesBoard()
    for number, endpoint in enumerate(("one", "two")):
        samples = [Sample("q", {"namespace": "ns", "pod": pod, "k": k}, value) for pod, k, value in found[number::2]]
        board.put(endpoint, samples, NOW)
    selector = data.draw(st.sampled_from(["", "k=a", "k in (a,b)", "k!=a,pod=b", "pod", "!k", "none=x"]))
    pods = data.draw(st.none() | st.lists(names, unique=True))
    wanted = parse_label_selector(selector)
    everything = list(board.of("ns", "q", NOW))
    expected = [
        each
        for each in everything
        if (pods is None or each.pod in pods) and wanted.matches({**each.labels, "pod": each.pod})
    ]
    chosen = list(board.of("ns", "q", NOW, pods, wanted))
    assert sorted(chosen, key=repr) == sorted(expected, key=repr)
