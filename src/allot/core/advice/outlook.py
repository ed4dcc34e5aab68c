"""The outlook of jobs that wait in queues if nothing changes: what the scheduler would decide, job by job.

A job starts, starts when others are gone, or waits for a reason. Whether the reason passes with time (guaranteed run times
end) is decided by looking again at that later time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from allot.core.advice.explain.wording import listed
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.scheduling import (
    CONSOLIDATE,
    OVER_LIMIT,
    PREEMPT,
    TRIALS_MAX,
    Amounts,
    Excess,
    Job,
    Nothing,
    Placement,
    Started,
    Takeover,
    Task,
    amounts_text,
    asked,
)

# How many ends of minimum run times are considered.
_LATER_MAX = 6
_ENDED_S = 1.0
# Many changes are tried: one that takes long to judge does not count as helpful.
TRIALS_OF_A_CHANGE = 64
_NO_ROOM = Nothing("no room")


class Prospect(StrEnum):
    """What a job can expect."""

    STARTS = "Starts"
    # Terminating pods hold its place.
    STARTS_SOON = "StartsSoon"
    # Others must move or leave first, and the scheduler makes them.
    MAKES_ROOM = "MakesRoom"
    REFUSED = "Refused"
    # Its queue is closed.
    CLOSED = "Closed"
    # It has too few pods to be tried.
    INCOMPLETE = "Incomplete"


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """One waiting job. pods: its pods that would get a node; action: how room is made; evicted, moved: pods of others."""

    job: Job
    prospect: Prospect
    placements: tuple[Placement, ...] = ()
    action: str = ""
    evicted: tuple[Task, ...] = ()
    moved: tuple[Task, ...] = ()
    refusal: Excess | Nothing | None = None
    closed: str = ""

    @property
    def gets_in(self) -> bool:
        """Whether it starts without others leaving."""
        return self.prospect in (Prospect.STARTS, Prospect.STARTS_SOON, Prospect.MAKES_ROOM)

    @property
    def names_of_leaving(self) -> tuple[str, ...]:
        """Pods that must move or leave first, by namespace/name."""
        return tuple(task.name for task in (*self.evicted, *self.moved))


class Later(msgspec.Struct, frozen=True):
    """When a job starts (seconds since 1970), and how."""

    at_s: float
    outlook: Outlook


def outlooks(what_if: WhatIfCluster, at_s: float | None = None, trials_max: int = TRIALS_MAX) -> dict[str, Outlook]:
    """Every job with waiting pods, by key. at_s: the assumed time; trials_max: the machine's limit."""
    machine = what_if.machine
    if not machine.book:
        return {}
    look = machine.look(what_if.now if at_s is None else at_s, trials_max)
    takeovers = {takeover.placed[0][0].job.key: takeover for takeover in look.takeovers}
    started: dict[str, list[Started]] = {}
    for each in look.started:
        started.setdefault(each.job.key, []).append(each)
    tree = machine.book.tree
    jobs = machine.jobs()
    # Of similar jobs only the first is tried: the others are refused for the same reason.
    alike = {_likeness(jobs[key]): refusal for key, refusal in look.refused.items() if key in jobs}
    found: dict[str, Outlook] = {}
    for key, job in jobs.items():
        if any(task.waits for task in job.tasks):
            refusal, closed = look.refused.get(key), tree.refusal(job.queue)
            if closed:
                found[key] = Outlook(job=job, prospect=Prospect.CLOSED, closed=closed)
            elif key in takeovers:
                found[key] = _makes_room(job, takeovers[key])
            elif key in started:
                found[key] = _starts(job, started[key], refusal)
            elif not job.is_ready():
                text = "it has fewer pods than it needs to start"
                found[key] = Outlook(job=job, prospect=Prospect.INCOMPLETE, closed=text)
            else:
                refusal = refusal or alike.get(_likeness(job), _NO_ROOM)
                found[key] = Outlook(job=job, prospect=Prospect.REFUSED, refusal=refusal)
    return found


def _likeness(job: Job) -> object:
    return job.queue, job.priority, tuple(sorted(amounts_of(job).items()))


def _makes_room(job: Job, takeover: Takeover) -> Outlook:
    return Outlook(
        job=job,
        prospect=Prospect.MAKES_ROOM,
        placements=tuple(placement for _, placement in takeover.placed),
        action=takeover.action,
        evicted=takeover.evicted,
        moved=tuple(task for task, _ in takeover.moved),
    )


