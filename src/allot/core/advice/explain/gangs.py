"""Why a gang waits: pods that start together or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.causes.early import before_scheduling, minimum_path, unequal_priority
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.queues import queue_cause, queue_note
from allot.core.advice.explain.causes.refused import refused
from allot.core.advice.explain.causes.unread import undecided
from allot.core.advice.explain.causes.volcano import not_let_in
from allot.core.advice.explain.causes.waiting import fits, scheduler_down
from allot.core.advice.explain.changes import helpful
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, delete_of, patch_of, pointer
from allot.core.advice.explain.holding import FINISHED, comes_back
from allot.core.advice.explain.moving import other_place
from allot.core.advice.explain.remedies.nodes import is_given
from allot.core.advice.explain.remedies.templates import in_template
from allot.core.advice.explain.report import Change, Explanation, Reason, State
from allot.core.advice.explain.trial import Subject, gang_subject, try_out
from allot.core.advice.explain.wording import listed, named, same_letters
from allot.core.advice.outlook import Outlook, outlook_of
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.foreign_groups import VOLCANO, VolcanoPodGroup
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling import ForeignGroup, Job, Placement, Tree, asked, minimum_of, over_limit, topology_key
from allot.core.workloads.ownership import controller_reference

# For a gang with many pods and domains, only some domains are tried: as many as add up to this many pods, but at least a few.
_PODS_TRIED_MAX = 2000
_DOMAINS_MIN = 4
_OTHERS_MAX = 4
_BARE_MAX = 16


def explain_gang(what_if: WhatIfCluster, group: PodGroup, *, briefly: bool) -> Explanation:
    """Why a gang waits. briefly: only the cause."""
    members = [
        pod for pod in what_if.all(core_v1.Pod) if what_if.group_of(pod) is group and pod.status.phase not in FINISHED
    ]
    waiting = [pod for pod in members if not pod.spec.node_name]
    if not members:
        return _without_pods(what_if, group)
    if not waiting:
        return _said(
            group, State.PLACED, Reason.PLACED, f"gang {full_name(group)}: all {len(members)} pods have a node"
        )
    of_one = what_if.machine.unit_of(full_name(waiting[0]))
    if of_one is not None and of_one.tree is not None:
        return _explain_tree(what_if, group, of_one.tree, waiting[0], briefly=briefly)
    subject = gang_subject(group, waiting)
    unit = what_if.machine.unit_of(subject.key)
    for pod in unit.pods if unit is not None else waiting:
        early = before_scheduling(what_if, pod)
        if early is not None:
            # A problem of the group is not one pod's fault.
            whose = "" if early.text.startswith("PodGroup ") else f" of pod {pod.metadata.name}:"
            cause = f"gang {full_name(group)} is pending because{whose} {early.text}"
            first = _said(group, State.PENDING, early.reason, cause)
            return first if briefly else replace(first, changes=helpful(what_if, subject, early), details=early.details)
    assert unit is not None, "pods that are waiting and not held back are tried"
    scheduled = [member.pod for member in what_if.cluster.members(group)]
    unequal = None if isinstance(group, ForeignGroup) else unequal_priority(group, [*unit.pods, *scheduled])
    if unequal is not None:
        cause = f"gang {full_name(group)} is pending because {unequal.text}"
        first = _said(group, State.PENDING, unequal.reason, cause)
        return first if briefly else replace(first, changes=helpful(what_if, subject, unequal))
    unread = undecided(what_if, waiting[0], fits=False)
    if unread is not None:
        cause = f"gang {full_name(group)} is pending: {unread.text}"
        return replace(_said(group, State.PENDING, unread.reason, cause), details=unread.details)
    outlook = outlook_of(what_if, unit.pods[0])
    by_queue = queue_cause(what_if, subject, outlook) if outlook is not None else None
    if outlook is not None and by_queue is not None:
        return _refused_by_queue(what_if, group, outlook, by_queue, subject, briefly)
    outcome = try_out(what_if, subject)
    if outcome.schedulable:
        return _fitting(what_if, group, unit.pods[0], outcome.node_of(subject))
    if outcome.failure is not None and outcome.failure.early:
        # No pod was considered: something excludes the gang as a whole.
        closed = refused(what_if, unit.pods[0], outcome.failure)[0]
        cause = f"gang {full_name(group)} is pending because {closed.text}"
        first = _said(group, State.PENDING, closed.reason, cause)
        return first if briefly else replace(first, changes=helpful(what_if, subject, closed), details=closed.details)
    return _refused(what_if, group, unit.pods, subject, outlook, briefly)


def _fitting(what_if: WhatIfCluster, group: PodGroup, pod: core_v1.Pod, node: str) -> Explanation:
    """A gang that fits, which only its scheduler has to place."""
    gang = f"gang {full_name(group)}"
    idle = scheduler_down(what_if, pod, node)
    if idle is None:
        why = fits(gang, node)
        return replace(_said(group, State.PENDING, why.reason, why.text), details=why.details)
    found = _said(group, State.PENDING, idle.reason, f"{gang} is pending because {idle.text}")
    return replace(found, changes=tuple(Change(text=each) for each in idle.advice))


def _without_pods(what_if: WhatIfCluster, group: PodGroup) -> Explanation:
    """A group whose pods have ended, or do not exist yet."""
    ended = [pod for pod in what_if.all(core_v1.Pod) if what_if.group_of(pod) is group]
    name, gang = group.metadata.name, f"gang {full_name(group)}"
    if ended:
        return _said(group, State.ENDED, Reason.ENDED, f"{gang}: all {len(ended)} pods have ended")
    asked = what_if.get(VolcanoPodGroup, name, group.metadata.namespace)
    if asked is not None and isinstance(group, ForeignGroup) and group.dialect == VOLCANO:
        why = not_let_in(what_if, asked)
        found = _said(group, State.PENDING, why.reason, f"{gang} is pending because {why.text}")
        return replace(found, changes=tuple(Change(text=text) for text in why.advice))
    maker = controller_reference(group.metadata)
    by = f" by {maker.kind} {maker.name}" if maker is not None else ""
    text = f"{gang} is pending because it has no pods yet: none of at least {minimum_of(group)} has been created{by}"
    found = _said(group, State.PENDING, Reason.GROUP_INCOMPLETE, text)
    look = f"find out why {maker.kind} {maker.name} creates no pods" if maker is not None else "create its pods"
    return replace(found, changes=(Change(text=look),))


def _refused_by_queue(
    what_if: WhatIfCluster, group: PodGroup, outlook: Outlook, diagnosis: Diagnosis, subject: Subject, briefly: bool
) -> Explanation:
    cause = f"gang {full_name(group)} is pending because {diagnosis.text}"
    found = replace(_said(group, State.PENDING, diagnosis.reason, cause), details=diagnosis.details)
    if briefly:
        return found
    number = _within_limits(what_if, outlook.job)
    if 0 < number < minimum_of(group):
        diagnosis = replace(diagnosis, candidates=(*diagnosis.candidates, _smaller(group, number)))
    return replace(found, changes=helpful(what_if, subject, diagnosis))


def _within_limits(what_if: WhatIfCluster, job: Job) -> int:
    """How many pods of a gang its queue's limits allow, including those that have a node."""
    queue, tasks = what_if.machine.book.tree.get(job.queue), job.to_start()
    if queue is None:
        return 0
    fitting = [number for number in range(len(tasks) + 1) if over_limit(queue, asked(tasks[:number])) is None]
    return len(job.active()) + max(fitting, default=0)


