"""An explanation as lines of text. The first line is the cause; the rest are details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allot.core.advice.explain.report import (
    Change,
    Explanation,
    Holder,
    NearestMiss,
    NodeGroup,
    QueueReport,
    Reason,
    RequestReport,
    State,
)
from allot.core.advice.explain.wording import count, duration, listed, of_several
from allot.core.advice.usage.queues import resources_shown
from allot.core.explain import numbered

_GROUPS_MAX = 8
_REMOVED_MAX = 6
_NAMES_MAX = 3
_JOBS_MAX = 12
# For these, nothing can or need be tried.
_NOT_TRIED = (Reason.WAITS_FOR_ROOM, Reason.FITS, Reason.UNUSED, Reason.BEING_DELETED, Reason.QUEUE_MAKES_ROOM)


def lines(found: Explanation) -> Iterator[str]:
    """The whole explanation."""
    yield found.cause
    for detail in found.details:
        yield f"  {detail}"
    if found.queue is not None:
        yield from _queue(found.queue)
    yield from _changes(found.changes)
    if found.state is State.PENDING and found.reason not in _NOT_TRIED and not found.changes:
        yield ""
        yield "No small change to the objects of this cluster helps."
    if found.autoscaler:
        yield ""
        yield "The autoscaler:"
        for told in found.autoscaler:
            yield f"  {told}"
    for request in found.requests:
        yield from _request(request)
    yield from _nodes(found)
    if found.nearest is not None and _is_news(found, found.nearest):
        yield ""
        device = f", device {found.nearest.device}" if found.nearest.device else ""
        yield f"Nearest miss: node {found.nearest.node}{device}"
        for reason in found.nearest.reasons:
            yield f"  {reason}"
    if found.devices:
        yield ""
        yield "Devices:"
        for used in found.devices:
            yield f"  {used.device}   claim {used.claim}, request {used.request}"
    if found.scheduler_said:
        yield ""
        yield f"The scheduler said: {found.scheduler_said}"


def _queue(report: QueueReport) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("QUEUE", "RESOURCE", "DESERVED", "LIMIT", "FAIR SHARE", "ALLOCATED", "PENDING")]
    shown = resources_shown(report.path)
    for depth, level in enumerate(report.path):
        for each in level.resources:
            if each.resource in shown:
                bounds = ("-" if bound == "unlimited" else bound for bound in (each.deserved, each.limit))
                name = f"{'  ' * depth}{level.name}"
                rows.append((name, each.resource, *bounds, each.fair_share, each.allocated, each.pending))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield ""
    for row in rows:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    waiting = [
        f"{job.name} (priority {job.priority}, {count(job.waiting, 'pod')}, {job.asks}): {job.reason}"
        for job in report.waiting
    ]
    yield from _some("Waiting jobs:", waiting)
    gives = [f"{each.pod}, for {each.job} of queue {each.queue}" for each in report.gives_back]
    yield from _some("Must give back:", gives)


def _some(title: str, told: Sequence[str]) -> Iterator[str]:
    """The first of several lines under a title; nothing if there are none."""
    if told:
        yield ""
        yield title
        yield from (f"  {line}" for line in told[:_JOBS_MAX])
        if len(told) > _JOBS_MAX:
            yield f"  and {len(told) - _JOBS_MAX} more"


def _is_news(found: Explanation, nearest: NearestMiss) -> bool:
    """Whether the nearest miss has numbers that its group of nodes does not have."""
    return bool(nearest.reasons) and all(nearest.reasons != group.reasons for group in found.nodes)


def _changes(changes: tuple[Change, ...]) -> Iterator[str]:
    verified = [change for change in changes if change.verified and not change.waits]
    waits = [change for change in changes if change.waits]
    others = [change for change in changes if not change.verified]
    # What happens by itself comes first only if no change is smaller.
    if waits and changes[0].waits:
        yield from _waits(waits)
    if verified:
        yield ""
        yield "What helps, smallest change first (each was tried on this snapshot and led to a placement):"
        for number, change in enumerate(verified, 1):
            yield f"  {number}. {change.text}{_where(change)}"
            if change.expression:
                yield f"       {change.expression}"
    if waits and not changes[0].waits:
        yield from _waits(waits)
    if others:
        yield ""
        yield "What may help (cannot be tried on a snapshot):"
        for change in others:
            yield f"  - {change.text}"


def _waits(changes: Sequence[Change]) -> Iterator[str]:
    yield ""
    yield "What happens anyway (tried as if it had happened, and led to a placement):"
    for change in changes:
        yield f"  - {change.text}{_where(change)}"


def _where(change: Change) -> str:
    return f"   -> node {change.node}" if change.node else ""


def _request(request: RequestReport) -> Iterator[str]:
    needed = "all devices" if not request.needed else count(request.needed, "device")
    yield ""
    what = request.resource or f'Request "{request.request}" of claim {request.claim}'
    yield f"{what} needs {needed} of class {request.device_class}:"
    verb = "is" if request.devices == 1 else "are"
    if request.published:
        yield f"  {request.devices} of {count(request.published, 'device')} in the cluster {verb} in the class"
    else:
        yield "  no node of the cluster has any devices"
    for removed in request.removed[:_REMOVED_MAX]:
        more_nodes = removed.node_count - len(removed.nodes)
        more_text = f" and {count(more_nodes, 'more node')}" if more_nodes else ""
        where = f" ({', '.join(removed.nodes)}{more_text})" if removed.nodes else ""
        yield f"  {numbered(removed.count, removed.text)}{where}"
    more = len(request.removed) - _REMOVED_MAX
    if more > 0:
        yield f"  and {more} more reasons"
    if request.free:
        most = f" on node {request.most_free_node}"
        if request.free_nodes > 1:
            most = f" on {request.free_nodes} nodes, at most {request.most_free} on one (node {request.most_free_node})"
        yield f"  {request.free} {'is' if request.free == 1 else 'are'} free{most}"
    if request.together:
        yield f"  but not together: {request.together}"
    for holder in request.holders:
        yield f"  {_holder(holder)}"


def _holder(holder: Holder) -> str:
    pods = f" for pod {listed(holder.pods)}" if holder.pods else ", used by no pod"
    pods += f" (pod {listed(holder.gone)} is gone)" if holder.gone else ""
    since = f", for {duration(holder.seconds)}" if holder.seconds is not None else ""
    return f"held by claim {holder.claim}: {count(holder.devices, 'device')}{pods}{since}"


def _nodes(found: Explanation) -> Iterator[str]:
    # What all nodes have in common has been said by then.
    if not found.nodes or (len(found.nodes) == 1 and found.state is State.PENDING):
        return
    yield ""
    others = sum(group.count for group in found.nodes)
    which = f"Other nodes ({others} of" if found.state is State.PLACED else "Nodes ("
    yield f"{which}{' ' if found.state is State.PLACED else ''}{found.node_count} in the cluster):"
    for group in found.nodes[:_GROUPS_MAX]:
        yield f"  {_group(group)}"
    more = found.nodes[_GROUPS_MAX:]
    if more:
        yield f"  and {sum(group.count for group in more)} nodes for {count(len(more), 'other reason')}"


def _group(group: NodeGroup) -> str:
    more = group.count - len(group.nodes[:_NAMES_MAX])
    names = ", ".join(group.nodes[:_NAMES_MAX]) + (f" and {more} more" if more else "")
    reasons = (
        ["; ".join(map(of_several, reason.split("; "))) for reason in group.reasons]
        if group.count > 1
        else group.reasons
    )
    fine = f"nothing is wrong with {'it' if group.count == 1 else 'them'}"
    return f"{group.count} ({names}): {'; '.join(reasons) or fine}"
