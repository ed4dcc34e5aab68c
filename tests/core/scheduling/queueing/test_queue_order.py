"""The order of the queue is a port: an order by fair share can be put in without a change to queue or machine."""

from __future__ import annotations

from msgspec.structs import replace

from allot.core.model import core_v1
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.meta import ObjectMeta
from allot.core.quantity import Quantity
from allot.core.scheduling import Bound, Machine, NotBound, ObjectChange, QueueOrder, Settings
from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.queueing.queue_order import PriorityOrder
from allot.core.scheduling.queueing.waiting import Heap, Waiting


class FairShare:
    """The namespace that uses the least cpu comes first; within a namespace, by priority and time."""

    def __init__(self) -> None:
        self._tenants: dict[str, Heap] = {}
        self._used: dict[str, int] = {}

    def push(self, unit: Waiting) -> None:
        tenant = unit.key.removeprefix("group:").partition("/")[0]
        self._tenants.setdefault(tenant, Heap()).push((-unit.priority, unit.since), unit)

    def discard(self, unit: Waiting) -> None:
        self._tenants[unit.key.removeprefix("group:").partition("/")[0]].discard()

    def first(self) -> Waiting | None:
        for tenant in sorted(self._tenants, key=lambda name: (self._used.get(name, 0), name)):
            found = self._tenants[tenant].first()
            if found is not None:
                return found
        return None

    def placed(self, pod: PodInfo) -> None:
        namespace = pod.pod.metadata.namespace
        self._used[namespace] = self._used.get(namespace, 0) + pod.cpu

    def left(self, pod: PodInfo) -> None:
        self._used[pod.pod.metadata.namespace] -= pod.cpu


def machine(order: QueueOrder | None = None) -> Machine:
    made = Machine({"default-scheduler": Settings()}.get, order=order)
    amounts = {"cpu": Quantity.parse("100"), "pods": Quantity.parse("100")}
    node = Node(metadata=ObjectMeta(name="n"), status=core_v1.NodeStatus(allocatable=amounts))
    made.apply(ObjectChange(None, node), 0.0)
    return made


def pod(namespace: str, name: str, *, cpu: str = "1", node: str = "") -> Pod:
    requests = core_v1.ResourceRequirements(requests={"cpu": Quantity.parse(cpu)})
    container = core_v1.Container(name="c", resources=requests)
    spec = core_v1.PodSpec(containers=(container,), scheduler_name="default-scheduler", node_name=node)
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}-{name}"), spec=spec)


def next_of(made: Machine) -> Pod:
    decision = made.next(1.0, 0.0)
    assert decision is not None
    (placement,) = decision.placements
    return placement.pod


def test_by_default_who_waits_longest_comes_first() -> None:
    made = machine()
    for at, (namespace, name) in enumerate([("a", "1"), ("a", "2"), ("b", "1")]):
        made.apply(ObjectChange(None, pod(namespace, name)), at / 10)
    found = [next_of(made).metadata for _ in range(3)]
    assert [(each.namespace, each.name) for each in found] == [("a", "1"), ("a", "2"), ("b", "1")]


def test_with_fair_share_taking_one_unit_moves_the_others() -> None:
    made = machine(FairShare())
    for namespace in ("a", "b"):
        for name in ("1", "2", "3"):
            made.apply(ObjectChange(None, pod(namespace, name)), 0.0)
    assert [next_of(made).metadata.namespace for _ in range(6)] == ["a", "b", "a", "b", "a", "b"]


def test_pods_that_run_already_count_and_those_that_end_do_so_no_more() -> None:
    made = machine(FairShare())
    running = pod("a", "running", cpu="2", node="n")
    made.apply(ObjectChange(None, running), 0.0)
    for namespace in ("a", "b"):
        for name in ("1", "2", "3"):
            made.apply(ObjectChange(None, pod(namespace, name)), 0.0)
    assert [next_of(made).metadata.namespace for _ in range(2)] == ["b", "b"]
    made.apply(ObjectChange(running, replace(running, status=replace(running.status, phase="Succeeded"))), 0.0)
    assert [next_of(made).metadata.namespace for _ in range(3)] == ["a", "a", "a"]


def test_a_placement_that_is_taken_back_does_not_count() -> None:
    made = machine(FairShare())
    for namespace in ("a", "b"):
        made.apply(ObjectChange(None, pod(namespace, "1")), 0.0)
    decision = made.next(1.0, 0.0)
    assert decision is not None
    made.apply(ObjectChange(None, pod("a", "2")), 1.0)
    made.settled(decision.placements[0], NotBound(), 1.0)
    found = next_of(made)
    assert (found.metadata.namespace, found.metadata.name) == ("a", "2")


def test_a_placement_that_is_written_counts_once() -> None:
    order = FairShare()
    made = machine(order)
    waiting = pod("a", "1")
    made.apply(ObjectChange(None, waiting), 0.0)
    decision = made.next(1.0, 0.0)
    assert decision is not None
    bound = replace(waiting, spec=replace(waiting.spec, node_name="n"))
    made.apply(ObjectChange(waiting, bound), 1.0)
    made.settled(decision.placements[0], Bound("n"), 1.0)
    assert order._used == {"a": 1000}


def test_the_default_order_is_an_order() -> None:
    order: QueueOrder = PriorityOrder()
    assert order.first() is None
