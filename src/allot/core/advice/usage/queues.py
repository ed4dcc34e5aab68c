"""What queues of teams deserve, get, hold and wait for, and why their jobs wait."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allot.core.advice.what_if import WhatIfCluster
from allot.core.scheduling.queues import UNLIMITED, QueueShares, number, unit_of


class QueueResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One resource of a queue, in its unit: what is guaranteed, never exceeded, its own for now, in use, and asked for beyond."""

    resource: str
    unit: str
    deserved: str
    limit: str
    weight: str
    fair_share: str
    allocated: str
    # Of that, what cannot be preempted.
    non_preemptible: str
    pending: str


class QueueJob(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job of a queue."""

    name: str
    priority: int
    running: int
    waiting: int
    # Why what waits does not start, and why nobody goes for it.
    reason: str = ""


class QueueUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A queue. depth: 0 at the top; problem: why it takes no jobs."""

    name: str
    title: str
    parent: str
    depth: int
    priority: int
    problem: str
    resources: tuple[QueueResource, ...]
    jobs: tuple[QueueJob, ...] = ()


def queue_usage(what_if: WhatIfCluster) -> list[QueueUsage]:
    """All queues, each before those below it, older ones first."""
    machine = what_if.machine
    book = machine.book
    book.settle_total()
    tree = book.tree
    jobs = _jobs(what_if)
    found: list[QueueUsage] = []
    seen: set[str] = set()

    def add(queue: QueueShares, depth: int) -> None:
        seen.add(queue.name)
        found.append(
            _usage(queue, depth, "" if queue.children else tree.refusal(queue.name), tuple(jobs.get(queue.name, ())))
        )
        for child in queue.children:
            add(child, depth + 1)

    for queue in tree.top():
        add(queue, 0)
    for name, queue in sorted(tree.all().items()):
        if name not in seen:
            found.append(_usage(queue, 0, tree.refusal(name), tuple(jobs.get(name, ()))))
    return found


def _jobs(what_if: WhatIfCluster) -> dict[str, list[QueueJob]]:
    machine = what_if.machine
    shortages = machine.shortages(what_if.now)
    found: dict[str, list[QueueJob]] = {}
    for job in machine.book.jobs(machine.queue.waiting_pods()).values():
        running = len(job.active())
        waiting = len(job.waiting())
        reason = shortages.get(job.key, "") if waiting else ""
        found.setdefault(job.queue, []).append(
            QueueJob(name=job.name, priority=job.priority, running=running, waiting=waiting, reason=reason)
        )
    for jobs in found.values():
        jobs.sort(key=lambda job: (-job.priority, job.name))
    return found


def _usage(queue: QueueShares, depth: int, problem: str, jobs: tuple[QueueJob, ...]) -> QueueUsage:
    return QueueUsage(
        name=queue.name,
        title=queue.title,
        parent=queue.queue.parent,
        depth=depth,
        priority=queue.queue.priority,
        problem=problem,
        resources=tuple(_resources(queue)),
        jobs=jobs,
    )


def _resources(queue: QueueShares) -> Iterator[QueueResource]:
    for resource, share in queue.shares.items():
        unit, size = unit_of(resource)
        yield QueueResource(
            resource=resource,
            unit=unit,
            deserved=number(share.deserved, size),
            limit=number(share.limit, size),
            weight=str(float(share.weight)).removesuffix(".0"),
            fair_share=number(share.fair_share, size),
            allocated=number(share.allocated, size),
            non_preemptible=number(share.allocated_firmly, size),
            pending=number(max(0, share.request - share.allocated), size),
        )


def is_of_interest(row: QueueResource) -> bool:
    """Whether a resource is bounded, used or asked for; the others are the same everywhere."""
    bounds = (row.deserved, row.limit)
    return bounds != (number(UNLIMITED), number(UNLIMITED)) or row.allocated != "0" or row.pending != "0"
