"""What queues of teams deserve, get, hold and wait for, and why their jobs wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allot.core.advice.outlook import Outlook, Prospect, outlook_text, outlooks
from allot.core.advice.what_if import WhatIfCluster
from allot.core.scheduling import UNLIMITED, Job, QueueShares, amounts_text, asked, number, unit_of


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
    # What those that wait ask for.
    asks: str = ""
    # What becomes of those that wait, if things stay as they are; empty if none does.
    outlook: str = ""
    reason: str = ""
    # Pods that have to move or go for it.
    leaving: tuple[str, ...] = ()


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


def queue_usage(what_if: WhatIfCluster, found: Mapping[str, Outlook] | None = None) -> list[QueueUsage]:
    """All queues, each before those below it, older ones first. found: what becomes of jobs, if that is known."""
    book = what_if.machine.book
    book.settle_total()
    tree = book.tree
    jobs = _jobs(what_if, outlooks(what_if) if found is None else found)
    rows: list[QueueUsage] = []
    seen: set[str] = set()

    def add(queue: QueueShares, depth: int) -> None:
        seen.add(queue.name)
        rows.append(
            _usage(queue, depth, "" if queue.children else tree.refusal(queue.name), tuple(jobs.get(queue.name, ())))
        )
        for child in queue.children:
            add(child, depth + 1)

    for queue in tree.top():
        add(queue, 0)
    for name, queue in sorted(tree.all().items()):
        if name not in seen:
            rows.append(_usage(queue, 0, tree.refusal(name), tuple(jobs.get(name, ()))))
    return rows


def _jobs(what_if: WhatIfCluster, found: Mapping[str, Outlook]) -> dict[str, list[QueueJob]]:
    """By queue, in the order in which a queue serves its jobs."""
    by_queue: dict[str, list[Job]] = {}
    for job in what_if.machine.jobs().values():
        by_queue.setdefault(job.queue, []).append(job)
    return {
        queue: [_job(job, found.get(job.key)) for job in sorted(jobs, key=Job.sort_key)]
        for queue, jobs in by_queue.items()
    }


def _job(job: Job, outlook: Outlook | None) -> QueueJob:
    waiting = job.waiting()
    return QueueJob(
        name=job.name,
        priority=job.priority,
        running=len(job.active()),
        waiting=len(waiting),
        asks=amounts_text({name: amount for name, amount in asked(waiting).items() if amount}) if waiting else "",
        outlook=outlook.prospect if outlook is not None else "",
        reason=outlook_text(outlook) if outlook is not None else "",
        leaving=outlook.names_of_leaving if outlook is not None else (),
    )


def strays(what_if: WhatIfCluster, found: Mapping[str, Outlook]) -> dict[str, list[str]]:
    """Jobs that wait for a queue that does not exist, by its name."""
    known = what_if.machine.book.tree.all()
    lost: dict[str, list[str]] = {}
    for outlook in found.values():
        if outlook.prospect is Prospect.CLOSED and outlook.job.queue not in known:
            lost.setdefault(outlook.job.queue, []).append(outlook.job.name)
    return lost


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


def resources_shown(rows: Sequence[QueueUsage]) -> list[str]:
    """Resources that some queue bounds; without any, those that are used or asked for. The others are the same everywhere."""
    unlimited = number(UNLIMITED)
    every = [each for row in rows for each in row.resources]
    bounded = {each.resource for each in every if (each.deserved, each.limit) != (unlimited, unlimited)}
    used = {each.resource for each in every if (each.allocated, each.pending) != ("0", "0")}
    return sorted(bounded or used or {each.resource for each in every})