def _explain_tree(
    what_if: WhatIfCluster, group: PodGroup, tree: Tree, pod: core_v1.Pod, *, briefly: bool
) -> Explanation:
    """Why a group that is decided with others waits: what the scheduler reports for all of them."""
    early = before_scheduling(what_if, pod)
    if early is not None:
        cause = f"gang {full_name(group)} is pending because {early.text}"
        advice = tuple(Change(text=text) for text in early.advice)
        return replace(_said(group, State.PENDING, early.reason, cause), details=early.details, changes=advice)
    parts = "groups of CompositePodGroup" if not isinstance(group, ForeignGroup) else "parts of PodGroup"
    whole = f"it is decided with the other {parts} {full_name(tree.group)}"
    asked = what_if.machine.ask(full_name(pod), what_if.now)
    if asked is not None and asked.failure is not None and asked.failure.status is not None:
        # Its queue does not let all of them in.
        outlook = outlook_of(what_if, pod)
        subject = Subject(
            full_name(pod), tuple((each.metadata.namespace, each.metadata.name) for each in asked.unit.pods)
        )
        by_queue = queue_cause(what_if, subject, outlook) if outlook is not None else None
        text = by_queue.text if by_queue is not None else ", ".join(asked.failure.status.reasons)
        cause = f"gang {full_name(group)} is pending because {whole}, and {text}"
        found = _said(group, State.PENDING, by_queue.reason if by_queue is not None else Reason.QUEUE_LIMIT, cause)
        return found if briefly or by_queue is None else replace(found, changes=helpful(what_if, subject, by_queue))
    decision = asked.decision if asked is not None else None
    if decision is None or decision.placements:
        nodes = [each.node for each in decision.placements] if decision is not None else []
        found = _fitting(what_if, group, pod, nodes[0] if nodes else "")
        return replace(found, details=(*found.details, whole))
    root = decision.group
    text = root.message if root is not None else decision.refusals[0].message
    below = [each for each in decision.groups_below if each.status == "False" and each.message != text]
    details = [f"{_named(each.group)}: {each.message}" for each in below]
    details += [root.explanation] if root is not None and root.explanation else []
    cause = f"gang {full_name(group)} is pending because {whole}, and {text}"
    found = _said(group, State.PENDING, Reason.GANG, cause)
    failed = [each.group for each in below if isinstance(each.group, PodGroup)]
    first = next((each for each in failed if each is group), failed[0] if failed else group)
    pods = [each.pod for each in decision.refusals if what_if.group_of(each.pod) is first]
    done = _pass(what_if, first, pods) if pods else None
    if done is None or done.diagnosis is None:
        return replace(found, details=tuple(details))
    cause = f"{cause}: {done.diagnosis.text}"
    found = replace(found, cause=cause, details=(*done.diagnosis.details, *details))
    if briefly:
        return found
    subject = Subject(full_name(pod), tuple((each.metadata.namespace, each.metadata.name) for each in pods))
    diagnosis = replace(done.diagnosis, reason=Reason.GANG)
    return replace(found, changes=helpful(what_if, subject, diagnosis))


