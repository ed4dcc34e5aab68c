"""Kueue's quotas in numbers: what a ClusterQueue has, who uses it, and what others of its cohort have borrowed or may lend."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allot.core.advice.explain.wording import joined, listed
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1, observed_v1
from allot.core.model.batch_v1 import Job
from allot.core.quantity import Quantity, QuantityError

_INSUFFICIENT = re.compile(
    r"insufficient (?:unused )?quota (?:in cohort )?for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), (?P<more>\S+) more needed"
)
_NEVER = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), (?:previously considered podsets requests \((?P<before>[^)]+)\) \+ "
    r"current podset )?request \(?(?P<asked>[^\s)]+)\)? > maximum capacity \((?P<most>[^)]+)\)"
)
_NO_RECLAIM, _LOWER = ("", "Never"), "LowerPriority"


class Held(NamedTuple):
    """Why a queue manager holds something back. text: phrased to follow a colon; empty if it gives no reason. others: further advice."""

    text: str
    advice: str
    others: tuple[str, ...] = ()


class _User(NamedTuple):
    """An admitted workload. name: `Job ml/train`; since: when it got its quota."""

    name: str
    used: int
    priority: int
    since: str


class _Share:
    """What a ClusterQueue has of one resource in one flavor, in billionths."""

    def __init__(
        self, queue: observed_v1.ClusterQueue, row: observed_v1.FlavorResource, used: int, users: list[_User]
    ) -> None:
        self.queue = queue
        self.row = row
        self.nominal = row.nominal_quota.nano
        self.used = used
        self.users = users

    @property
    def name(self) -> str:
        return f"ClusterQueue {self.queue.metadata.name}"

    @property
    def lendable(self) -> int:
        """What others may borrow now."""
        free = max(self.nominal - self.used, 0)
        return free if self.row.lending_limit is None else min(free, self.row.lending_limit.nano)

    def text(self, amount: int) -> str:
        return str(Quantity.from_nano(amount, self.row.nominal_quota.format))

    @property
    def by(self) -> str:
        """` by Job ml/train`."""
        return f" by {listed(user.name for user in self.users)}" if self.users else ""


class _Wanted(NamedTuple):
    """What a workload lacks. asked: in all, with what others have left; more: as Kueue says."""

    resource: str
    flavor: str
    asked: int
    more: int
    priority: int


def short_of_quota(
    what_if: WhatIfCluster, workload: observed_v1.KueueWorkload, queue: observed_v1.ClusterQueue | None, said: str
) -> Held | None:
    """Kueue's message about a quota, with the numbers of the ClusterQueue and its cohort; None if they are unknown."""
    never = _NEVER.search(said)
    short = _INSUFFICIENT.search(said)
    if queue is None or (short or never) is None:
        return None
    found = short or never
    assert found is not None, "one of them was found"
    resource, flavor = found["resource"], found["flavor"]
    own = _share(what_if, queue, resource, flavor)
    if own is None:
        return None
    try:
        if never is not None:
            return _beyond(what_if, workload, own, resource, never)
        more = Quantity.parse(found["more"]).nano
    except QuantityError:
        return None
    others = _cohort(what_if, own, resource, flavor)
    asked = _asked(workload, resource) or _room(own, others) + more
    wanted = _Wanted(resource, flavor, asked, more, workload.spec.priority or 0)
    if own.used + asked <= own.nominal and any(each.used > each.nominal for each in others):
        return _borrowed(own, others, wanted)
    return _too_little(what_if, own, others, wanted)


def _asked(workload: observed_v1.KueueWorkload, resource: str) -> int:
    """What a workload asks for in all, as its status says; 0 if it does not."""
    return sum(
        each.resources[resource].nano for each in workload.status.resource_requests if resource in each.resources
    )


def _room(own: _Share, others: list[_Share]) -> int:
    """What a queue could use now: what is left of its own quota, and what it may borrow of what others lend. Kueue says what is lacking beyond."""
    left = own.nominal - own.used
    lent = sum(each.lendable for each in others) - sum(max(each.used - each.nominal, 0) for each in others)
    limit = own.row.borrowing_limit
    return max(left + lent, 0) if limit is None else max(min(left + limit.nano, left + lent), 0)


def cohort_of(queue: observed_v1.ClusterQueue) -> str:
    """The cohort of a queue; empty if none."""
    return queue.spec.cohort_name or queue.spec.cohort


