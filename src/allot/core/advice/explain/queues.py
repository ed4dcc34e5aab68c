"""Queues of teams: which jobs wait and why, and who must give back what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes.queues import shares_text
from allot.core.advice.explain.causes.volcano import not_let_in, outside, owner_of
from allot.core.advice.explain.report import Change, Explanation, GivesBack, QueueReport, Reason, State
from allot.core.advice.explain.wording import count, listed, named
from allot.core.advice.outlook import Outlook, Prospect, outlooks
from allot.core.advice.usage.queues import queue_usage
from allot.core.advice.what_if import WhatIfCluster
from allot.core.scheduling import UNLIMITED, QueueShares, Task, amounts_text, asked

# Explains a pod: why its job waits.
ExplainPod = Callable[[str, str], Explanation]
# The most informative ones first.
_TELLING = (Prospect.CLOSED, Prospect.REFUSED, Prospect.MAKES_ROOM, Prospect.STARTS_SOON, Prospect.STARTS)


def explain_queue(what_if: WhatIfCluster, queue: QueueShares, explain_pod: ExplainPod) -> Explanation:
    """Why jobs of a queue, and of its child queues, wait; the first refused one in full."""
    found = outlooks(what_if)
    below = {name for name, each in what_if.machine.book.tree.all().items() if any(up is queue for up in each.path())}
    report = _report(what_if, queue, below, found)
    waiting = [outlook for outlook in found.values() if outlook.job.queue in below]
    problem = report.path[-1].problem
    said = Explanation(
        kind="Queue",
        namespace="",
        name=queue.name,
        state=State.AS_WANTED,
        reason=Reason.AS_WANTED,
        cause="",
        queue=report,
    )
    groups = outside(what_if, below) if not waiting else []
    if groups:
        held = not_let_in(what_if, groups[0])
        verb = "waits" if len(groups) == 1 else "wait"
        cause = f"queue {queue.name}: {count(len(groups), 'job')} {verb}; {owner_of(groups[0])} has no pods because {held.text}"
        changes = tuple(Change(text=text) for text in held.advice)
        return replace(said, state=State.PENDING, reason=held.reason, cause=cause, changes=changes)
    if not waiting:
        state = State.NOT_AS_WANTED if problem else State.AS_WANTED
        reason = Reason.QUEUE_CLOSED if problem else Reason.AS_WANTED
        return replace(said, state=state, reason=reason, cause=problem or _at_rest(queue, report))
    tasks: list[Task] = [task for outlook in waiting for task in outlook.job.waiting()]
    verb = "waits" if len(waiting) == 1 else "wait"
    cause = f"queue {queue.name}: {count(len(waiting), 'job')} {verb} for {amounts_text(_bounded(queue, asked(tasks)))}"
    first = min(waiting, key=lambda each: (_rank(each), each.job.sort_key()))
    pod = first.job.waiting()[0].pod.metadata
    why = explain_pod(pod.namespace, pod.name)
    return replace(
        said,
        state=State.NOT_AS_WANTED if first.gets_in else State.PENDING,
        reason=why.reason,
        cause=f"{cause}; {why.cause}",
        details=why.details,
        changes=why.changes,
    )


def _rank(outlook: Outlook) -> int:
    return _TELLING.index(outlook.prospect) if outlook.prospect in _TELLING else len(_TELLING)


def _bounded(queue: QueueShares, amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Without resources that no queue on the path limits, unless there are no others."""
    bounds = {
        name
        for level in queue.path()
        for name, share in level.shares.items()
        if (share.deserved, share.limit) != (UNLIMITED, UNLIMITED)
    }
    return {name: amount for name, amount in amounts.items() if name in bounds} or amounts


def _report(what_if: WhatIfCluster, queue: QueueShares, below: set[str], found: Mapping[str, Outlook]) -> QueueReport:
    rows = {row.name: row for row in queue_usage(what_if, found)}
    waiting = [job for name, row in rows.items() if name in below for job in row.jobs if job.waiting]
    gives = [
        GivesBack(pod=task.name, job=outlook.job.name, queue=outlook.job.queue)
        for outlook in found.values()
        for task in outlook.evicted
        if task.job.queue in below
    ]
    path = [replace(rows[level.name], jobs=()) for level in reversed(list(queue.path()))]
    return QueueReport(path=tuple(path), waiting=tuple(waiting), gives_back=tuple(gives))


def _at_rest(queue: QueueShares, report: QueueReport) -> str:
    held = {name: share.allocated for name, share in queue.shares.items()}
    text = f"queue {queue.name}: nothing waits; it {shares_text(queue, held) if any(held.values()) else 'uses nothing'}"
    if not report.gives_back:
        return text
    return f"{text}; {_given_back(report.gives_back)}"


def _given_back(gives: Sequence[GivesBack]) -> str:
    pods = [each.pod for each in gives]
    takers = [f"{each.job} of queue {each.queue}" for each in gives]
    return f"{named('pod', pods)} must leave for {listed(takers)}"
