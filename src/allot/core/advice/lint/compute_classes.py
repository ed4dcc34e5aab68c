"""ComputeClasses: classes and pools that lead nowhere, machines that do not exist, pods that contradict their class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.names import is_slip
from allot.core.advice.lint.source import Subject
from allot.core.advice.nearest import did_you_mean
from allot.core.advice.places import Path
from allot.core.lifecycle.compute_class_pods import conflict, selected_class
from allot.core.model.compute_classes import CLASS_LABEL, GROUP, KIND, NODE_POOL, ComputeClass
from allot.core.model.plain import plain_text

_POOL_LABELS = (NODE_POOL, "autoscaling.allot.dev/pool")


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


def _report_class(context: Context, subject: Subject, path: Path, name: str, known: Iterable[str]) -> None:
    message, severity = f'ComputeClass "{name}" is not known', Severity.WARNING
    if context.knowledge.is_cluster and known:
        message, severity = f'ComputeClass "{name}" does not exist: no node is bought for the pod', Severity.ERROR
    elif not is_slip(name, known):
        # Without a cluster it is only known to be missing if it looks like a slip.
        return
    context.report(subject, "unknown-compute-class", path, message, did_you_mean(name, known), severity=severity)


def _check_priorities(context: Context, subject: Subject) -> None:
    nodes = context.knowledge.nodes
    pools = {node.metadata.labels[label] for node in nodes for label in _POOL_LABELS if label in node.metadata.labels}
    for path, name in _named(subject):
        # A pool may have no node just now; so only what looks like a slip is.
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
    """Some machines have their GPUs in their names here: n1-standard-8-t4x2."""
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