def _named(group: PodGroup | CompositePodGroup) -> str:
    part = getattr(group, "part", "")
    return f"part {part} of PodGroup {full_name(group)}" if part else f"PodGroup {full_name(group)}"


class _Tried(NamedTuple):
    """The result of one pass over a gang's pods: how many get a node, and why the first one without a node does not."""

    placed: int
    diagnosis: Diagnosis | None
    placing: Placing | None
    report: Explanation | None
    # The only nodes considered, if not all.
    among: tuple[str, ...] = ()


def _pass(
    what_if: WhatIfCluster,
    group: PodGroup,
    waiting: Sequence[core_v1.Pod],
    among: Collection[str] | None = None,
    *,
    briefly: bool = True,
) -> _Tried:
    """Place as many pods as possible; the first failure gives the reason. among: the only nodes to consider."""
    diagnosis: Diagnosis | None = None
    placing: Placing | None = None
    report: Explanation | None = None
    with what_if.cluster.trying() as tried:
        for pod in waiting:
            result = what_if.machine.consider_member(pod, group, what_if.now, among)
            if isinstance(result, Placement):
                what_if.cluster.assume(result)
                tried.append(result)
            elif diagnosis is None:
                diagnosis, placing = refused(what_if, pod, result)
                # Changes that were tried for it may have placed the gang's pods again, and have taken them back.
                for placement in tried:
                    if not what_if.cluster.is_assumed(placement.pod):
                        what_if.cluster.assume(placement)
                if placing is not None and not briefly:
                    report = replace(
                        _said(group, State.PENDING, Reason.GANG, ""),
                        requests=placing.requests(),
                        nodes=placing.groups(),
                        nearest=placing.miss(),
                    )
        return _Tried(what_if.cluster.scheduled_count(group), diagnosis, placing, report)


