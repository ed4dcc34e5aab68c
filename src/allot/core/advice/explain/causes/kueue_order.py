"""The order in which Kueue admits workloads: by priority, then by age. With queueingStrategy StrictFIFO, one that does not fit holds back
all that come after it, whether they fit or not; with BestEffortFIFO, it does not."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.causes.kueue_quotas import Held, Need, needs_of, user_of
from allot.core.advice.explain.wording import joined, listed, one_line
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.times import seconds_of
from allot.core.model import observed_v1

_STRICT, _BEST_EFFORT = "StrictFIFO", "BestEffortFIFO"
# Kueue waits no longer for these: they are started or done.
_PAST = ("QuotaReserved", "Admitted", "Finished")
# After these evictions a workload is as old as its eviction (Kueue's workload.Ordering).
_AGED_BY_EVICTION = ("PodsReadyTimeout", "AdmissionCheck")
# The only workload that StrictFIFO does not keep at the head (Kueue's RequeueReasonNamespaceMismatch).
_OUTSIDE = "namespace doesn't match ClusterQueue selector"
_EVICTING = "Pending the preemption"
_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


def is_to_come(what_if: WhatIfCluster, time: str) -> bool:
    """Whether a time is after the snapshot."""
    try:
        return what_if.taken_at is not None and seconds_of(time) > what_if.taken_at
    except ValueError:
        return False


def refusal_of(workload: observed_v1.KueueWorkload) -> str:
    """Why Kueue did not admit a workload when it was its turn; empty if it does not say."""
    said = (each.message for each in workload.status.conditions if each.type in _PAST[:2] and each.status == "False")
    return next((one_line(each) for each in said if each), "")


def behind_another(
    what_if: WhatIfCluster, workload: observed_v1.KueueWorkload, queue: observed_v1.ClusterQueue
) -> Held | None:
    """A workload that waits behind the head of its ClusterQueue; None if it is the head itself, if the strategy is another one, or if
    Kueue has refused it for a reason of its own."""
    if queue.spec.queueing_strategy != _STRICT:
        return None
    line = what_if.memo("kueue lines", lambda: _lines(what_if)).get(queue.metadata.name, [])
    head = line[0] if line else workload
    if _place(head) >= _place(workload) or not _is_waiting(what_if, workload):
        return None
    own = needs_of(what_if, workload, queue)
    lacking = [each for each in own if not each.fits]
    if refusal_of(workload) and (lacking or not own):
        return None
    return _behind(workload, queue, head, needs_of(what_if, head, queue), own)


def _lines(what_if: WhatIfCluster) -> dict[str, list[observed_v1.KueueWorkload]]:
    """What waits, by ClusterQueue, in Kueue's order."""
    found: dict[str, list[observed_v1.KueueWorkload]] = {}
    for workload in what_if.all(observed_v1.KueueWorkload):
        local = what_if.get(observed_v1.LocalQueue, workload.spec.queue_name, workload.metadata.namespace)
        if local is not None and local.spec.stop_policy in ("", "None") and _is_waiting(what_if, workload):
            found.setdefault(local.spec.cluster_queue, []).append(workload)
    return {queue: sorted(line, key=_place) for queue, line in found.items()}


def _is_waiting(what_if: WhatIfCluster, workload: observed_v1.KueueWorkload) -> bool:
    status = workload.status
    if (
        workload.spec.active is False
        or status.admission is not None
        or workload.metadata.deletion_timestamp is not None
    ):
        return False
    for each in status.conditions:
        if (each.type in _PAST and each.status == "True") or (each.type == "Requeued" and each.status == "False"):
            return False
    later = status.requeue_state.requeue_at if status.requeue_state is not None else None
    return not (later and is_to_come(what_if, later)) and _OUTSIDE not in refusal_of(workload)