def _share(what_if: WhatIfCluster, queue: observed_v1.ClusterQueue, resource: str, flavor: str) -> _Share | None:
    rows = [
        row
        for group in queue.spec.resource_groups
        for each in group.flavors
        for row in each.resources
        if (each.name, row.name) == (flavor, resource)
    ]
    used = [
        row.total.nano
        for each in (*queue.status.flavors_reservation, *queue.status.flavors_usage)
        for row in each.resources
        if (each.name, row.name) == (flavor, resource)
    ]
    if not rows or not used:
        return None
    return _Share(queue, rows[0], used[0], _users(what_if, queue.metadata.name, resource, flavor))


def _cohort(what_if: WhatIfCluster, own: _Share, resource: str, flavor: str) -> list[_Share]:
    """The others in the cohort of a queue."""
    name = cohort_of(own.queue)
    return [each for each in _elsewhere(what_if, own, resource, flavor) if name and cohort_of(each.queue) == name]


def _elsewhere(what_if: WhatIfCluster, own: _Share, resource: str, flavor: str) -> list[_Share]:
    queues = sorted(what_if.all(observed_v1.ClusterQueue), key=lambda each: each.metadata.name)
    shares = [_share(what_if, each, resource, flavor) for each in queues if each is not own.queue]
    return [each for each in shares if each is not None]


def _users(what_if: WhatIfCluster, queue: str, resource: str, flavor: str) -> list[_User]:
    """What is admitted in a ClusterQueue with some of a resource in a flavor, the largest first."""
    return what_if.memo("kueue users", lambda: _all_users(what_if)).get((queue, resource, flavor), [])


def _all_users(what_if: WhatIfCluster) -> dict[tuple[str, str, str], list[_User]]:
    """What is admitted, by ClusterQueue, resource and flavor."""
    found: dict[tuple[str, str, str], list[_User]] = {}
    for workload in what_if.all(observed_v1.KueueWorkload):
        admission = workload.status.admission
        finished = any(each.type == "Finished" and each.status == "True" for each in workload.status.conditions)
        if admission is None or finished:
            continue
        since = max(
            (
                str(each.last_transition_time or "")
                for each in workload.status.conditions
                if each.type == "QuotaReserved"
            ),
            default="",
        )
        used: dict[tuple[str, str], int] = {}
        for each in admission.pod_set_assignments:
            for resource, amount in each.resource_usage.items():
                place = resource, each.flavors.get(resource, "")
                used[place] = used.get(place, 0) + amount.nano
        for (resource, flavor), total in used.items():
            if total:
                user = _User(user_of(workload), total, workload.spec.priority or 0, since)
                found.setdefault((admission.cluster_queue, resource, flavor), []).append(user)
    return {place: sorted(users, key=lambda each: (-each.used, each.name)) for place, users in found.items()}


def user_of(workload: observed_v1.KueueWorkload) -> str:
    """What a workload stands for: `Job ml/train`."""
    owner = next(iter(workload.metadata.owner_references), None)
    return (
        f"{owner.kind} {workload.metadata.namespace}/{owner.name}"
        if owner is not None
        else f"Workload {full_name(workload)}"
    )


# --- what is unused ---


class Need(NamedTuple):
    """What a workload asks for of one resource, and what is unused of it in a flavor. users: who uses the rest, if it would be enough."""

    resource: str
    flavor: str
    asked: str
    unused: str
    fits: bool
    # The nominalQuota that would be enough.
    enough: str
    users: tuple[str, ...]


def needs_of(
    what_if: WhatIfCluster, workload: observed_v1.KueueWorkload, queue: observed_v1.ClusterQueue
) -> list[Need]:
    """What a waiting workload asks for, of what its ClusterQueue has a quota for: what does not fit first, in the flavors in which most
    fits. None of it if the status of either does not say."""
    asked = {
        resource: amount
        for each in workload.status.resource_requests
        for resource in each.resources
        if (amount := _asked(workload, resource))
    }
    found: list[Need] = []
    for group in queue.spec.resource_groups:
        in_flavors = [
            [
                _need(what_if, own, flavor.name, amount)
                for resource, amount in asked.items()
                if (own := _share(what_if, queue, resource, flavor.name)) is not None
            ]
            for flavor in group.flavors
        ]
        found += min(in_flavors, key=lambda needs: sum(not each.fits for each in needs), default=[])
    return sorted(found, key=lambda each: each.fits)


