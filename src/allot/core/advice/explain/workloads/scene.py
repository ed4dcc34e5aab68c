"""What explanations of workloads share: pods by owner, events, and how to explain a pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from allot.core.advice.explain.causes.claims import QUOTA
from allot.core.advice.explain.causes.components import CONTROLLERS, down
from allot.core.advice.explain.causes.creating import behind, bounds_of, creation_advice
from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.report import Change, Explanation, Reason, State
from allot.core.advice.explain.wording import count, joined, listed, of_several, plural
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1, observed_v1, policy_v1
from allot.core.model.meta import APIStruct, LabelSelector, ObjectMeta, RawJSON
from allot.core.quantity import Quantity
from allot.core.workloads.ownership import controller_reference, selector_of
from allot.core.workloads.pod_states import is_ready
from allot.core.workloads.pod_templates import template_value

# Pods of one workload are similar: only this many are explained.
_ASKED_MAX = 12


class HasMetadata(Protocol):
    """An object."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""


T = TypeVar("T", bound=APIStruct)
ExplainPod = Callable[[core_v1.Pod, bool], Explanation]


class Scene:
    """A cluster in which workloads are explained. explain_pod: takes a pod, and whether only its cause is wanted."""

    def __init__(self, what_if: WhatIfCluster, explain_pod: ExplainPod) -> None:
        self.what_if = what_if
        self.explain_pod = explain_pod
        # Built on demand: a cluster may have very many of each.
        self._owned: dict[type[APIStruct], dict[str, list[APIStruct]]] = {}
        self._events: dict[tuple[str, str, str], list[observed_v1.Event]] | None = None
        self._pods: dict[str, list[core_v1.Pod]] | None = None

    def owned_by(self, type_: type[T], owner: HasMetadata) -> list[T]:
        """The objects of a kind that an owner controls, by name."""
        by_owner = self._owned.get(type_)
        if by_owner is None:
            by_owner = self._owned[type_] = {}
            for each in self.what_if.all(type_):
                reference = controller_reference(_metadata(each))
                if reference is not None:
                    by_owner.setdefault(reference.uid, []).append(each)
        found = by_owner.get(owner.metadata.uid, ()) if owner.metadata.uid else ()
        return sorted(found, key=lambda each: _metadata(each).name)  # type: ignore[arg-type]

    def events(self, kind: str, object_: HasMetadata, *reasons: str) -> list[observed_v1.Event]:
        """Events about an object with the given reasons, newest first."""
        if self._events is None:
            self._events = {}
            for event in self.what_if.all(observed_v1.Event):
                about = event.involved_object
                key = (about.kind, about.namespace or event.metadata.namespace, about.name)
                self._events.setdefault(key, []).append(event)
        metadata = object_.metadata
        found = [
            event
            for event in self._events.get((kind, metadata.namespace, metadata.name), ())
            if event.reason in reasons and event.involved_object.uid in ("", metadata.uid)
        ]
        return sorted(found, key=lambda event: event.seen_at, reverse=True)

    def pods_in(self, namespace: str) -> list[core_v1.Pod]:
        """The pods of a namespace."""
        if self._pods is None:
            self._pods = {}
            for pod in self.what_if.all(core_v1.Pod):
                self._pods.setdefault(pod.metadata.namespace, []).append(pod)
        return self._pods.get(namespace, [])


def _metadata(object_: APIStruct) -> ObjectMeta:
    found: ObjectMeta = object_.metadata  # type: ignore[attr-defined]
    return found


def live_pods(pods: Iterable[core_v1.Pod]) -> list[core_v1.Pod]:
    """Pods that have not ended and are not terminating."""
    return [pod for pod in pods if pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None]


# --- explanations ---


def not_as_wanted(
    kind: str,
    object_: HasMetadata,
    reason: Reason,
    text: str,
    *,
    details: Sequence[str] = (),
    advice: Sequence[str] = (),
) -> Explanation:
    """Why an object is not as wanted. text: phrased to follow its kind and name."""
    metadata = object_.metadata
    return Explanation(
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        state=State.NOT_AS_WANTED,
        reason=reason,
        cause=f"{kind} {f'{metadata.namespace}/' if metadata.namespace else ''}{metadata.name} {text}",
        details=tuple(details),
        changes=tuple(Change(text=each) for each in advice),
    )


def as_wanted(kind: str, object_: HasMetadata, text: str, reason: Reason = Reason.AS_WANTED) -> Explanation:
    """An object that is as wanted."""
    state = State.ENDED if reason is Reason.ENDED else State.AS_WANTED
    return replace(not_as_wanted(kind, object_, reason, text), state=state)


