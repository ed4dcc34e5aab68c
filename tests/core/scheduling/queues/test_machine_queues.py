"""A machine with queues: limits hold, queues get what is theirs, and a cluster that is left alone comes to rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allot.core.model import core_v1
from allot.core.model.codec import decode
from allot.core.model.meta import APIStruct
from allot.core.model.team_queues import KaiQueue, VolcanoQueue
from allot.core.scheduling import Bound, Decision, Machine, ObjectChange, Settings
from allot.core.scheduling.queues.amounts import ONE
from allot.core.scheduling.queues.in_force import InForce
from allot.core.scheduling.queues.takeover import Nothing, Takeover, Takeovers

from ..cluster_world import node
from ..device_world import claim, device_class, exactly, gpus, slice_of

GPU = "nvidia.com/gpu"
LABEL = "kai.scheduler/queue"


def kai_queue(
    name: str, parent: str = "", *, quota: float = 0, limit: float = -1, weight: float = 1, **spec: Any
) -> KaiQueue:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": {"quota": quota, "limit": limit, "overQuotaWeight": weight}, "cpu": free, "memory": free}
    body = {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources, **spec}}
    return decode(body, KaiQueue).object


def team_pod(name: str, queue: str, count: int = 1, *, priority: int = 50, age: int = 0, **spec: Any) -> core_v1.Pod:
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "labels": {LABEL: queue} if queue else {},
        "creationTimestamp": f"2026-01-01T00:{age:02}:00Z",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        ],
    }
    requests = {"cpu": "1", **({GPU: str(count)} if count else {})}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    body = {
        "metadata": metadata,
        "spec": {"containers": [container], "priority": priority, "schedulerName": "s", **spec},
    }
    return decode(body, core_v1.Pod).object


class World:
    """A machine, and an API server that does what it says: pods that are bound run, those that are evicted are gone."""

    def __init__(self, *objects: APIStruct) -> None:
        self.machine = Machine({"s": Settings()}.get)
        self.now = 0.0
        self.pods: dict[str, core_v1.Pod] = {}
        self.evicted: list[str] = []
        self.notes: dict[str, str] = {}
        self.why: dict[str, str] = {}
        for found in objects:
            self.put(found)

    def put(self, found: APIStruct) -> None:
        if isinstance(found, core_v1.Pod):
            old = self.pods.get(found.metadata.name)
            self.pods[found.metadata.name] = found
            self.machine.apply(ObjectChange(old, found), self.now)
        else:
            self.machine.apply(ObjectChange(None, found), self.now)

    def delete(self, name: str) -> None:
        self.machine.apply(ObjectChange(self.pods.pop(name), None), self.now)

    def step(self) -> Decision | None:
        decision = self.machine.next(self.now, 1_000_000.0 + self.now)
        if decision is None:
            return None
        for placement in decision.placements:
            bound = msgspec.structs.replace(
                placement.pod, spec=msgspec.structs.replace(placement.pod.spec, node_name=placement.node)
            )
            self.machine.settled(placement, Bound(placement.node), self.now)
            self.put(bound)
        for refusal in decision.refusals:
            self.notes[refusal.pod.metadata.name] = refusal.message
        for victim in decision.victims:
            self.evicted.append(victim.pod.metadata.name)
            self.why[victim.pod.metadata.name] = victim.why
        for victim in decision.victims:
            self.delete(victim.pod.metadata.name)
            comes_back = msgspec.structs.replace(
                victim.pod,
                spec=msgspec.structs.replace(victim.pod.spec, node_name=""),
                metadata=msgspec.structs.replace(
                    victim.pod.metadata,
                    uid=f"{victim.pod.metadata.uid}+",
                    creation_timestamp="2026-01-02T00:00:00Z",
                ),
            )
            self.put(comes_back)
        return decision

    def rest(self, steps_max: int = 2_000) -> int:
        """Until nothing is left to do, time included; how many decisions that took."""
        for count in range(steps_max):
            if self.step() is None:
                due = self.machine.next_at()
                if due is None or due > self.now + 60:
                    return count
                self.now = max(self.now, due)
        raise AssertionError("the cluster does not come to rest")

    def running(self, prefix: str = "") -> list[str]:
        return sorted(name for name, pod in self.pods.items() if pod.spec.node_name and name.startswith(prefix))

    def held(self, queue: str) -> float:
        found = self.machine.book.tree.get(queue)
        assert found is not None
        return found.shares["gpu"].allocated / ONE


def gpu_node(name: str, count: int = 8) -> core_v1.Node:
    return node(name, cpu="64", memory="64Gi", **{GPU: str(count)})


def test_without_queues_a_label_changes_nothing() -> None:
    world = World(gpu_node("n", 1), team_pod("p", "nowhere"))
    world.rest()
    assert world.running() == ["p"]


def test_a_queue_that_does_not_exist_is_told_and_waited_for() -> None:
    world = World(gpu_node("n"), kai_queue("a", quota=1), team_pod("p", "b"))
    world.rest()
    assert world.notes["p"] == 'queue "b" does not exist'
    world.put(kai_queue("b", quota=1))
    world.rest()
    assert world.running() == ["p"]


def test_pods_that_were_there_before_any_queue_count() -> None:
    world = World(gpu_node("n", 4), *(team_pod(f"a{number}", "a", age=number) for number in range(6)))
    world.rest()
    assert len(world.running()) == 4
    world.put(kai_queue("a", quota=4))
    assert world.held("a") == 4
    found = world.machine.book.tree.get("a")
    assert found is not None
    assert found.shares["gpu"].request == 6 * ONE


def test_a_limit_holds_and_is_told() -> None:
    world = World(
        gpu_node("n"), kai_queue("a", quota=2, limit=2), *(team_pod(f"a{number}", "a") for number in range(4))
    )
    world.rest()
    assert len(world.running()) == 2
    told = {name for name in world.pods if "allowable limit of GPUs" in world.notes.get(name, "")}
    assert len(told) == 2
    world.delete(world.running()[0])
    world.rest()
    assert len(world.running()) == 2, "who was kept out comes in when there is room"


def test_queues_share_what_is_there() -> None:
    pods = [team_pod(f"{queue}{number}", queue, age=number) for queue in "ab" for number in range(8)]
    world = World(gpu_node("n"), kai_queue("a", quota=2), kai_queue("b", quota=2), *pods)
    world.rest()
    assert (len(world.running("a")), len(world.running("b"))) == (4, 4)
    assert not world.evicted


def test_the_rightful_owner_gets_back_what_is_its_own() -> None:
    first = [team_pod(f"a{number}", "a", age=number) for number in range(8)]
    world = World(gpu_node("n"), kai_queue("a", quota=4), kai_queue("b", quota=4), *first)
    world.rest()
    assert len(world.running("a")) == 8, "what nobody else wants is for all"
    for number in range(6):
        world.put(team_pod(f"b{number}", "b", age=30 + number))
    world.rest()
    assert (len(world.running("a")), len(world.running("b"))) == (4, 4)
    assert sorted(world.evicted) == ["a4", "a5", "a6", "a7"], "the youngest go, and no more than must"
    assert "queue a uses 8 GPUs" in world.why["a7"]
    assert world.held("a") == world.held("b") == 4


def test_departments_come_before_their_queues() -> None:
    queues = [
        kai_queue("d1", quota=4),
        kai_queue("d2", quota=4),
        kai_queue("t1", "d1", quota=2),
        kai_queue("t2", "d1", quota=2),
        kai_queue("t3", "d2", quota=4),
    ]
    world = World(gpu_node("n"), *queues, *(team_pod(f"x{number}", "t1", age=number) for number in range(8)))
    world.rest()
    for number in range(4):
        world.put(team_pod(f"y{number}", "t2", age=20 + number))
        world.put(team_pod(f"z{number}", "t3", age=20 + number))
    world.rest()
    assert [len(world.running(name)) for name in "xyz"] == [2, 2, 4]


def test_what_cannot_be_preempted_stays_and_stays_within_the_quota() -> None:
    firm = [team_pod(f"f{number}", "a", priority=100, age=number) for number in range(4)]
    world = World(gpu_node("n", 4), kai_queue("a", quota=2), kai_queue("b", quota=2), *firm)
    world.rest()
    assert len(world.running("f")) == 2
    assert any("Non-preemptible workload is over quota" in note for note in world.notes.values())
    for number in range(4):
        world.put(team_pod(f"b{number}", "b", age=30 + number))
    world.rest()
    assert (len(world.running("f")), len(world.running("b"))) == (2, 2)
    assert not world.evicted


def test_priority_counts_within_a_queue_only() -> None:
    low = [team_pod(f"l{number}", "a", age=number) for number in range(4)]
    world = World(gpu_node("n", 4), kai_queue("a", quota=4), kai_queue("b", quota=0, weight=0), *low)
    world.rest()
    world.put(team_pod("other", "b", priority=90, age=10))
    world.rest()
    assert world.running("other") == [] and not world.evicted
    world.put(team_pod("high", "a", priority=90, age=10))
    world.rest()
    assert world.running("high") == ["high"] and len(world.evicted) == 1
    assert "higher priority in queue a" in world.why[world.evicted[0]]


def test_pods_move_so_that_a_larger_one_fits() -> None:
    small = [team_pod(f"s{number}", "a", 1, age=number) for number in range(2)]
    world = World(gpu_node("m", 2), gpu_node("n", 2), kai_queue("a", quota=4), *small)
    world.rest()
    assert {pod.spec.node_name for pod in world.pods.values()} == {"m", "n"}, "equal nodes fill evenly"
    world.put(team_pod("large", "a", 2, age=10))
    world.rest()
    assert world.running() == ["large", "s0", "s1"]
    assert len(world.evicted) == 1
    assert world.why[world.evicted[0]].startswith("moved to make room for ns/large")


def test_what_is_left_over_of_what_was_reclaimed_is_for_the_next_one() -> None:
    large = [team_pod(f"a{number}", "a", 2, age=number) for number in range(4)]
    world = World(gpu_node("n"), kai_queue("a", quota=4), kai_queue("b", quota=4), *large)
    world.rest()
    for number in range(2):
        world.put(team_pod(f"b{number}", "b", age=30 + number))
    look = world.machine.look(1_000_000.0 + world.now)
    assert [len(takeover.evicted) for takeover in look.takeovers] == [1, 0], "one pod of two GPUs makes room for both"
    world.rest()
    assert world.evicted == ["a3"] and world.running("b") == ["b0", "b1"]


def test_what_is_held_on_a_cordoned_node_is_not_part_of_what_there_is() -> None:
    first = [team_pod(f"a{number}", "a", age=number) for number in range(4)]
    world = World(gpu_node("m", 4), kai_queue("a", quota=2), kai_queue("b", quota=2), *first)
    world.rest()
    cordoned = gpu_node("m", 4)
    world.put(msgspec.structs.replace(cordoned, spec=msgspec.structs.replace(cordoned.spec, unschedulable=True)))
    world.put(gpu_node("n", 4))
    for number in range(4):
        world.put(team_pod(f"b{number}", "b", age=10 + number))
    world.rest()
    assert len(world.running("b")) == 4
    world.put(kai_queue("c", quota=2))
    world.put(team_pod("c0", "c", age=20))
    world.rest()
    assert world.running("c") == ["c0"], "queue b holds more than it deserves, on the only node that counts"


def test_a_pod_that_would_not_come_back_is_lost_and_not_moved() -> None:
    lone = team_pod("lone", "b", 1)
    lone = msgspec.structs.replace(lone, metadata=msgspec.structs.replace(lone.metadata, owner_references=()))
    world = World(gpu_node("m", 2), lone)
    world.rest()
    for found in (gpu_node("n", 1), kai_queue("a", quota=2), kai_queue("b", quota=1)):
        world.put(found)
    world.put(team_pod("firm", "a", 2, priority=100, age=10))
    world.rest()
    assert not world.evicted, "its queue holds no more than it deserves"
    assert world.running() == ["lone"]


def test_sets_of_which_no_rule_lets_anything_go_are_not_tried() -> None:
    nodes = [gpu_node(f"n{number:02}", 3) for number in range(12)]
    world = World(*nodes, kai_queue("a", quota=4), kai_queue("b", quota=24))
    for number in range(12):
        world.put(team_pod(f"b{number:02}", "b", 2, age=number))
    world.rest()
    assert len(world.running("b")) == 12, "one GPU is free on each node"
    # It fits nowhere, and would not if others moved: each of them needs two.
    world.put(team_pod("a0", "a", 3, age=30))
    book, cluster = world.machine.book, world.machine.cluster
    jobs = book.jobs(world.machine.queue.waiting_pods())
    in_force = InForce(cluster)
    takeovers = Takeovers(cluster, book.tree, jobs, lambda _: Settings(), 1_000_000.0, in_force)
    job = jobs["ns/a0"]
    moved = takeovers.consolidate(job)
    assert isinstance(moved, Nothing) and takeovers.trials > 0
    takeovers.has_consolidated, takeovers.trials = True, 0
    found = takeovers.reclaim(job)
    assert isinstance(found, Nothing) and found.reason == "no other queue holds more than its share"
    assert takeovers.trials == 0
    in_force.close()


def test_nodes_where_a_job_cannot_be_are_not_tried() -> None:
    labelled = [node(f"l{number}", cpu="64", memory="64Gi", labels={"k": "v"}, **{GPU: "2"}) for number in range(2)]
    world = World(*labelled, *(gpu_node(f"n{number:02}", 2) for number in range(20)), kai_queue("a"), kai_queue("b"))
    for number in range(44):
        world.put(team_pod(f"b{number:02}", "b", 1, age=number))
    world.rest()
    assert len(world.running("b")) == 44
    world.put(kai_queue("a", quota=2))
    world.put(team_pod("a0", "a", 2, age=50, nodeSelector={"k": "v"}))
    book, cluster = world.machine.book, world.machine.cluster
    jobs = book.jobs(world.machine.queue.waiting_pods())
    in_force = InForce(cluster)
    takeovers = Takeovers(cluster, book.tree, jobs, lambda _: Settings(), 1_000_000.0, in_force)
    found = takeovers.reclaim(jobs["ns/a0"])
    assert isinstance(found, Takeover)
    assert {task.pod.spec.node_name[0] for task in found.evicted} == {"l"}
    assert takeovers.trials <= 4, "of 22 nodes two are for it"
    in_force.close()


def test_devices_of_claims_count_as_they_are_taken() -> None:
    def with_claim(name: str, queue: str, count: int, age: int) -> tuple[APIStruct, core_v1.Pod]:
        made = claim(f"c-{name}", exactly(count=count))
        return made, team_pod(name, queue, 0, age=age, resourceClaims=[{"name": "d", "resourceClaimName": f"c-{name}"}])

    objects: list[APIStruct] = [gpu_node("n", 0), device_class("gpu"), slice_of("n", gpus(4)), kai_queue("a", limit=3)]
    for number, count in enumerate((2, 2, 1)):
        objects += with_claim(f"p{number}", "a", count, number)
    world = World(*objects)
    world.rest()
    assert world.running() == ["p0", "p2"], "the second would be a fourth GPU"
    assert world.held("a") == 3
    total = world.machine.book.tree.total
    assert total["gpu"] == 4 * ONE


def test_volcano_queues_count_what_they_name() -> None:
    body = {"metadata": {"name": "v"}, "spec": {"capability": {"deviceclass/gpu": "1"}, "reclaimable": True}}
    objects: list[APIStruct] = [
        gpu_node("n", 0),
        device_class("gpu"),
        slice_of("n", gpus(4)),
        decode(body, VolcanoQueue).object,
    ]
    for number in range(2):
        objects.append(claim(f"c{number}", exactly()))
        objects.append(
            team_pod(
                f"p{number}", "v", 0, age=number, resourceClaims=[{"name": "d", "resourceClaimName": f"c{number}"}]
            )
        )
    world = World(*objects)
    world.rest()
    assert world.running() == ["p0"]
    assert "deviceclass/gpu" in world.notes["p1"]


ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.sampled_from([50, 60, 100])), min_size=1, max_size=14
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 3), st.lists(st.integers(0, 13), max_size=4))
# Two pods that hoped for the node that was kept for a third made each other leave, again and again.
@example(
    [
        ("a", 1, 50),
        ("a", 3, 60),
        ("b", 1, 100),
        ("b", 1, 100),
        ("a", 2, 60),
        ("c", 2, 100),
        ("a", 2, 50),
        ("c", 3, 100),
        ("b", 1, 50),
        ("a", 1, 60),
    ],
    2,
    [],
)
def test_a_cluster_that_is_left_alone_comes_to_rest(
    rows: list[tuple[str, int, int]], nodes: int, gone: list[int]
) -> None:
    queues = [kai_queue("a", quota=2, limit=5), kai_queue("b", quota=1), kai_queue("c", quota=0)]
    world = World(*(gpu_node(f"n{number}", 3) for number in range(nodes)), *queues)
    for number, (queue, count, priority) in enumerate(rows):
        world.put(team_pod(f"{queue}{number}", queue, count, priority=priority, age=number))
        if number % 3 == 0:
            world.rest()
    for number in gone:
        name = next((name for name in world.pods if name.endswith(str(number))), "")
        if name:
            world.delete(name)
    world.rest()
    for name, limit in (("a", 5), ("b", 9), ("c", 9)):
        assert world.held(name) <= limit
        used = sum(
            int(str(pod.spec.containers[0].resources.requests[GPU]))
            for found, pod in world.pods.items()
            if pod.spec.node_name and found.startswith(name)
        )
        assert used == world.held(name), "what is counted is what is there"
    assert world.rest() == 0, "nothing happens any more"


def _started(world: World, seconds: float) -> None:
    """What runs says that it has run since then."""
    text = datetime.fromtimestamp(1_000_000.0 + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name in world.running():
        pod = world.pods[name]
        if pod.status.start_time is None:
            world.put(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, start_time=text)))


def test_a_minimum_run_time_holds_and_its_end_is_not_missed() -> None:
    first = [team_pod(f"a{number}", "a", age=number) for number in range(8)]
    queues = [kai_queue("a", quota=4, reclaimMinRuntime="7m"), kai_queue("b", quota=4)]
    world = World(gpu_node("n"), *queues, *first)
    world.rest()
    _started(world, world.now)
    began = world.now
    for number in range(4):
        world.put(team_pod(f"b{number}", "b", age=30 + number))
    world.rest()
    assert not world.evicted and not world.running("b")
    while not world.evicted:
        due = world.machine.next_at()
        assert due is not None and due <= began + 421, "no event comes when it ends"
        world.now = due
        world.step()
    assert began + 419 <= world.now, "it was kept"
    world.rest()
    assert (len(world.running("a")), len(world.running("b"))) == (4, 4)