def _need(what_if: WhatIfCluster, own: _Share, flavor: str, asked: int) -> Need:
    others = _cohort(what_if, own, own.row.name, flavor)
    unused = _room(own, others)
    return Need(
        resource=own.row.name,
        flavor=flavor,
        asked=own.text(asked),
        unused=own.text(unused),
        fits=asked <= unused,
        enough=own.text(own.nominal + max(asked - unused, 0)),
        users=tuple(user.name for user in own.users) if others or asked <= own.nominal else (),
    )


# --- what others have borrowed ---


def _borrowed(own: _Share, others: list[_Share], wanted: _Wanted) -> Held:
    """A queue whose own quota would be enough, but that others have borrowed."""
    borrowers = [each for each in others if each.used > each.nominal]
    policy = own.queue.spec.preemption.reclaim_within_cohort
    facts = [
        f"{each.name} has borrowed {each.text(each.used - each.nominal)} {wanted.resource} of flavor {wanted.flavor} in cohort "
        f"{cohort_of(own.queue)} (nominalQuota {each.text(each.nominal)}, {each.text(each.used)} in use{each.by})"
        for each in borrowers
    ]
    users = [user for each in borrowers for user in each.users]
    lower = [user for user in users if user.priority < wanted.priority]
    takes = policy not in _NO_RECLAIM and (policy != _LOWER or bool(lower))
    leaving = _evicted(lower if takes and policy == _LOWER else users, wanted.more)
    who = joined([user.name for user in leaving]) if leaving else f"workloads of {borrowers[0].name}"
    field = "preemption.reclaimWithinCohort"
    if takes:
        why = f"and takes them back ({field}: {policy})"
    elif policy == _LOWER:
        why = (
            f"but with {field}: {_LOWER} it takes them back only from workloads with a priority below {wanted.priority}"
        )
    else:
        why = f"but with {field}: Never it does not take them back"
    text = (
        f"{joined(facts)}; {own.name} has nominalQuota {own.text(own.nominal)}, of which {own.text(own.used)} are in use{own.by}, and it "
        f"needs {own.text(wanted.asked)}, which is within its quota, {why}"
    )
    ends = f"stop {who}, or wait until {'it ends' if len(leaving) == 1 else 'they end'}"
    if takes:
        return Held(text, f"wait a moment: Kueue evicts {who} for it", (ends,))
    limits = (
        f"so that others cannot borrow it again: set lendingLimit of {wanted.resource} in {own.name}, or borrowingLimit in "
        f"{borrowers[0].name}"
    )
    change = f"set {field}: Any in {own.name}, so that Kueue evicts {who} for it"
    return Held(text, change, (ends, limits))


def _evicted(users: list[_User], enough: int) -> list[_User]:
    """Whom Kueue would evict: those of the lowest priority, and of these the ones that came last."""
    by_age = sorted(users, key=lambda each: (each.since, each.name), reverse=True)
    found: list[_User] = []
    for user in sorted(by_age, key=lambda each: each.priority):
        if sum(each.used for each in found) < enough:
            found.append(user)
    return found


# --- a quota that is too small ---


def _too_little(what_if: WhatIfCluster, own: _Share, others: list[_Share], wanted: _Wanted) -> Held:
    resource, flavor = wanted.resource, wanted.flavor
    text = (
        f"{own.name} has nominalQuota {own.text(own.nominal)} of {resource} in flavor {flavor}, of which {own.text(own.used)} are in "
        f"use{own.by}, and it needs {own.text(wanted.asked)}"
    )
    enough = own.text(max(own.nominal, own.used) + wanted.more)
    ends = f"{own.users[0].name} ends" if len(own.users) == 1 else "others of the queue end"
    advice = f"raise nominalQuota of {resource} in {own.name} to {enough}, or wait until {ends}"
    over = own.used + wanted.asked - own.nominal
    limit = own.row.borrowing_limit
    if others and limit is not None and over > limit.nano:
        free = sum(each.lendable for each in others)
        text += f"; it may borrow {limit} in cohort {cohort_of(own.queue)} (borrowingLimit)"
        lenders = [each.name for each in others if each.lendable]
        text += f", where {own.text(free)} of {listed(lenders)} are idle" if lenders else ""
        higher = f"raise borrowingLimit of {resource} in {own.name} to {own.text(over)}"
        return Held(text, higher, (advice,)) if free >= over else Held(text, advice)
    if others:
        return _nothing_to_borrow(own, others, wanted, text, advice)
    idle = [each for each in _elsewhere(what_if, own, resource, flavor) if each.lendable >= over]
    if not idle or cohort_of(own.queue):
        return Held(text, advice)
    lender, name = idle[0], cohort_of(idle[0].queue)
    text += (
        f"; it is in no cohort, so it cannot borrow the {lender.text(lender.lendable)} that {lender.name} does not use"
    )
    joint = f"let it borrow: set cohortName: {name} in {own.name}, as in {lender.name}"
    if not name:
        joint = f"let it borrow: set the same cohortName in {own.name} and {lender.name}"
    return Held(text, advice, (joint,))


