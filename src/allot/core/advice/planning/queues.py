"""Planning with queues: how many copies a queue is entitled to start, and how that changes with a larger quota.

Copies are added to the cluster as waiting pods, younger than all others, and the scheduler processes all queues: who starts, who
makes room. So other waiting jobs compete with them, as in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from allot.core.advice.explain.remedies.queues import LIMIT, QUOTA, bounds_set
from allot.core.advice.explain.wording import joined
from allot.core.advice.nearest import nearest
from allot.core.advice.outlook import Outlook, by_pod, outlook_text, outlooks
from allot.core.advice.patches import Patch
from allot.core.advice.planning.changes import ChangeError, with_objects
from allot.core.advice.planning.copies import Copy, Manifest
from allot.core.advice.planning.filling import create_objects, delete_objects
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.usage.queues import QueueUsage, queue_usage
from allot.core.advice.what_if import WhatIfCluster, as_json, full_name
from allot.core.model.meta import ObjectMeta
from allot.core.patching import json_patch
from allot.core.quantity import Quantity, QuantityError
from allot.core.scheduling import UNLIMITED, ObjectChange, QueueShares

# How many copies are tried in queues; each is a separate job.
COPIES_MAX = 256
# Later than everything that already waits.
_LAST = "9999-12-31T23:59:59Z"
_MILLI_NANO = 10**6
_ONE = 10**9


class QueueResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a queue can start. copies: how many start if others give back what they borrowed; leaving: pods that must leave or move for
    that; blocked: why not one more, empty if no more were requested."""

    queue: str
    copies: int
    leaving: tuple[str, ...] = ()
    blocked: str = ""


def queue_of(what_if: WhatIfCluster, manifest: Manifest) -> str:
    """The queue of a manifest's pods; empty if they have none, or there are no queues."""
    if not what_if.machine.book:
        return ""
    copy = manifest.copy(0)
    create_objects(what_if, copy)
    try:
        return what_if.machine.book.queue_of(copy.pods[0])
    finally:
        delete_objects(what_if, copy)


def by_right(what_if: WhatIfCluster, manifest: Manifest, limit: int) -> QueueResult | None:
    """How many copies start if others give back what they must; None without a queue."""
    queue = queue_of(what_if, manifest)
    if not queue:
        return None
    copies: list[Copy] = []
    try:
        wanted = 1
        while True:
            copies += _waiting(what_if, manifest, range(len(copies), wanted))
            found = by_pod(outlooks(what_if))
            result = _result(queue, [_of_copy(found, copy) for copy in copies])
            if result.blocked or wanted >= min(limit, COPIES_MAX):
                return result
            wanted = min(2 * wanted, limit, COPIES_MAX)
    finally:
        for copy in copies:
            for pod in copy.pods:
                what_if.machine.apply(ObjectChange(pod, None), 0.0)
            delete_objects(what_if, copy)


def _waiting(what_if: WhatIfCluster, manifest: Manifest, numbers: range) -> Iterator[Copy]:
    """Copies that wait in the cluster."""
    for number in numbers:
        made = manifest.copy(number)
        foreign = made.foreign
        copy = replace(
            made,
            pods=tuple(replace(pod, metadata=_last(pod.metadata)) for pod in made.pods),
            group=replace(made.group, metadata=_last(made.group.metadata)) if made.group is not None else None,
            foreign=replace(foreign, metadata=_last(foreign.metadata)) if foreign is not None else None,
        )
        create_objects(what_if, copy)
        for pod in copy.pods:
            what_if.machine.apply(ObjectChange(None, pod), 0.0)
        yield copy


def _last(metadata: ObjectMeta) -> ObjectMeta:
    return replace(metadata, creation_timestamp=_LAST)


def _of_copy(found: dict[str, Outlook], copy: Copy) -> list[Outlook | None]:
    """One per gang."""
    return [found.get(full_name(pod)) for pod in (copy.pods[:1] if copy.group is not None else copy.pods)]


def _result(queue: str, found: list[list[Outlook | None]]) -> QueueResult:
    """Copies are equal and the youngest jobs, so those that start precede those that do not."""
    leaving: dict[str, None] = {}
    done, blocked = 0, ""
    for each in found:
        lacking = [outlook for outlook in each if outlook is None or not outlook.gets_in]
        if lacking:
            first = lacking[0]
            blocked = blocked or (outlook_text(first) if first is not None else "it is not tried")
            continue
        done += 1
        leaving |= dict.fromkeys(name for outlook in each if outlook is not None for name in outlook.names_of_leaving)
    return QueueResult(queue=queue, copies=done, leaving=tuple(leaving), blocked=blocked)


# --- all that waits ---


class QueuesResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All queues with their jobs. waiting: jobs with waiting pods; starting: those of them that start if others give back what they
    must."""

    waiting: int
    starting: int
    queues: tuple[QueueUsage, ...]


def all_waiting(what_if: WhatIfCluster) -> QueuesResult:
    """The outlook of all jobs that wait in queues."""
    found = outlooks(what_if)
    return QueuesResult(
        waiting=len(found),
        starting=sum(outlook.gets_in for outlook in found.values()),
        queues=tuple(queue_usage(what_if, found)),
    )


# --- queues that are entitled to more ---


def raised(snapshot: Snapshot, text: str) -> Snapshot:
    """The cluster with a larger quota for a queue and its parents: `training:gpu=16`. Limits rise by the same amount, so
    that they do not interfere. ChangeError."""
    name, colon, rest = text.partition(":")
    resource, equals, number = rest.rpartition("=")
    if not (name and colon and resource and equals):
        raise ChangeError(f"--raise {text}: expected QUEUE:RESOURCE=AMOUNT, such as training:gpu=16")
    what_if = WhatIfCluster(snapshot)
    what_if.machine.book.settle_total()
    tree = what_if.machine.book.tree
    queue = tree.get(name)
    if queue is None:
        meant = nearest(name, sorted(tree.all()))
        hint = f"; did you mean {meant}?" if meant is not None else ""
        raise ChangeError(f"--raise {text}: queue {name} does not exist{hint}")
    more = _amount(text, resource, number)
    patches = [patch for level in queue.path() for patch in _higher(what_if, level, resource, more)]
    if not patches:
        counted = [each for each, share in queue.shares.items() if share.deserved != UNLIMITED]
        known = joined(counted) if counted else "none"
        raise ChangeError(f"--raise {text}: queue {name} has no quota of {resource}; it has quotas of: {known}")
    changed: dict[str, Any] = {}
    for patch in patches:
        before = changed.get(patch.name) or as_json(what_if.named(patch))
        changed[patch.name] = json_patch(before, list(patch.patch))
    return with_objects(snapshot, [read_object(value) for value in changed.values()])


def _amount(text: str, resource: str, number: str) -> int:
    try:
        nano = Quantity.parse(number.removeprefix("+")).nano
    except QuantityError as error:
        raise ChangeError(f"--raise {text}: {number!r} is not an amount: {error}") from None
    if nano <= 0:
        raise ChangeError(f"--raise {text}: the amount is {number}: expected more than 0")
    return nano // _MILLI_NANO * _ONE if resource == "cpu" else nano


def _higher(what_if: WhatIfCluster, level: QueueShares, resource: str, more: int) -> Iterator[Patch]:
    share = level.shares.get(resource)
    for field, bound in ((QUOTA, share.deserved), (LIMIT, share.limit)) if share is not None else ():
        if bound != UNLIMITED:
            yield from bounds_set(what_if, level.name, field, {resource: bound + more})
