"""Queues: dangling names, and contradictory quotas and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.names import is_slip
from allot.core.advice.lint.source import Subject
from allot.core.advice.nearest import did_you_mean
from allot.core.advice.places import Path
from allot.core.advice.snapshot import read_object
from allot.core.model.codec import DecodeError
from allot.core.model.go_durations import go_seconds
from allot.core.model.plain import plain_text
from allot.core.model.team_queues import KAI_GROUP, VOLCANO_GROUP
from allot.core.scheduling import QUEUE_KINDS, QUEUE_LABEL, UNLIMITED, VOLCANO_QUEUE, Queue, amounts_text

_GROUPS = (KAI_GROUP, VOLCANO_GROUP)
# Where objects name a queue, by API group and kind.
_NAMING: Mapping[tuple[str, str], Path] = {
    (KAI_GROUP, "Queue"): ("spec", "parentQueue"),
    (KAI_GROUP, "PodGroup"): ("spec", "queue"),
    (VOLCANO_GROUP, "Queue"): ("spec", "parent"),
    (VOLCANO_GROUP, "PodGroup"): ("spec", "queue"),
    ("batch.volcano.sh", "Job"): ("spec", "queue"),
}
_RUNTIMES = ("preemptMinRuntime", "reclaimMinRuntime")
# The root of Volcano's tree, which always exists.
_ROOT = "root"


class _Written(msgspec.Struct, frozen=True):
    """A queue of the input, and where it is."""

    queue: Queue
    subject: Subject

    def place(self, resource: str, field: str) -> Path:
        """Where its quota or limit of a resource is."""
        if self.subject.group == KAI_GROUP:
            return "spec", "resources", resource, field
        return "spec", {"quota": "deserved", "limit": "capability"}[field], resource


def check(context: Context) -> None:
    """Every queue, and every name of one."""
    written = {found.queue.name: found for subject in context.subjects for found in _written(context, subject)}
    known = {queue.name: queue for queue in context.knowledge.queues} | {
        name: found.queue for name, found in written.items()
    }
    for subject, path, name in _named(context):
        _check_name(context, subject, path, name, known)
    for found in written.values():
        _check_limit(context, found)
    for name, queue in known.items():
        _check_children(context, queue, [each for each in known.values() if each.parent == name], written)


def _written(context: Context, subject: Subject) -> Iterator[_Written]:
    """An object as a queue; None if it cannot be read, which is reported."""
    if subject.group not in _GROUPS or subject.kind != "Queue":
        return
    try:
        object_ = read_object(subject.value)
    except DecodeError as error:
        context.report(subject, "invalid-value", ("spec",), str(error))
        return
    for field in _RUNTIMES if subject.group == KAI_GROUP else ():
        text = plain_text(subject.at(("spec", field)))
        if text and go_seconds(text) is None:
            message = f'"{text}" is not a duration and is ignored: expected a value such as 10m or 1h30m'
            context.report(subject, "invalid-value", ("spec", field), message)
    queue = QUEUE_KINDS[type(object_)](object_)
    if queue is not None:
        yield _Written(queue, subject)


# --- names ---


def _named(context: Context) -> Iterator[tuple[Subject, Path, str]]:
    """References to queues: the object, the path and the name."""
    for subject in context.subjects:
        path = _NAMING.get((subject.group, subject.kind))
        name = plain_text(subject.at(path)) if path is not None else ""
        if path is not None and name and (subject.group, name) != (VOLCANO_GROUP, _ROOT):
            yield subject, path, name
    for spec in context.pods:
        metadata: list[Path] = [(*spec.path[:-1], "metadata")]
        # KAI uses the label of the workload if the pod has none.
        if metadata[0] != ("metadata",):
            metadata.append(("metadata",))
        for place in metadata:
            for field, key in (("labels", QUEUE_LABEL), ("annotations", VOLCANO_QUEUE)):
                name = plain_text(spec.subject.at((*place, field, key)))
                if name:
                    yield spec.subject, (*place, field, key), name


def _check_name(context: Context, subject: Subject, path: Path, name: str, known: Mapping[str, Queue]) -> None:
    if name in known:
        return
    message = f'queue "{name}" is unknown'
    severity = Severity.WARNING
    if context.knowledge.is_cluster:
        message = f'queue "{name}" does not exist: pods that refer to it wait'
        severity = Severity.ERROR if known else Severity.WARNING
    elif not is_slip(name, known):
        # Without a cluster, only a likely misspelling is reported.
        return
    context.report(subject, "unknown-queue", path, message, did_you_mean(name, known), severity=severity)


# --- amounts ---


def _check_limit(context: Context, found: _Written) -> None:
    for resource, quota in found.queue.quotas.items():
        if UNLIMITED in (quota.limit, quota.deserved) or quota.deserved <= quota.limit:
            continue
        limit, deserved = amounts_text({resource: quota.limit}), amounts_text({resource: quota.deserved})
        message = f"the queue deserves {deserved} but its limit is {limit}: it can never use the rest of its quota"
        fix = "raise the limit, or lower the quota"
        context.report(found.subject, "queue-limit", found.place(resource, "limit"), message, fix)


def _check_children(context: Context, queue: Queue, children: Sequence[Queue], written: Mapping[str, _Written]) -> None:
    """A queue divides its own share among its children: it cannot guarantee more."""
    for resource, quota in queue.quotas.items():
        parts = {
            child.name: child.quotas[resource].deserved
            for child in children
            if resource in child.quotas and child.quotas[resource].deserved != UNLIMITED
        }
        if quota.deserved == UNLIMITED or sum(parts.values()) <= quota.deserved:
            continue
        together = amounts_text({resource: sum(parts.values())})
        message = (
            f"{', '.join(sorted(parts))} deserve {together} together, and queue {queue.name} above them deserves "
            f"{amounts_text({resource: quota.deserved})}: not all of it is guaranteed"
        )
        fix = f"raise the quota of queue {queue.name} to {together}, or lower those below it"
        where = written.get(queue.name) or next((written[name] for name in sorted(parts) if name in written), None)
        if where is not None:
            context.report(where.subject, "queue-children", where.place(resource, "quota"), message, fix)