def _nothing_to_borrow(own: _Share, others: list[_Share], wanted: _Wanted, text: str, advice: str) -> Held:
    """A queue that would have to borrow more than its cohort lends."""
    over = own.used + wanted.asked - own.nominal
    cohort = cohort_of(own.queue)
    keepers = [each for each in others if each.nominal - each.used > each.lendable]
    free = sum(each.lendable for each in others)
    kept = sum(max(each.nominal - each.used, 0) for each in keepers)
    if keepers and free + kept >= over:
        lender = keepers[0]
        text += (
            f"; {lender.name} of its cohort {cohort} does not use {lender.text(lender.nominal - lender.used)}, but lends only "
            f"{lender.row.lending_limit} (lendingLimit)"
        )
        return Held(text, advice, (f"raise lendingLimit of {wanted.resource} in {lender.name}",))
    busy = [f"{each.name} uses {each.text(each.used)} of {each.text(each.nominal)}{each.by}" for each in others]
    text += f"; cohort {cohort} has {own.text(free) if free else 'nothing'} left to borrow: {listed(busy)}"
    return Held(text, advice)


def _beyond(
    what_if: WhatIfCluster, workload: observed_v1.KueueWorkload, own: _Share, resource: str, said: re.Match[str]
) -> Held:
    """More than a queue could ever admit, with all that it may borrow."""
    asked = Quantity.parse(said["asked"]).nano + (Quantity.parse(said["before"]).nano if said["before"] else 0)
    most = said["most"]
    limit = own.row.borrowing_limit
    cohort = cohort_of(own.queue)
    borrows = (
        f" and borrowingLimit {limit}" if limit is not None and cohort else f" in cohort {cohort}" if cohort else ""
    )
    text = (
        f"it asks for {own.text(asked)} {resource}, and {own.name} may admit at most {most} of flavor {said['flavor']} (nominalQuota "
        f"{own.text(own.nominal)}{borrows})"
    )
    raised = own.text(own.nominal + asked - Quantity.parse(most).nano)
    fewer = _fewer_pods(what_if, workload, asked, Quantity.parse(most).nano)
    less = f"{fewer} {resource}" if fewer else f"ask for at most {most} {resource}"
    return Held(text, less, (f"raise nominalQuota of {resource} in {own.name} to {raised}",))


def _fewer_pods(what_if: WhatIfCluster, workload: observed_v1.KueueWorkload, asked: int, most: int) -> str:
    """How a Job of equal pods asks for no more than a queue may admit; empty if not even one of its pods does, or for other kinds."""
    owner = next((each for each in workload.metadata.owner_references if each.kind == "Job"), None)
    job = what_if.get(Job, owner.name, workload.metadata.namespace) if owner is not None else None
    number = job.spec.parallelism or 1 if job is not None else 1
    each, rest = divmod(asked, number)
    if job is None or rest or not 1 <= most // each < number:
        return ""
    return f"set parallelism: {most // each} in Job {job.metadata.name}, which then asks for {Quantity.from_nano(each * (most // each))}"


def too_much(found: observed_v1.ClusterQueue | None, containers: Iterable[core_v1.Container]) -> Held | None:
    """More than the ClusterQueue could ever admit by itself."""
    if found is None or cohort_of(found):
        return None
    quotas: dict[str, int] = {}
    for group in found.spec.resource_groups:
        for flavor in group.flavors:
            for row in flavor.resources:
                quotas[row.name] = max(quotas.get(row.name, 0), row.nominal_quota.nano)
    for resource, asked in _requests(containers).items():
        queue = f"ClusterQueue {found.metadata.name}"
        if resource not in quotas:
            return Held(f"{queue} has no quota for {resource}", f"give {queue} a nominalQuota for {resource}")
        if asked > quotas[resource]:
            most = Quantity.from_nano(quotas[resource])
            return Held(
                f"it asks for {Quantity.from_nano(asked)} {resource}, and {queue} may admit {most}",
                f"ask for at most {most} {resource}, or raise the nominalQuota of {queue}",
            )
    return None


def _requests(containers: Iterable[core_v1.Container]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for container in containers:
        for name, amount in container.resources.requests.items():
            found[name] = found.get(name, 0) + amount.nano
    return found