def _place(workload: observed_v1.KueueWorkload) -> tuple[int, str, bool, str, str]:
    """By what Kueue orders. Of two of the same age, the one that Kueue has tried comes first."""
    metadata = workload.metadata
    evicted = [
        str(each.last_transition_time or "")
        for each in workload.status.conditions
        if each.type == "Evicted" and each.status == "True" and each.reason in _AGED_BY_EVICTION
    ]
    since = next(iter(evicted), "") or str(metadata.creation_timestamp or "")
    return -(workload.spec.priority or 0), since, not refusal_of(workload), metadata.uid, metadata.name


def _behind(
    workload: observed_v1.KueueWorkload,
    queue: observed_v1.ClusterQueue,
    head: observed_v1.KueueWorkload,
    needs: Sequence[Need],
    own: Sequence[Need],
) -> Held:
    """needs: of the head; own: of the workload itself."""
    name, first = f"ClusterQueue {queue.metadata.name}", user_of(head)
    large = [each for each in needs if not each.fits]
    said = refusal_of(head)
    state = f"is not admitted ({said})" if said else "has not been admitted yet"
    state = f"does not fit ({_lack(large)})" if large else state
    priority, lower = head.spec.priority or 0, workload.spec.priority or 0
    before = f"has priority {priority} instead of {lower}" if priority != lower else "is older"
    text = (
        f"{name} has queueingStrategy: {_STRICT}, and {first} at its head, which {before}, {state}: nothing behind it is "
        "admitted"
    )
    withdraw = _withdraw(head, first, large[0].users if large else ())
    lacking = [each for each in own if not each.fits]
    if lacking:
        text += f", and this one does not fit either ({_lack(lacking)})"
        room = " and ".join(f"nominalQuota of {each.resource}" for each in lacking)
        return Held(text, f"wait until others of the queue end, or raise {room} in {name}", (withdraw,))
    same = next((each for each in own if large and each.resource == large[0].resource), None)
    needed = f" (it needs {same.asked} {same.resource})" if same is not None else ""
    text += f", not even this one, which would fit{needed}" if own else ""
    effort = (
        f"set queueingStrategy: {_BEST_EFFORT} in {name}, so that Kueue admits what fits; then {first} may wait longer"
    )
    sooner = (
        f"give {user_of(workload)} a WorkloadPriorityClass with a value above {priority} (label {_PRIORITY_LABEL}), so that it "
        f"comes before {first}"
    )
    if _EVICTING in said:
        return Held(text, f"wait a moment: Kueue evicts others for {first}", (effort, sooner))
    if not large and not said:
        metadata = head.metadata
        look = f"see what Kueue says about it: kubectl describe workloads.kueue.x-k8s.io -n {metadata.namespace} {metadata.name}"
        return Held(text, f"wait until Kueue has admitted {first}, or {look}", (effort, sooner))
    enough = [f"nominalQuota of {each.resource} in {name} to {each.enough}" for each in large]
    more = (f"raise {joined(enough)}, so that {first} fits, if the nodes have as much",) if enough else ()
    return Held(text, effort, (sooner, withdraw, *more))


def _lack(needs: Sequence[Need]) -> str:
    """`it needs 8 gpus of flavor a100, and 4 are unused`."""
    facts = [f"{each.asked} {each.resource} of flavor {each.flavor}, and {each.unused} are unused" for each in needs]
    return f"it needs {'; '.join(facts)}"


def _withdraw(head: observed_v1.KueueWorkload, first: str, users: Sequence[str]) -> str:
    """How the head makes way."""
    ends = f"wait until {listed(users)} {'ends' if len(users) == 1 else 'end'} and {first} is admitted" if users else ""
    patch = '{"spec":{"active":false}}'
    metadata = head.metadata
    stop = f"kubectl patch workloads.kueue.x-k8s.io {metadata.name} -n {metadata.namespace} --type merge -p '{patch}'"
    return f"{f'{ends}, or' if ends else f'ask for less in {first}, or'} withdraw {first}: {stop}"