def of_pod(found: Explanation, pod: Explanation, details: Sequence[str] = ()) -> Explanation:
    """An explanation of a workload with the findings about the pod that holds it back."""
    return replace(
        pod,
        kind=found.kind,
        namespace=found.namespace,
        name=found.name,
        state=found.state,
        reason=found.reason,
        cause=found.cause,
        details=(*details, *found.details, *pod.details),
        changes=found.changes or pod.changes,
    )


# --- pods that hold a workload back ---


class HeldBack:
    """Pods that do not run or are not ready, with their most frequent cause."""

    def __init__(self, pods: Sequence[core_v1.Pod], text: str, explanation: Explanation) -> None:
        self.pods = pods
        # Phrased to follow the number of ready pods: which pods, and why.
        self.text = text
        self.explanation = explanation


def held_back(scene: Scene, pods: Iterable[core_v1.Pod], *, briefly: bool) -> HeldBack | None:
    """What keeps pods from being ready; None if they all are."""
    return _most_frequent(scene, [pod for pod in live_pods(pods) if not is_ready(pod)], briefly=briefly)


def terminating(scene: Scene, pods: Iterable[core_v1.Pod], *, briefly: bool) -> HeldBack | None:
    """What keeps pods that were deleted from going; None if there are none."""
    deleted = [pod for pod in pods if pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is not None]
    return _most_frequent(scene, deleted, briefly=briefly)


def _most_frequent(scene: Scene, unready: Sequence[core_v1.Pod], *, briefly: bool) -> HeldBack | None:
    if not unready:
        return None
    causes: dict[str, list[core_v1.Pod]] = {}
    found: dict[str, Explanation] = {}
    for pod in unready[:_ASKED_MAX]:
        explanation = scene.explain_pod(pod, True)
        line = explanation.cause.removeprefix(f"{pod.metadata.namespace}/{pod.metadata.name} ")
        if explanation.state is State.PLACED and explanation.reason is Reason.PLACED:
            line = f"runs on node {pod.spec.node_name} and is not ready"
            explanation = replace(explanation, reason=Reason.NOT_READY)
        causes.setdefault(line, []).append(pod)
        found.setdefault(line, explanation)
    # A pod that waits for devices says more than one that is about to start.
    line = max(
        causes,
        key=lambda each: (
            found[each].reason not in (Reason.STARTING, Reason.PROGRESSING, Reason.FITS),
            len(causes[each]),
        ),
    )
    members = causes[line]
    others = len(unready) - len(members) if len(causes) > 1 else 0
    number = len(unready) - others
    names = listed([pod.metadata.name for pod in members])
    who = f"pod {names}" if number == 1 else f"pods {names}" if number == len(members) else f"{number} pods ({names})"
    more = f"; {count(others, 'other pod')} {'is' if others == 1 else 'are'} not ready either" if others else ""
    explanation = found[line]
    if not briefly and explanation.reason is not Reason.NOT_READY:
        explanation = replace(scene.explain_pod(members[0], False), reason=explanation.reason)
    return HeldBack(members, f"{who} {of_several(line) if number > 1 else line}{more}", explanation)


# --- what several kinds have in common ---


def unobserved(
    scene: Scene, kind: str, object_: HasMetadata, observed_generation: int, controller: str
) -> Explanation | None:
    """An object that no controller has processed since its creation or last change."""
    if observed_generation >= object_.metadata.generation:
        return None
    since = "its last change" if observed_generation else "it was created"
    return left_alone(scene, kind, object_, f"has not been processed by any controller since {since}", controller)


def left_alone(scene: Scene, kind: str, object_: HasMetadata, text: str, controller: str) -> Explanation:
    """An object that its controller ignores."""
    idle = down(scene.what_if, CONTROLLERS)
    if idle is not None:
        text = f"{text}: {CONTROLLERS} {idle.text}"
        return not_as_wanted(kind, object_, Reason.COMPONENT_DOWN, text, advice=(idle.advice,))
    advice = (f"check that {controller} runs: allot controllers, or a {CONTROLLERS}",)
    return not_as_wanted(kind, object_, Reason.NOT_OBSERVED, text, advice=advice)


def mismatch(
    kind: str, object_: HasMetadata, selector: LabelSelector | None, template: RawJSON | None
) -> Explanation | None:
    """A selector that does not match its own template."""
    if template is None:
        return None
    metadata = template_value(template).get("metadata") or {}
    labels = metadata.get("labels") or {}
    requirements = selector_of(selector)
    if requirements is None:
        text = "selects nothing, or everything: spec.selector is empty, so its controller ignores it"
        return not_as_wanted(kind, object_, Reason.SELECTOR_MISMATCH, text)
    if requirements.matches(labels):
        return None
    wanted = ", ".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items())) if selector else ""
    has = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "no labels"
    text = f"selects pods with {wanted or 'other labels'}, but its template creates pods with {has}: it would never find its own pods"
    advice = ("give spec.template.metadata.labels the labels that spec.selector asks for",)
    return not_as_wanted(kind, object_, Reason.SELECTOR_MISMATCH, text, advice=advice)