def _refused(
    what_if: WhatIfCluster,
    group: PodGroup,
    waiting: Sequence[core_v1.Pod],
    subject: Subject,
    outlook: Outlook | None,
    briefly: bool,
) -> Explanation:
    key = topology_key(group) if what_if.settings.topology_placements else ""
    needed = minimum_of(group)
    if key:
        done, text = _in_one_domain(what_if, group, waiting, key)
        candidates = [_without_domain(group, key)]
        left_out = _left_out(what_if, group, waiting, key, done)
        if left_out:
            verb = "has" if len(left_out) == 1 else "have"
            text += f"; {named('node', left_out)}, which would do, {verb} no label {key} and so {'is' if verb == 'has' else 'are'} left out"
            candidates += _labelled(what_if, key, left_out, done.among)
        candidates += [] if briefly else _cleared(what_if, group, waiting[0], done.among)
    else:
        done = _pass(what_if, group, waiting, briefly=briefly)
        some = f"only {done.placed}" if done.placed else "none"
        why = done.diagnosis.text if done.diagnosis is not None else _message(what_if, subject)
        text = f"{some} of the {needed} pods that it needs at once can be placed: {why}"
        candidates = []
    cause = f"gang {full_name(group)} is pending because {text}"
    found = replace(
        done.report or _said(group, State.PENDING, Reason.GANG, ""),
        cause=cause,
        details=done.diagnosis.details if done.diagnosis is not None else (),
        node_count=len(what_if.cluster.nodes),
    )
    if briefly:
        return found
    found = replace(found, details=(*found.details, *_proof(what_if, subject)))
    if outlook is not None:
        found = replace(found, details=(*found.details, *queue_note(what_if, outlook)))
    candidates += map(_for_all, done.diagnosis.candidates) if done.diagnosis is not None else ()
    if done.placed:
        candidates.append(_smaller(group, done.placed))
    advice = done.diagnosis.advice if done.diagnosis is not None else ()
    diagnosis = Diagnosis(reason=Reason.GANG, text=text, candidates=tuple(candidates), advice=advice)
    return replace(found, changes=in_template(what_if, waiting[0], helpful(what_if, subject, diagnosis)))


def _for_all(candidate: Candidate) -> Candidate:
    """Asking for less changes what a whole gang computes, so removing a few other pods comes first."""
    return replace(candidate, rank=Rank.OTHERS + 2) if candidate.rank == Rank.FEWER else candidate


def _message(what_if: WhatIfCluster, subject: Subject) -> str:
    """What the scheduler reports for a gang whose pods each fit alone."""
    asked = what_if.machine.ask(subject.key, what_if.now)
    decision = asked.decision if asked is not None else None
    if decision is None:
        return "the scheduler refuses it as a whole"
    return decision.group.message if decision.group is not None else listed(each.message for each in decision.refusals)


def _proof(what_if: WhatIfCluster, subject: Subject) -> tuple[str, ...]:
    """The result of the scheduler's search for all pods at once: no arrangement exists, or it does not know."""
    asked = what_if.machine.ask(subject.key, what_if.now)
    if asked is None or asked.decision is None or asked.decision.group is None:
        return ()
    return (asked.decision.group.explanation,) if asked.decision.group.explanation else ()


