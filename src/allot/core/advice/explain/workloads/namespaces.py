"""Namespaces that were deleted and are still there: what keeps them, according to their conditions and to what is left in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from allot.core.advice.explain.causes.creating import behind, creation_advice
from allot.core.advice.explain.causes.keepers import idle_keeper
from allot.core.advice.explain.causes.selecting import Unselected
from allot.core.advice.explain.causes.serving import not_served
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.wording import joined, listed, named, one_line
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, left_alone, not_as_wanted
from allot.core.advice.snapshot import DUMPED_KINDS, KINDS, snapshot_kind
from allot.core.model import core_v1
from allot.core.model.observed_v1 import APIService, Event, OtherObject

_KIND = "Namespace"
_OWN_FINALIZER = "kubernetes"
_GROUP_VERSION = re.compile(r"(?P<group>[\w.-]+\.[\w.-]+)/(?P<version>v\w+)")
# What is left, as the namespace controller writes it: `pods. has 2 resource instances`, `a.io/b in 1 resource instances`.
_LEFT = re.compile(r"(?P<what>[\w-]+\.[\w.-]*) has (?P<number>\d+) resource instances")
_FINALIZER = re.compile(r"(?P<name>[\w./-]+) in (?P<number>\d+) resource instances")
_DISCOVERY = "NamespaceDeletionDiscoveryFailure"
_CONTENT = "NamespaceDeletionContentFailure"
_PARSING = "NamespaceDeletionGroupVersionParsingFailure"
_FINALIZERS, _REMAINING = "NamespaceFinalizersRemaining", "NamespaceContentRemaining"


def explain_namespace(scene: Scene, found: core_v1.Namespace, *, briefly: bool) -> Explanation:
    """Why a namespace that was deleted stays."""
    deleted = found.metadata.deletion_timestamp
    if deleted is None and found.status.phase != "Terminating":
        return as_wanted(_KIND, found, "is active")
    since = f" since {deleted}" if deleted is not None else ""
    told = {each.type: each for each in found.status.conditions if each.status == "True"}
    text = f"has been terminating{since}"
    if _DISCOVERY in told:
        return _undiscovered(scene, found, text, told[_DISCOVERY].message, set(told))
    for type_ in (_PARSING, _CONTENT):
        if type_ in told:
            return _refused(scene, found, text, type_, told[type_].message)
    if _FINALIZERS in told or _REMAINING in told:
        said = [told[each].message for each in (_FINALIZERS, _REMAINING) if each in told]
        return _left(scene, found, text, said, briefly=briefly)
    others = [each for each in (*found.spec.finalizers, *found.metadata.finalizers) if each != _OWN_FINALIZER]
    if others:
        return _kept(scene, found, f"{text} and is empty", others)
    if not found.status.conditions:
        return left_alone(scene, _KIND, found, f"{text}, and no controller has emptied it", "namespace-controller")
    return not_as_wanted(_KIND, found, Reason.BEING_DELETED, f"{text} and is empty: it is about to go")


def _undiscovered(scene: Scene, found: core_v1.Namespace, text: str, said: str, told: set[str]) -> Explanation:
    """An API that does not answer: nobody can tell whether the namespace has objects of it."""
    entries = sorted(scene.what_if.all(APIService), key=lambda each: each.metadata.name)
    meant = {match.groups() for match in _GROUP_VERSION.finditer(said)}
    down = [(each, why) for each in entries if (why := not_served(scene.what_if, each)) is not None]
    named_ones = [(each, why) for each, why in down if (each.spec.group, each.spec.version) in meant]
    empty = "" if {_FINALIZERS, _REMAINING, _CONTENT} & told else ", although it is empty,"
    text = f"{text}{empty} because the API server cannot list all APIs ({_DISCOVERY})"
    causes: list[tuple[APIService, Unselected]] = named_ones or down
    if not causes:
        advice = "find the API that does not answer: kubectl get apiservices"
        return not_as_wanted(_KIND, found, Reason.BEING_DELETED, f"{text}: {one_line(said)}", advice=(advice,))
    text = f"{text}: {joined([why.text for _, why in causes])}"
    fixes = list(dict.fromkeys(why.advice for _, why in causes))
    names = " ".join(each.metadata.name for each, _ in causes)
    gone = f"kubectl delete apiservice {names}, if {'that API is' if len(causes) == 1 else 'those APIs are'} no longer needed"
    if not any(fix.startswith("kubectl delete apiservice") for fix in fixes):
        fixes.append(gone)
    fixes[0] += "; then the namespace goes by itself"
    return not_as_wanted(_KIND, found, Reason.BEING_DELETED, text, advice=fixes)


def _refused(scene: Scene, found: core_v1.Namespace, text: str, type_: str, said: str) -> Explanation:
    """Objects that could not be deleted."""
    said = one_line(said)
    cause = behind(scene.what_if, said)
    text = f"{text} because its objects cannot be deleted ({type_}): {said}{cause}"
    advice = creation_advice(scene.what_if, _KIND, found.metadata, said) if cause else ()
    advice = advice or ("fix what the API server reports: the namespace controller retries automatically",)
    return not_as_wanted(_KIND, found, Reason.BEING_DELETED, text, advice=advice)


def _left(scene: Scene, found: core_v1.Namespace, text: str, said: list[str], *, briefly: bool) -> Explanation:
    """Objects that are still there."""
    pods = [pod for pod in scene.pods_in(found.metadata.name) if pod.metadata.deletion_timestamp is not None]
    finalizers = sorted({match["name"] for each in said for match in _FINALIZER.finditer(each)})
    kept = [each for each in _objects(scene, found.metadata.name) if set(each.metadata.finalizers) & set(finalizers)]
    if not finalizers and pods:
        explained = scene.explain_pod(pods[0], briefly)
        line = explained.cause.removeprefix(f"{found.metadata.name}/")
        text = f"{text} because pod {line}"
        return not_as_wanted(
            _KIND, found, Reason.BEING_DELETED, text, advice=[change.text for change in explained.changes]
        )
    left = {match["what"].rstrip("."): match["number"] for each in said for match in _LEFT.finditer(each)}
    if not finalizers:
        text += (
            f" because it still has {listed(f'{number} {each}' for each, number in left.items())}"
            if left
            else f": {one_line(said[0])}"
        )
        looks = [f"see what keeps them: kubectl get {','.join(left)} -n {found.metadata.name} -o yaml"] if left else []
        return not_as_wanted(_KIND, found, Reason.BEING_DELETED, text, advice=looks)
    which = [f"{_kind(each)} {each.metadata.name}" for each in kept] or list(left)
    what = listed(which) if which else "an object"
    verb = "have" if which and (len(which) > 1 or not kept) else "has"
    kinds = map(_resource, kept) if kept else left
    return _kept(scene, found, f"{text} because {what} in it still {verb}", finalizers, what, kinds)


def _kept(
    scene: Scene,
    found: core_v1.Namespace,
    text: str,
    finalizers: Iterable[str],
    what: str = "",
    kinds: Iterable[str] = (),
) -> Explanation:
    """Finalizers that nobody removes. what: the objects that have them, if not the namespace itself; text: phrased to precede them;
    kinds: of these objects, as `rayjobs.ray.io`."""
    names = list(finalizers)
    them = "it" if len(names) == 1 else "them"
    spoken = named("finalizer", names)
    text += f" {spoken}" if what else f", but {spoken} {'keeps' if len(names) == 1 else 'keep'} it"
    keeper = idle_keeper(scene.what_if, names, f"removes {them}", kinds)
    text += f": {keeper.text}" if keeper is not None else ""
    let = f"let the component that set {spoken} remove {them}: see that it runs, and its log"
    force = f"if that component is gone for good and nothing is left to do: remove {spoken} from {what or f'namespace {found.metadata.name}'}"
    return not_as_wanted(
        _KIND, found, Reason.BEING_DELETED, text, advice=(keeper.advice if keeper is not None else let, force)
    )


def _objects(scene: Scene, namespace: str) -> list[Any]:
    """Deleted objects of a namespace that the snapshot has."""
    found: list[Any] = [
        each
        for kind in (*KINDS, *DUMPED_KINDS)
        if kind.namespaced and kind.type is not Event
        for each in scene.what_if.all(kind.type)
    ]
    found += [each for each in scene.what_if.others if each.keeps_others]
    return [
        each for each in found if each.metadata.namespace == namespace and each.metadata.deletion_timestamp is not None
    ]


def _kind(object_: Any) -> str:
    return object_.kind if isinstance(object_, OtherObject) else snapshot_kind(type(object_)).name


def _resource(object_: Any) -> str:
    """The kind as the namespace controller writes it, except for the plural."""
    group = (
        object_.api_version.rpartition("/")[0]
        if isinstance(object_, OtherObject)
        else snapshot_kind(type(object_)).group
    )
    return f"{_kind(object_).lower()}.{group}"