def not_created(
    scene: Scene, kind: str, object_: HasMetadata, ready: str, said: str = "", *, lacking: int = 1
) -> Explanation | None:
    """Pods that the API server refuses: quotas, admission, validation. said: the message of a condition; lacking: how many pods are
    missing."""
    if not said:
        events = scene.events(kind, object_, "FailedCreate")
        said = events[0].message if events else ""
    if not said:
        return None
    said = said.removeprefix("Error creating: ")
    over = QUOTA.search(said)
    if over is not None:
        return _over_quota(scene, kind, object_, ready, over.groupdict(), max(1, lacking))
    bound = bounds_of(scene.what_if, kind, object_.metadata, said)
    if bound is not None:
        text = f"{ready} because its pods cannot be created: {bound.text}"
        return not_as_wanted(kind, object_, Reason.PODS_NOT_CREATED, text, advice=bound.advice)
    text = f"{ready} because its pods cannot be created: {said}{behind(scene.what_if, said)}"
    advice = creation_advice(scene.what_if, kind, object_.metadata, said)
    return not_as_wanted(kind, object_, Reason.PODS_NOT_CREATED, text, advice=advice)


def _over_quota(
    scene: Scene, kind: str, object_: HasMetadata, ready: str, said: Mapping[str, str], lacking: int
) -> Explanation:
    """A quota without room for another pod. lacking: how many pods are missing."""
    namespace, name = object_.metadata.namespace, said["quota"]
    asked, used, limits = (amounts_in(said[part]) for part in ("requested", "used", "limited"))
    short = [each for each in asked if each in used and each in limits]
    facts = [f"{each}={asked[each]}, and {used[each]} of {limits[each]} are in use" for each in short]
    text = f"{ready} because ResourceQuota {namespace}/{name} does not allow another pod: it asks for {joined(facts)}"
    enough = [
        f"{each}={Quantity.from_nano(used[each].nano + lacking * asked[each].nano, limits[each].format)}"
        for each in short
    ]
    room = f", which is enough for {lacking} more pods" if lacking > 1 else ""
    advice: tuple[str, ...] = (
        f"raise ResourceQuota {namespace}/{name} to {listed(enough)}{room}",
        f"ask for less in {kind} {object_.metadata.name}, or run fewer pods in namespace {namespace}",
    )
    quota = scene.what_if.get(observed_v1.ResourceQuota, name, namespace)
    has_room = quota is not None and all(
        each in quota.spec.hard
        and each in quota.status.used
        and quota.status.used[each].nano + asked[each].nano <= quota.spec.hard[each].nano
        for each in short
    )
    if has_room:
        text = f"{ready}: ResourceQuota {namespace}/{name} did not allow another pod, but has room for it by now"
        advice = ("wait a moment: its controller retries automatically",)
    return not_as_wanted(kind, object_, Reason.PODS_NOT_CREATED, text, advice=advice)


def amounts_in(text: str) -> dict[str, Quantity]:
    """`requests.cpu=4,pods=1`, as the API server writes amounts."""
    pairs = (part.split("=", 1) for part in text.split(",") if "=" in part)
    return {name.strip(): Quantity.parse(amount) for name, amount in pairs}


def budgets(scene: Scene, pods: Iterable[core_v1.Pod]) -> list[str]:
    """Budgets that allow no eviction of these pods now, a sentence each."""
    found = []
    members = list(pods)
    for budget in scene.what_if.all(policy_v1.PodDisruptionBudget):
        requirements = selector_of(budget.spec.selector)
        if requirements is None or budget.status.disruptions_allowed > 0:
            continue
        if any(
            pod.metadata.namespace == budget.metadata.namespace and requirements.matches(pod.metadata.labels)
            for pod in members
        ):
            found.append(f"PodDisruptionBudget {budget.metadata.name} allows no eviction of its pods now")
    return found


def all_ready(wanted: int) -> str:
    """All pods are ready: `has 2 of 2 pods ready`."""
    return ready_text(wanted, wanted) if wanted else "is scaled to 0: it has no pods, as intended"


def ready_text(ready: int, wanted: int, word: str = "pod") -> str:
    """`has 1 of 3 pods ready`."""
    return f"has {ready} of {wanted} {word if wanted == 1 else plural(word)} ready"