def _starts(job: Job, started: Sequence[Started], refusal: Excess | Nothing | None) -> Outlook:
    soon = any(each.waits for each in started)
    return Outlook(
        job=job,
        prospect=Prospect.STARTS_SOON if soon else Prospect.STARTS,
        placements=tuple(placement for each in started for _, placement in each.placed),
        # The reason for pods above its minimum that do not fit.
        refusal=refusal,
    )


def outlook_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> Outlook | None:
    """The outlook of a pod's job for the current objects; None if it is in no queue or does not wait. This takes long
    if many jobs wait, so it is cached until an object changes."""
    if not what_if.machine.book:
        return None
    known = what_if.memo("outlooks", lambda: by_pod(outlooks(what_if)))
    return known.get(full_name(pod))


def by_pod(found: Mapping[str, Outlook]) -> dict[str, Outlook]:
    """Outlooks by the names of their jobs' pods."""
    return {task.name: outlook for outlook in found.values() for task in outlook.job.tasks}


# --- time ---


class Runtime(msgspec.Struct, frozen=True):
    """A job with a guaranteed run time. ends_s: since 1970; queue, field: where that
    can be changed."""

    job: Job
    granted_s: float
    ends_s: float
    queue: str
    field: str


def granted_runtimes(what_if: WhatIfCluster, job: Job) -> list[Runtime]:
    """Jobs that cannot be evicted for a job yet, the earliest end first."""
    machine = what_if.machine
    tree = machine.book.tree
    taker = tree.get(job.queue)
    found: list[Runtime] = []
    for other in what_if.memo("jobs", machine.jobs).values():
        active, queue = other.active(), tree.get(other.queue)
        if not active or taker is None or queue is None or not other.is_preemptible:
            continue
        is_own = other.queue == job.queue
        granted = tree.min_runtime_s(queue, None if is_own else taker)
        ends = max(task.since_s for task in active) + granted
        if granted > 0 and ends > what_if.now:
            above = {each.name for each in taker.path()}
            apart = [each.name for each in queue.path() if each.name not in above]
            level = queue.name if is_own or not apart else apart[-1]
            field = "preemptMinRuntime" if is_own else "reclaimMinRuntime"
            found.append(Runtime(other, granted, ends, level, field))
    return sorted(found, key=lambda each: (each.ends_s, each.job.key))


def after_delay(what_if: WhatIfCluster, job: Job, until_s: float) -> Outlook:
    """What a job can expect once it may evict others."""
    return outlooks(what_if, until_s + _ENDED_S, TRIALS_OF_A_CHANGE)[job.key]


def later(what_if: WhatIfCluster, job: Job, runtimes: Sequence[Runtime]) -> Later | None:
    """The first time at which a job starts because the guaranteed run time of others has ended."""
    times = list(dict.fromkeys(each.ends_s for each in runtimes))
    if len(times) > _LATER_MAX:
        times = [*times[: _LATER_MAX - 1], times[-1]]
    for at_s in times:
        found = outlooks(what_if, at_s + _ENDED_S, TRIALS_OF_A_CHANGE).get(job.key)
        if found is not None and found.gets_in:
            return Later(at_s, found)
    return None


# --- words ---


def verb_of(outlook: Outlook) -> str:
    """`reclaims from`, phrased to stand between the job and the pods that must leave."""
    return {CONSOLIDATE: "moves", PREEMPT: "preempts"}.get(outlook.action, "reclaims from")


def outlook_text(outlook: Outlook) -> str:
    """What a job can expect, in a few words."""
    match outlook.prospect:
        case Prospect.STARTS:
            waiting = len(outlook.job.waiting())
            if outlook.refusal is None or len(outlook.placements) >= waiting:
                return "starts when the scheduler gets to it"
            return f"{len(outlook.placements)} of {waiting} pods start; the others: {_why(outlook)}"
        case Prospect.STARTS_SOON:
            return "starts when terminating pods are gone"
        case Prospect.MAKES_ROOM:
            return f"{verb_of(outlook)} {listed(outlook.names_of_leaving)}"
        case _:
            return _why(outlook)


def _why(outlook: Outlook) -> str:
    refusal = outlook.refusal
    if isinstance(refusal, Nothing):
        return refusal.reason
    if refusal is None or not refusal.queue:
        return outlook.closed
    bound = "limit" if refusal.reason == OVER_LIMIT else "quota for what cannot be preempted"
    held, top, wants = (
        amounts_text({refusal.resource: each}) for each in (refusal.held, refusal.bound, refusal.wanted)
    )
    return f"{bound} of queue {refusal.queue}: {held} of {top} in use, wants {wants}"


def amounts_of(job: Job) -> Amounts:
    """What the next pods of a job ask for."""
    return asked(job.to_start())
