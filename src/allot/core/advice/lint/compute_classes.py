"""ComputeClasses: unknown classes, pools and machines, and pods that contradict their class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from allot.core.advice.lint.claims import TEMPLATE, PodSpec
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.names import is_slip
from allot.core.advice.lint.satisfiable import written_claim
from allot.core.advice.lint.source import Subject
from allot.core.advice.nearest import did_you_mean
from allot.core.advice.places import Path
from allot.core.advice.snapshot import read_object
from allot.core.allocation import ALL_FEATURES, Allocated, AllocationError, Inventory, allocate
from allot.core.autoscaling.classes import matches, priority_text, ranks
from allot.core.lifecycle.compute_class_pods import conflict, selected_class
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError
from allot.core.model.compute_classes import CLASS_LABEL, GROUP, KIND, NODE_POOL, ComputeClass, Priority
from allot.core.model.core_v1 import Node
from allot.core.model.plain import plain_text

_POOL_LABELS = (NODE_POOL, "autoscaling.allot.dev/pool")
_STEPS_MAX = 20_000


def check(context: Context) -> None:
    """Every class, and every pod that selects one."""
    classes = [subject for subject in context.subjects if (subject.group, subject.kind) == (GROUP, KIND)]
    known = {plain_text(subject.at(("metadata", "name"))) for subject in classes}
    known |= {each.metadata.name for each in context.knowledge.all(ComputeClass)}
    for spec in context.pods:
        pod = {"spec": spec.subject.at(spec.path)}
        problem = conflict(pod)
        if problem:
            path: Path = (*spec.path, "nodeSelector")
            context.report(spec.subject, "compute-class-conflict", path, problem.removeprefix("spec.nodeSelector "))
        name = selected_class(pod)
        if name and name not in known:
            path = (*spec.path, "nodeSelector", CLASS_LABEL)
            _report_class(context, spec.subject, path if spec.subject.at(path) else spec.path, name, known)
    for subject in classes:
        _check_priorities(context, subject)
    written = {found.metadata.name: found for subject in classes if (found := _typed(subject)) is not None}
    by_name = {each.metadata.name: each for each in context.knowledge.all(ComputeClass)} | written
    for spec in context.pods:
        found = by_name.get(selected_class({"spec": spec.subject.at(spec.path)}))
        if found is not None:
            _check_order(context, spec, found)


def _typed(subject: Subject) -> ComputeClass | None:
    try:
        found = read_object(subject.value)
    except DecodeError:
        return None
    return found if isinstance(found, ComputeClass) else None


# --- the order of priorities and that of alternatives ---


def _check_order(context: Context, spec: PodSpec, found: ComputeClass) -> None:
    """The first priority should provide the claim's first choice: the allocator decides, on a node of each priority."""
    for entry, path in spec.claims:
        claim = _claim(context, spec.subject.home, plain_text(entry.get("resourceClaimTemplateName")))
        if claim is None:
            continue
        order = [each.name for request in claim.spec.devices.requests for each in request.first_available]
        got = [
            (order.index(alternative), priority_text(index, priority), alternative)
            for _, index in sorted((rank, index) for index, rank in enumerate(ranks(found.spec.priorities)))
            for priority in (found.spec.priorities[index],)
            for alternative in (_alternative(context, priority, claim),)
            if alternative in order
        ]
        for (first, before, likes), (second, after, better) in pairwise(got):
            if second < first:
                message = (
                    f'{before} of ComputeClass {found.metadata.name} provides alternative "{likes}", but {after} provides '
                    f'"{better}", which the claim prefers'
                )
                fix = f"put {after} before {before}, or reorder the alternatives"
                context.report(spec.subject, "compute-class-order", path, message, fix)
                break


def _claim(context: Context, namespace: str, template: str) -> api.ResourceClaim | None:
    """The claim of a template, from the input or the cluster."""
    for subject in context.subjects:
        if (subject.kind, subject.home, subject.name) == (TEMPLATE, namespace, template):
            return written_claim(context, subject)
    found = context.knowledge.templates.get((namespace, template))
    return api.ResourceClaim(metadata=found.metadata, spec=found.spec.spec) if found is not None else None


def _alternative(context: Context, priority: Priority, claim: api.ResourceClaim) -> str:
    """The first alternative that a node of a priority satisfies; empty if no node is known or none fits."""
    knowledge = context.knowledge
    node = next((each for each in knowledge.nodes if matches(priority, _pool_of(each), each)), None)
    if node is None:
        return ""
    inventory = Inventory(features=ALL_FEATURES)
    for device_class in knowledge.classes.values():
        inventory.put_class(device_class)
    for slice_ in knowledge.slices:
        if slice_.spec.node_name == node.metadata.name:
            inventory.put_slice(slice_)
    try:
        answer = allocate(inventory, node, (claim,), steps_max=_STEPS_MAX, with_reasons=False)
    except AllocationError:
        return ""
    if not isinstance(answer, Allocated):
        return ""
    names = [result.request for each in answer.results for result in each.devices.results]
    return next((name.partition("/")[2] for name in names if "/" in name), "")


def _pool_of(node: Node) -> str:
    return next((node.metadata.labels[label] for label in _POOL_LABELS if label in node.metadata.labels), "")


def _report_class(context: Context, subject: Subject, path: Path, name: str, known: Iterable[str]) -> None:
    message, severity = f'ComputeClass "{name}" is unknown', Severity.WARNING
    if context.knowledge.is_cluster and known:
        message, severity = f'ComputeClass "{name}" does not exist: no node is added for the pod', Severity.ERROR
    elif not is_slip(name, known):
        # Without a cluster, only a likely misspelling is reported.
        return
    context.report(subject, "unknown-compute-class", path, message, did_you_mean(name, known), severity=severity)


def _check_priorities(context: Context, subject: Subject) -> None:
    nodes = context.knowledge.nodes
    pools = {node.metadata.labels[label] for node in nodes for label in _POOL_LABELS if label in node.metadata.labels}
    for path, name in _named(subject):
        # A pool may have no nodes right now, so only a likely misspelling is reported.
        if path[-2] == "nodepools" and name not in pools and is_slip(name, pools):
            message = f'no node of a pool "{name}" is known'
            context.report(subject, "unknown-node-pool", path, message, did_you_mean(name, pools))
        if path[-1] in ("machineType", "machineFamily"):
            types = context.knowledge.machines
            machines = types if path[-1] == "machineType" else {each.partition("-")[0] for each in types}
            if not _is_known(name, machines) and is_slip(name, machines):
                message = f'no machine "{name}" is known'
                context.report(subject, "unknown-machine", path, message, did_you_mean(name, machines))


def _is_known(name: str, machines: Iterable[str]) -> bool:
    """Some machine names here include their GPUs: n1-standard-8-t4x2."""
    return any(each == name or each.startswith(f"{name}-") for each in machines)


def _named(subject: Subject) -> Iterator[tuple[Path, str]]:
    priorities = subject.at(("spec", "priorities"))
    for index, priority in enumerate(priorities if isinstance(priorities, list) else ()):
        if not isinstance(priority, dict):
            continue
        place: Path = ("spec", "priorities", index)
        pools = priority.get("nodepools")
        for number, name in enumerate(pools if isinstance(pools, list) else ()):
            yield (*place, "nodepools", number), plain_text(name)
        for field in ("machineType", "machineFamily"):
            if plain_text(priority.get(field)):
                yield (*place, field), plain_text(priority[field])