def _in_one_domain(
    what_if: WhatIfCluster, group: PodGroup, waiting: Sequence[core_v1.Pod], key: str
) -> tuple[_Tried, str]:
    """A gang whose nodes must share a label: the pass in the domain with the most room."""
    domains: dict[str, list[str]] = {}
    for name, info in what_if.cluster.nodes.items():
        if key in info.labels:
            domains.setdefault(info.labels[key], []).append(name)
    rule = f"its pods need nodes with the same {key}"
    if not domains:
        return _Tried(0, None, None, None), f"{rule}, and no node has that label"
    number = max(_DOMAINS_MIN, _PODS_TRIED_MAX // len(waiting))
    some = sorted(domains)[:number]
    passes = {value: _pass(what_if, group, waiting, frozenset(domains[value])) for value in some}
    bare = [name for name, info in what_if.cluster.nodes.items() if key not in info.labels]
    best = max(passes, key=lambda value: (passes[value].placed, _likeness(bare, domains[value])))
    done = passes[best]
    return done._replace(among=tuple(domains[best])), (
        f"{rule}, and no value of it has room for {minimum_of(group)} of them: {best} has the most, for {done.placed} "
        f"({named('node', domains[best])})"
    )


def _likeness(names: Sequence[str], others: Sequence[str]) -> int:
    """How alike the names of nodes begin."""
    if not others or len(names) > _BARE_MAX:
        return 0
    return max((same_letters(name, others[0]) for name in names), default=0)


def _left_out(
    what_if: WhatIfCluster, group: PodGroup, waiting: Sequence[core_v1.Pod], key: str, done: _Tried
) -> list[str]:
    """As few nodes as would be enough, beside those of the domain that has most room, if they had its label."""
    nodes = what_if.cluster.nodes
    bare = [name for name, info in nodes.items() if key not in info.labels]
    if not done.among or done.placed >= minimum_of(group) or len(bare) > _BARE_MAX:
        return []
    # What stands together is often named alike.
    like = nodes[done.among[0]].name
    bare.sort(key=lambda name: -same_letters(name, like))
    chosen: list[str] = []
    most = done.placed
    for name in bare:
        placed = _pass(what_if, group, waiting, frozenset((*done.among, *chosen, name))).placed
        if placed > most:
            chosen, most = [*chosen, name], placed
        if most >= minimum_of(group):
            return chosen
    return []


def _labelled(what_if: WhatIfCluster, key: str, names: Sequence[str], among: Sequence[str]) -> Iterator[Candidate]:
    """Nodes get the label of a domain, which is right if that is where they are. Labels that clouds set are no one's to set."""
    if is_given(key):
        return
    value = what_if.cluster.nodes[among[0]].labels[key]
    operation = {"op": "add", "path": f"/metadata/labels/{pointer(key)}", "value": value}
    patches = tuple(patch_of("Node", name, operation) for name in names)
    where = "if that is where it is" if len(names) == 1 else "if that is where they are"
    text = f"label {named('node', names)} with {key}={value}, {where}"
    yield Candidate(rank=Rank.FIX, text=text, patches=patches)


def _cleared(what_if: WhatIfCluster, group: PodGroup, pod: core_v1.Pod, names: Collection[str]) -> Iterator[Candidate]:
    """Other pods in the domain with the most room, one at a time; those that also fit elsewhere come first."""
    own = pod.spec.priority or 0
    others = [
        each.pod
        for name in sorted(names)
        for each in what_if.cluster.nodes[name].pods.values()
        if each.priority <= own
        and not comes_back(each.pod)
        and each.pod.metadata.deletion_timestamp is None
        and what_if.group_of(each.pod) is not group
        and bool(each.pod.spec.resource_claims) >= bool(pod.spec.resource_claims)
    ]
    others.sort(key=lambda each: (each.spec.priority or 0, full_name(each)))
    for other in others[:_OTHERS_MAX]:
        place = other_place(what_if, other, names)
        fits_too = f" (it also fits on node {place})" if place else ""
        yield Candidate(
            rank=Rank.OTHERS - 1 if place else Rank.ADMIN,
            text=f"delete pod {full_name(other)} on node {other.spec.node_name}{fits_too}, or wait until it ends",
            patches=(delete_of("Pod", other.metadata.name, other.metadata.namespace),),
        )


def _without_domain(group: PodGroup, key: str) -> Candidate:
    namespace, name = group.metadata.namespace, group.metadata.name
    field = "topologyConstraint" if isinstance(group, ForeignGroup) else "schedulingConstraints"
    operation = {"op": "remove", "path": f"/spec/{field}"}
    patch = patch_of("PodGroup", name, operation, namespace=namespace, recreate=True)
    return Candidate(
        rank=Rank.DROP, text=f"drop the topology constraint on {key} from PodGroup {name}", patches=(patch,)
    )


def _smaller(group: PodGroup, number: int) -> Candidate:
    namespace, name = group.metadata.namespace, group.metadata.name
    path, field = minimum_path(group)
    operation = {"op": "replace", "path": path, "value": number}
    patch = patch_of("PodGroup", name, operation, namespace=namespace)
    return Candidate(rank=Rank.ADMIN, text=f"lower {field} of PodGroup {name} to {number}", patches=(patch,))


def _said(group: PodGroup, state: State, reason: Reason, cause: str) -> Explanation:
    metadata = group.metadata
    return Explanation(
        kind="PodGroup", namespace=metadata.namespace, name=metadata.name, state=state, reason=reason, cause=cause
    )
