"""What queues and groups of other schedulers hold, in their words."""

from __future__ import annotations

from allot.core.scheduling.queues.amounts import ONE
from allot.core.scheduling.queues.model import Queue, QueueShares, Share
from allot.core.scheduling.queues.usage import Usage
from allot.core.workloads.queue_status import kai_queue_status, kai_resources_status, volcano_queue_status


def shares() -> QueueShares:
    made = QueueShares(Queue(name="research"))
    made.children = [QueueShares(Queue(name=name), made) for name in ("vision", "audio")]
    made.shares["gpu"] = Share(request=3 * ONE, allocated=5 * ONE // 2, allocated_firmly=ONE)
    made.shares["cpu"] = Share(request=1500 * ONE, allocated=500 * ONE)
    made.shares["memory"] = Share(request=2**30 * ONE)
    return made


def test_a_queue_of_kai_counts_devices_cores_and_bytes() -> None:
    assert kai_queue_status(shares()) == {
        "childQueues": ["audio", "vision"],
        "allocated": {"cpu": "500m", "memory": "0", "nvidia.com/gpu": "2500m"},
        "allocatedNonPreemptible": {"cpu": "0", "memory": "0", "nvidia.com/gpu": "1"},
        "requested": {"cpu": "1500m", "memory": "1073741824", "nvidia.com/gpu": "3"},
    }


def test_a_queue_of_volcano_counts_its_groups() -> None:
    status = volcano_queue_status(shares(), "", {"Running": 2, "Inqueue": 1})
    assert status["state"] == "Open" and status["allocated"]["cpu"] == "500m"
    assert {name: status[name] for name in ("pending", "running", "inqueue", "completed", "unknown")} == {
        "pending": 0,
        "running": 2,
        "inqueue": 1,
        "completed": 0,
        "unknown": 0,
    }


def test_a_group_has_what_its_pods_have() -> None:
    usage = Usage()
    usage.add({"gpu": ONE}, is_held=True, is_firm=True)
    usage.add({"gpu": ONE // 2}, is_held=True, is_firm=False)
    usage.add({"gpu": ONE}, is_held=False, is_firm=True)
    assert kai_resources_status(usage) == {
        "allocated": {"nvidia.com/gpu": "1500m"},
        "allocatedNonPreemptible": {"nvidia.com/gpu": "1"},
        "requested": {"nvidia.com/gpu": "2500m"},
    }
