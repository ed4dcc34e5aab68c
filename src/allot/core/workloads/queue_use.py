"""Which queues an object would use, and which of them are restricted.

A pod's queue comes from the pod itself, its group or its owner, or else is the default queue of its scheduler. Objects that
create pods contain pod templates somewhere; as operators bring their own kinds, any labels in an object are treated as those of
pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from allot.core.model import kai_words as words
from allot.core.model.foreign_groups import KAI, VOLCANO
from allot.core.scheduling import DEFAULT_QUEUES, DIALECTS, VOLCANO_QUEUE
from allot.core.workloads.pod_grouping import OWNERS

Object = Mapping[str, Any]

# On a queue: only users who may `use` it may put pods into it and the queues below it. Any value but "false" counts, so that a
# typo does not open a queue.
RESTRICTED = "allot.dev/restricted"
QUEUE_GROUPS = (KAI, VOLCANO)
_VOLCANO_JOBS = "batch.volcano.sh"
# Groups whose kinds also name queues in fields called `queue`.
_QUEUE_FIELDS = frozenset((KAI, VOLCANO, _VOLCANO_JOBS, "kubeflow.org"))
# The default queue, by group and kind.
_DEFAULTS = {
    (KAI, "PodGroup"): DEFAULT_QUEUES["kai-scheduler"],
    (VOLCANO, "PodGroup"): DEFAULT_QUEUES["volcano"],
    (_VOLCANO_JOBS, "Job"): DEFAULT_QUEUES["volcano"],
}
_VOLCANO_ROOT = "root"
_SPARK_NAME, _SPARK_GROUP = "spark-app-name", "spark-app-selector"
_NOTHING: Object = {}


class Named(msgspec.Struct, frozen=True):
    """What an object names. groups: PodGroups by API group and name; owners: what it belongs to or scales, as group, plural,
    name.
    """

    queues: frozenset[str]
    groups: frozenset[tuple[str, str]]
    owners: tuple[tuple[str, str, str], ...]


class Restriction(msgspec.Struct, frozen=True):
    """Why a queue is restricted. by: the restricting queue, itself or an ancestor; api_groups: where queues of that name exist."""

    by: str
    api_groups: tuple[str, ...]


def restrictions(queues: Mapping[str, Iterable[Object]]) -> dict[str, Restriction]:
    """The restricted queues by name. queues: by API group. Queues of all dialects form one tree, so a name means all of them."""
    known: dict[str, list[tuple[str, Object]]] = {}
    for api_group, found in queues.items():
        for queue in found:
            known.setdefault(_text(_map(queue.get("metadata")).get("name")), []).append((api_group, queue))
    answer: dict[str, Restriction] = {}
    if not any(_is_marked(same) for same in known.values()):
        return answer
    for name, same in known.items():
        by = next((each for each in _upwards(name, known) if _is_marked(known.get(each, ()))), "")
        if by:
            answer[name] = Restriction(by, tuple(api_group for api_group, _ in same))
    return answer


def _upwards(name: str, known: Mapping[str, list[tuple[str, Object]]]) -> Iterator[str]:
    """A queue and its ancestors. Parents may form a cycle."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        each = ahead.pop()
        if each in seen:
            continue
        seen.add(each)
        yield each
        for api_group, queue in known.get(each, ()):
            spec = _map(queue.get("spec"))
            parent = spec.get("parentQueue") if api_group == KAI else spec.get("parent") or _VOLCANO_ROOT
            ahead += [parent] if isinstance(parent, str) and parent else []


def _is_marked(same: Iterable[tuple[str, Object]]) -> bool:
    labels = [_map(_map(queue.get("metadata")).get("labels")) for _, queue in same]
    return any(each.get(RESTRICTED, "false") != "false" for each in labels)


def named_in(object_: Object, api_group: str, kind: str) -> Named:
    """What an object, or any template in it, names."""
    queues: set[str] = set()
    groups: set[tuple[str, str]] = set()
    projects: set[str] = set()
    schedulers: set[str] = set()
    for each in _mappings(object_):
        labels, annotations = _map(each.get("labels")), _map(each.get("annotations"))
        queues |= {*_queues_of(labels, annotations)}
        groups |= {*_groups_of(labels, annotations)}
        projects.add(_text(labels.get(words.PROJECT)))
        if api_group in _QUEUE_FIELDS:
            queues.add(_text(each.get("queue")))
        scheduler = _text(_map(each.get("spec")).get("schedulerName"))
        schedulers.add(scheduler)
        if scheduler in DEFAULT_QUEUES and _says_none(each):
            queues.add(DEFAULT_QUEUES[scheduler])
    if words.SCHEDULER in schedulers:
        queues |= projects
    default = _DEFAULTS.get((api_group, kind))
    if default and not _map(object_.get("spec")).get("queue"):
        queues.add(default)
    return Named(frozenset(queues - {""}), frozenset(groups), tuple(_owners_of(object_)))


def content_of(object_: Object) -> Object:
    """The desired state of an object: everything but metadata and status."""
    return {key: value for key, value in object_.items() if key not in ("metadata", "status")}


def _mappings(object_: Object) -> Iterator[Object]:
    """An object and all nested mappings, except its status."""
    ahead: list[Any] = [{key: value for key, value in object_.items() if key != "status"}]
    while ahead:
        each = ahead.pop()
        if isinstance(each, Mapping):
            yield each
            ahead += [value for key, value in each.items() if key != "managedFields"]
        elif isinstance(each, list):
            ahead += each


def _says_none(template: Object) -> bool:
    """Whether a pod, or a pod template, names neither its queue nor its group."""
    metadata = _map(template.get("metadata"))
    labels, annotations = _map(metadata.get("labels")), _map(metadata.get("annotations"))
    said = (*_queues_of(labels, annotations), *_groups_of(labels, annotations), _map(template["spec"]).get("queue"))
    return not any(said)


def _queues_of(labels: Object, annotations: Object) -> Iterator[str]:
    for name in (labels.get(words.QUEUE), annotations.get(VOLCANO_QUEUE)):
        if isinstance(name, str) and name:
            yield name


def _groups_of(labels: Object, annotations: Object) -> Iterator[tuple[str, str]]:
    for dialect in DIALECTS:
        for key in dialect.annotations if dialect.api_group in QUEUE_GROUPS else ():
            if name := _text(annotations.get(key)):
                yield dialect.api_group, name
    # The pod grouper puts Spark pods into the group that they name.
    if _SPARK_NAME in labels and (name := _text(labels.get(_SPARK_GROUP))):
        yield KAI, name


def _owners_of(object_: Object) -> Iterator[tuple[str, str, str]]:
    references = _map(object_.get("metadata")).get("ownerReferences")
    listed = references if isinstance(references, list) else ()
    found = [each for each in listed if isinstance(each, Mapping) and each.get("controller") is True]
    # The target of an autoscaler.
    found.append(_map(_map(object_.get("spec")).get("scaleTargetRef")))
    for each in found:
        api_group = _text(each.get("apiVersion")).rpartition("/")[0]
        for resource in OWNERS.get((api_group, _text(each.get("kind"))), ())[:1]:
            yield api_group, resource.plural, _text(each.get("name"))


def _map(value: Any) -> Object:
    return value if isinstance(value, Mapping) else _NOTHING


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
