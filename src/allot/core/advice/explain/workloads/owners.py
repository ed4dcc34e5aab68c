"""Owners of kinds that have no type here (RayJob, PyTorchJob, LeaderWorkerSet, Notebook): by what they have created, and by what their
controllers say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from allot.core.advice.explain.causes.kueue import held_by_kueue, workload_of
from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.wording import count, one_line
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, held_back, not_as_wanted, of_pod
from allot.core.model import core_v1
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.observed_v1 import OtherObject
from allot.core.workloads.pod_states import is_ready

ExplainMade = Callable[[APIStruct], Explanation]
# By the type of a condition: the status that is a complaint. Controllers of custom resources share these by convention.
_COMPLAINTS = {
    **dict.fromkeys(("Ready", "Available", "Succeeded", "Running", "Accepted"), "False"),
    **dict.fromkeys(("Failed", "Degraded", "Suspended", "Stalled", "ReplicaFailure"), "True"),
}
_NOT_YET = (Reason.STARTING, Reason.PROGRESSING, Reason.FITS)


class Owner(NamedTuple):
    """An object that is known by what it owns, or from a dump."""

    kind: str
    metadata: ObjectMeta
    # What its conditions complain about.
    said: str = ""


class _Made(NamedTuple):
    """What an owner has created, with whatever that has created, down to kinds that have a type."""

    workloads: list[APIStruct]
    pods: list[core_v1.Pod]


def owner_named(scene: Scene, types: tuple[type[APIStruct], ...], word: str, namespace: str, name: str) -> Owner | None:
    """The object of a kind, as kubectl would take its name, that a dump has or that others name as their owner. Without a name in
    the owner that is found: there is none of this name, but of this kind."""
    alike: Owner | None = None
    for found in _owners(scene, types):
        if is_called(found.kind, word):
            if (found.metadata.namespace, found.metadata.name) == (namespace, name):
                return found
            alike = Owner(found.kind, ObjectMeta())
    return alike


def _owners(scene: Scene, types: tuple[type[APIStruct], ...]) -> Iterator[Owner]:
    for other in scene.what_if.others:
        yield Owner(other.kind, other.metadata, _complaint(other))
    for _, metadata in _all(scene, types):
        for owner in metadata.owner_references:
            yield Owner(owner.kind, ObjectMeta(name=owner.name, namespace=metadata.namespace, uid=owner.uid))


def is_called(kind: str, word: str) -> bool:
    """Whether kubectl would take a word for a kind: its name, a plural, or the initials, by which most custom resources are known."""
    name = kind.lower()
    initials = "".join(letter for letter in kind if letter.isupper()).lower()
    plurals = {f"{name}s", f"{name}es", f"{name[:-1]}ies"}
    return word == name or word in plurals or (word == initials and len(initials) > 2)


def explain_owner(scene: Scene, owner: Owner, explains: Mapping[type[APIStruct], ExplainMade]) -> Explanation:
    """Why an owner is not as wanted. explains: what it may have created besides pods."""
    made = _made(scene, tuple(explains), owner.metadata.uid)
    wrong = [found for each in made.workloads if (found := explains[type(each)](each)).state is State.NOT_AS_WANTED]
    held = held_back(scene, made.pods, briefly=False)
    if held is not None:
        ready = sum(is_ready(pod) for pod in made.pods)
        text = f"has {ready} of {count(len(made.pods), 'pod')} ready: {held.text}"
        wrong.append(of_pod(not_as_wanted(owner.kind, owner, held.explanation.reason, text), held.explanation))
    if wrong:
        worst = min(wrong, key=lambda each: each.reason in _NOT_YET)
        if worst.kind == owner.kind:
            return worst
        return of_pod(not_as_wanted(owner.kind, owner, worst.reason, f"waits: {worst.cause}"), worst)
    failed = [pod for pod in made.pods if pod.status.phase == "Failed"]
    if failed and not made.workloads and all(pod.status.phase in FINISHED for pod in made.pods):
        last = scene.explain_pod(failed[-1], False)
        return of_pod(not_as_wanted(owner.kind, owner, last.reason, f"has failed: pod {last.cause}"), last)
    return _without_cause_below(scene, owner, made)


def _without_cause_below(scene: Scene, owner: Owner, made: _Made) -> Explanation:
    """What has been created is as wanted, or there is nothing."""
    is_empty = not made.workloads and not made.pods
    if is_empty and workload_of(scene.what_if, owner.metadata) is not None:
        why = held_by_kueue(scene.what_if, owner.kind, owner.metadata, ())
        text = f"is suspended until Kueue admits it{f': {why.text}' if why.text else ''}"
        return not_as_wanted(owner.kind, owner, Reason.SUSPENDED, text, advice=(why.advice, *why.others))
    if owner.said:
        return not_as_wanted(owner.kind, owner, Reason.PROGRESSING, f"is not as wanted: {owner.said}")
    if is_empty:
        text = "has created no pods or workloads: no controller has processed it"
        advice = (f"check that the controller of {owner.kind} runs, and see its log",)
        return not_as_wanted(owner.kind, owner, Reason.NOT_OBSERVED, text, advice=advice)
    ready = sum(is_ready(pod) for pod in made.pods)
    pods = f"{ready} of {count(len(made.pods), 'pod')} ready" if made.pods else ""
    workloads = f"{count(len(made.workloads), 'workload')} in the desired state" if made.workloads else ""
    return as_wanted(owner.kind, owner, f"has {' and '.join(filter(None, (pods, workloads)))}")


def _made(scene: Scene, types: tuple[type[APIStruct], ...], uid: str) -> _Made:
    """What an object has created. A kind without a type in between, as a RayJob's RayCluster, counts by what it has created itself."""
    below: dict[str, list[APIStruct]] = {}
    for object_, metadata in _all(scene, types):
        for owner in metadata.owner_references:
            below.setdefault(owner.uid, []).append(object_)
    made, left, known = _Made([], []), [uid] if uid else [], {uid}
    while left:
        for object_ in below.get(left.pop(), ()):
            if isinstance(object_, core_v1.Pod):
                made.pods.append(object_)
            elif not isinstance(object_, OtherObject):
                made.workloads.append(object_)
            elif (further := object_.metadata.uid) and further not in known:
                known.add(further)
                left.append(further)
    return made


def _all(scene: Scene, types: tuple[type[APIStruct], ...]) -> Iterator[tuple[APIStruct, ObjectMeta]]:
    """Everything that may have an owner here."""
    all_types: tuple[type[Any], ...] = (*types, core_v1.Pod)
    for type_ in all_types:
        yield from ((each, each.metadata) for each in scene.what_if.all(type_))
    yield from ((each, each.metadata) for each in scene.what_if.others)


def _complaint(other: OtherObject) -> str:
    """What the conditions of a custom resource say is wrong; empty if nothing."""
    for each in other.conditions:
        if each.status and _COMPLAINTS.get(each.type) == each.status:
            name = f"{each.type} is {each.status}{f' ({each.reason})' if each.reason else ''}"
            said = one_line(each.message)
            return f"{name}: {said}" if said else name
    return ""
