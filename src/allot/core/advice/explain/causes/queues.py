"""Jobs that wait because of their queue: it is closed, at its limit, or waits for others to give back what they borrowed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from allot.core.advice.explain.diagnosis import Candidate, Diagnosis
from allot.core.advice.explain.remedies import queues as remedies
from allot.core.advice.explain.remedies.templates import workload_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import Subject
from allot.core.advice.explain.wording import duration, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.outlook import (
    Outlook,
    Prospect,
    Runtime,
    after_delay,
    amounts_of,
    granted_runtimes,
    later,
    verb_of,
)
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.lifecycle.times import seconds_of
from allot.core.model.foreign_groups import KaiPodGroup
from allot.core.scheduling import (
    CONSOLIDATE,
    OVER_LIMIT,
    PREEMPT,
    UNLIMITED,
    Excess,
    Job,
    Nothing,
    QueueShares,
    amounts_text,
    asked,
    over_limit,
)

# A scheduler that makes room does so within seconds of its report.
_TOLD_MIN_S = 300


def queue_cause(what_if: WhatIfCluster, subject: Subject, outlook: Outlook) -> Diagnosis | None:
    """Why a job waits if its queue is the cause; None if it starts, or fits nowhere regardless of its queue."""
    match outlook.prospect:
        case Prospect.CLOSED:
            return _closed(what_if, outlook)
        case Prospect.MAKES_ROOM:
            return _makes_room(what_if, outlook)
        case Prospect.REFUSED if isinstance(outlook.refusal, Excess):
            return _excess(what_if, outlook.job, outlook.refusal)
        case Prospect.REFUSED:
            return _refused(what_if, subject, outlook)
        case _:
            return None


def queue_note(what_if: WhatIfCluster, outlook: Outlook) -> tuple[str, ...]:
    """The state of the queue, for a job that does not fit for another reason."""
    if outlook.prospect is not Prospect.REFUSED or not isinstance(outlook.refusal, Nothing):
        return ()
    what = "whether others could make room is " if outlook.refusal.is_undecided else "others do not make room for it: "
    return (f"it is in queue {outlook.job.queue} ({_shares(what_if, outlook.job)}); {what}{outlook.refusal.reason}",)


# --- a closed queue ---


def _closed(what_if: WhatIfCluster, outlook: Outlook) -> Diagnosis:
    job, tree = outlook.job, what_if.machine.book.tree
    known = tree.all()
    open_ = [name for name in sorted(known) if not tree.refusal(name)]
    candidates: list[Candidate] = []
    hint = ""
    here = known.get(job.queue)
    if here is None:
        meant = nearest(job.queue, open_)
        hint = f' (did you mean "{meant}"?)' if meant is not None else ""
        candidates += [remedies.elsewhere(what_if, job, name) for name in ([meant] if meant is not None else open_[:2])]
    elif here.children:
        below = [name for name in open_ if any(each is here for each in known[name].path())]
        candidates += [remedies.elsewhere(what_if, job, name) for name in below[:2]]
    else:
        closed = next((each.name for each in here.path() if each.queue.closed), "")
        candidates += remedies.opened(what_if, closed) if closed else remedies.at_the_top(what_if, job.queue)
    advice = (f"create Queue {job.queue}",) if here is None and job.queue else ()
    return Diagnosis(
        reason=Reason.QUEUE_CLOSED, text=f"{outlook.closed}{hint}", candidates=tuple(candidates), advice=advice
    )


# --- others make room ---


def _makes_room(what_if: WhatIfCluster, outlook: Outlook) -> Diagnosis:
    job = outlook.job
    who = listed(outlook.names_of_leaving)
    why = {
        CONSOLIDATE: "others move to another place so that it fits",
        PREEMPT: f"it has a higher priority than others of queue {job.queue}",
    }.get(outlook.action, f"queue {job.queue} gets back what it is entitled to")
    text = f"others have to make room first: {why}; it {verb_of(outlook)} {who}"
    details = [f"queue {job.queue} {_shares(what_if, job)}"]
    others: dict[str, Job] = {task.job.queue: task.job for task in outlook.evicted if task.job.queue != job.queue}
    details += [f"queue {name} {_shares(what_if, other)}" for name, other in others.items()]
    queue = what_if.machine.book.tree.get(job.queue)
    over = over_limit(queue, amounts_of(job)) if queue is not None else None
    if over is not None:
        return _room_below_limit(what_if, outlook, over, details)
    details.append("no action is needed: the scheduler evicts them when it next processes the queues")
    return Diagnosis(reason=Reason.QUEUE_MAKES_ROOM, text=text, details=tuple(details))


def _room_below_limit(what_if: WhatIfCluster, outlook: Outlook, over: Excess, details: list[str]) -> Diagnosis:
    """Others leave only because a limit is reached: a higher one spares them, and helps if the scheduler does not evict them."""
    found = _excess(what_if, outlook.job, over)
    leaving = f"it {verb_of(outlook)} {listed(outlook.names_of_leaving)}"
    since_s = _told_since(what_if, outlook.job, over)
    if since_s >= _TOLD_MIN_S:
        details.append(
            f"by the shares of the queues {leaving}, but the scheduler has reported the limit for {duration(since_s)} and has not done so"
        )
        return replace(found, details=tuple(details))
    details.append("no action is needed: the scheduler evicts them when it next processes the queues")
    text = f"{found.text}; so others have to make room first: {leaving}"
    return replace(found, reason=Reason.QUEUE_MAKES_ROOM, text=text, details=tuple(details))


def _told_since(what_if: WhatIfCluster, job: Job, over: Excess) -> int:
    """For how many seconds the scheduler has reported that a job is over a limit; 0 if it does not say so."""
    namespace, _, name = job.name.partition("/")
    group = what_if.get(KaiPodGroup, name, namespace)
    told = [
        each.last_transition_time
        for each in (group.status.scheduling_conditions if group is not None else ())
        if each.reason == over.reason or any(reason.reason == over.reason for reason in each.reasons)
    ]
    told += [
        each.last_transition_time
        for task in job.waiting()
        for each in task.pod.status.conditions
        if each.type == "PodScheduled" and each.status == "False" and over.message in each.message
    ]
    if what_if.taken_at is None:
        return 0
    return max((int(what_if.taken_at - seconds_of(each)) for each in told if each), default=0)


# --- bounds ---


def _excess(what_if: WhatIfCluster, job: Job, over: Excess) -> Diagnosis:
    tree = what_if.machine.book.tree
    queue, level = tree.get(job.queue), tree.get(over.queue)
    assert queue is not None and level is not None, f"{over.queue} is above {job.name}"
    request = amounts_of(job)
    whose = f"queue {level.name}" + ("" if level is queue else f" above queue {queue.name}")
    bound, held, wants = (amounts_text({over.resource: each}) for each in (over.bound, over.held, over.wanted))
    if over.reason == OVER_LIMIT:
        users = _users(what_if, level, over.resource, job)
        text = f"the limit of {whose} is {bound}, it uses {held}{f' ({listed(users)})' if users else ''}, and {job.name} wants {wants} more"
        unset = remedies.without_limit(what_if, over.queue, over.resource)
        if unset is not None:
            field = f"spec.resources.{over.resource}.limit"
            text = f"{whose} does not set {field}, which counts as 0: it gets none, and {job.name} wants {wants}"
            return Diagnosis(reason=Reason.QUEUE_LIMIT, text=text, candidates=(unset,))
        candidate = remedies.higher(what_if, remedies.LIMIT, queue, request)
        return Diagnosis(
            reason=Reason.QUEUE_LIMIT, text=text, candidates=(candidate,), advice=_wait_for(level, job, users)
        )
    text = (
        f"{job.name} cannot be preempted, and such pods must stay within the quota: {whose} has {bound}, non-preemptible pods use "
        f"{held}, and it wants {wants}"
    )
    candidates = (remedies.preemptible(job), remedies.higher(what_if, remedies.QUOTA, queue, request, firmly=True))
    return Diagnosis(reason=Reason.QUEUE_QUOTA, text=text, candidates=candidates)


def _users(what_if: WhatIfCluster, level: QueueShares, resource: str, job: Job) -> list[str]:
    """The workloads that use a resource of a queue or of queues below it, those that use the most first: `Job a/train`."""
    tree = what_if.machine.book.tree

    def found() -> list[tuple[str, str]]:
        used: dict[tuple[str, str], int] = {}
        for other in what_if.machine.jobs().values():
            queue, tasks = tree.get(other.queue), other.active()
            amount = asked(tasks).get(resource, 0) if tasks else 0
            if not amount or queue is None or all(each is not level for each in queue.path()):
                continue
            pod = tasks[0].pod
            kind, _, name = workload_of(what_if, pod).partition(" ")
            spoken = f"{kind} {pod.metadata.namespace}/{name}" if name else f"pod {full_name(pod)}"
            used[spoken, other.name] = used.get((spoken, other.name), 0) + amount
        return sorted(used, key=lambda each: (-used[each], each))

    users = what_if.memo(f"users of {resource} in queue {level.name}", found)
    return list(dict.fromkeys(spoken for spoken, name in users if name != job.name))


def _wait_for(level: QueueShares, job: Job, users: list[str]) -> tuple[str, ...]:
    request = amounts_of(job)
    fits = all(
        share.limit == UNLIMITED or request.get(resource, 0) <= share.limit for resource, share in level.shares.items()
    )
    if len(users) == 1:
        return (f"wait until {users[0]} ends, or stop it",) if fits else ()
    if not users:
        return (f"wait until jobs of queue {level.name} end",) if fits else ()
    return (f"wait until enough of these end: {listed(users)}",) if fits else ()


# --- rights ---


def _refused(what_if: WhatIfCluster, subject: Subject, outlook: Outlook) -> Diagnosis | None:
    refusal = outlook.refusal
    if isinstance(refusal, Nothing) and refusal.until_s > what_if.now:
        after = after_delay(what_if, outlook.job, refusal.until_s)
        if after.gets_in:
            return _too_early(what_if, outlook.job, refusal.until_s, after)
        outlook = after
    return _too_young(what_if, outlook) or _no_right(what_if, subject, outlook)


def _too_early(what_if: WhatIfCluster, job: Job, until_s: float, after: Outlook) -> Diagnosis:
    """Others would make room, but its group delays preemption."""
    name = job.name.partition("/")[2]
    wait_s = max(1, round(until_s - what_if.now))
    text = (
        f"others have to make room for it, and PodGroup {name} preempts nothing before its preemptionDelay is over; "
        f"in {duration(wait_s)} {job.name} {verb_of(after)} {listed(after.names_of_leaving)}"
    )
    return Diagnosis(
        reason=Reason.PREEMPTION_DELAY,
        text=text,
        details=(f"queue {job.queue} {_shares(what_if, job)}",),
        candidates=tuple(remedies.without_delay(what_if, job)),
        advice=(f"wait {duration(wait_s)}",),
    )


def _too_young(what_if: WhatIfCluster, outlook: Outlook) -> Diagnosis | None:
    """Others would have to leave, but have not had their guaranteed run time yet."""
    runtimes = granted_runtimes(what_if, outlook.job)
    found = later(what_if, outlook.job, runtimes) if runtimes else None
    if found is None:
        return None
    leaving = {task.job.key for task in found.outlook.evicted}
    young = [each for each in runtimes if each.job.key in leaving] or runtimes[:1]
    last = young[-1]
    wait_s = max(1, round(found.at_s - what_if.now))
    text = (
        f"{_who(young)} of queue {last.job.queue} may run for {duration(round(last.granted_s))} before others take "
        f"{'its' if len(young) == 1 else 'their'} place ({last.field} of queue {last.queue}); in {duration(wait_s)} "
        f"{outlook.job.name} {verb_of(found.outlook)} {listed(found.outlook.names_of_leaving)}"
    )
    fields = {each.queue: each.field for each in young}
    candidates = tuple(remedies.shorter_runtime(what_if, fields))
    return Diagnosis(
        reason=Reason.MINIMUM_RUNTIME,
        text=text,
        details=(f"queue {outlook.job.queue} {_shares(what_if, outlook.job)}",),
        candidates=candidates,
        advice=(f"wait {duration(wait_s)}",),
    )


def _who(young: list[Runtime]) -> str:
    return named("pod", [task.name for each in young for task in each.job.active()])


def _no_right(what_if: WhatIfCluster, subject: Subject, outlook: Outlook) -> Diagnosis | None:
    """It would fit without other jobs, but none of them has to leave; None if it would not fit."""
    job, refusal = outlook.job, outlook.refusal
    queue = what_if.machine.book.tree.get(job.queue)
    assert queue is not None and isinstance(refusal, Nothing), "a queue that takes jobs is there"
    if not what_if.memo(_shape(what_if, job), lambda: _fits_alone(what_if, subject, job)):
        return None
    text = (
        f"others hold what it needs, and queue {queue.name} is not entitled to it: {refusal.reason} "
        f"({_shares(what_if, job)})"
    )
    quota = remedies.higher(what_if, remedies.QUOTA, queue, amounts_of(job))
    return Diagnosis(reason=Reason.QUEUE_SHARE, text=text, candidates=(quota,) if quota.patches else ())


def _fits_alone(what_if: WhatIfCluster, subject: Subject, job: Job) -> bool:
    """Whether a job would fit without any other job of a queue."""
    others = [task.pod for other in what_if.machine.jobs().values() for task in other.active() if other.key != job.key]
    with what_if.cluster.without(others, anew=True):
        alone = what_if.machine.ask(subject.key, what_if.now)
        return alone is not None and what_if.machine.has_enough(alone)


def _shape(what_if: WhatIfCluster, job: Job) -> str:
    """A key that is equal for jobs with the same answer, of which there may be thousands."""
    parts: list[object] = []
    for task in job.to_start():
        claims = [what_if.claims.claim(*id_) for id_ in what_if.claims.claims_of(task.pod)]
        specs = [(claim.spec, claim.status.allocation) if claim is not None else None for claim in claims]
        parts.append((what_if.cluster.profiles.of(task.pod).key, specs))
    return f"fits alone: {job.queue} {parts!r}"


def _shares(what_if: WhatIfCluster, job: Job) -> str:
    """What a queue has of what a job asks for: `uses 8 GPUs, deserves 2 GPUs, fair share 4 GPUs`."""
    queue = what_if.machine.book.tree.get(job.queue)
    return shares_text(queue, amounts_of(job) or _held(queue)) if queue is not None else "does not exist"


def _held(queue: QueueShares | None) -> Mapping[str, int]:
    return {name: share.allocated for name, share in queue.shares.items()} if queue is not None else {}


def shares_text(queue: QueueShares, of: Mapping[str, int]) -> str:
    """A queue's use, deserved amount and fair share of some resources, preferably bounded ones."""
    shares = {name: share for name, share in queue.shares.items() if of.get(name)}
    bounded = {name: share for name, share in shares.items() if share.deserved != UNLIMITED} or shares
    uses = amounts_text({name: share.allocated for name, share in bounded.items()})
    deserves = amounts_text({name: share.deserved for name, share in bounded.items()})
    fair = amounts_text({name: share.fair_share for name, share in bounded.items()})
    return f"uses {uses}, deserves {deserves}, fair share {fair}"


def with_note(what_if: WhatIfCluster, diagnosis: Diagnosis, outlook: Outlook | None) -> Diagnosis:
    """A cause outside the queue, with the queue's state."""
    if outlook is None:
        return diagnosis
    return replace(diagnosis, details=(*diagnosis.details, *queue_note(what_if, outlook)))
