"""Deployments and ReplicaSets: pods that cannot be created or do not run, and rollouts that are stuck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from allot.core.advice.explain.aftermath import settle
from allot.core.advice.explain.diagnosis import patch_of
from allot.core.advice.explain.report import Change, Explanation, Reason, State
from allot.core.advice.explain.trial import pod_subject, try_out
from allot.core.advice.explain.wording import count, listed
from allot.core.advice.explain.workloads.scene import (
    HeldBack,
    Scene,
    all_ready,
    as_wanted,
    budgets,
    held_back,
    live_pods,
    mismatch,
    not_as_wanted,
    not_created,
    of_pod,
    ready_text,
    unobserved,
)
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import CannotChange, Journal, WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import Deployment, DeploymentSpec, ReplicaSet
from allot.core.workloads.pod_states import is_ready
from allot.core.workloads.pod_templates import template_key
from allot.core.workloads.replicaset import replicas_of
from allot.core.workloads.rollout import RECREATE, max_surge, max_unavailable, wanted_replicas

_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_DEADLINE = "ProgressDeadlineExceeded"


def explain_replica_set(scene: Scene, found: ReplicaSet, *, briefly: bool) -> Explanation:
    """Why a ReplicaSet has fewer pods than wanted."""
    kind, wanted, status = "ReplicaSet", replicas_of(found), found.status
    pods = scene.owned_by(core_v1.Pod, found)
    early = mismatch(kind, found, found.spec.selector, found.spec.template) or unobserved(
        scene, kind, found, status.observed_generation, "replicaset-controller"
    )
    if early is not None:
        return early
    ready = ready_text(status.ready_replicas, wanted)
    failure = _failure(found)
    if failure or len(live_pods(pods)) < wanted:
        refused = not_created(
            scene, kind, found, ready, failure, lacking=wanted - max(len(live_pods(pods)), status.ready_replicas)
        )
        if refused is not None:
            return replace(refused, details=(*refused.details, *budgets(scene, pods)))
    held = held_back(scene, pods, briefly=briefly)
    if held is not None:
        text = f"{ready}: {held.text}"
        return of_pod(not_as_wanted(kind, found, held.explanation.reason, text), held.explanation, budgets(scene, pods))
    if status.ready_replicas < wanted:
        return not_as_wanted(kind, found, Reason.PROGRESSING, f"{ready}: its controller is working on it")
    return as_wanted(kind, found, all_ready(wanted))


def _failure(found: ReplicaSet) -> str:
    for condition in found.status.conditions:
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return condition.message
    return ""


def explain_deployment(scene: Scene, found: Deployment, *, briefly: bool) -> Explanation:
    """Why a Deployment does not have the wanted pods."""
    kind, spec, status = "Deployment", found.spec, found.status
    early = mismatch(kind, found, spec.selector, spec.template) or unobserved(
        scene, kind, found, status.observed_generation, "deployment-controller"
    )
    if early is not None:
        return early
    sets = scene.owned_by(ReplicaSet, found)
    new, old = _new_and_old(found, sets)
    wanted = wanted_replicas(spec)
    ready = ready_text(status.ready_replicas, wanted)
    pods = [pod for each in sets for pod in scene.owned_by(core_v1.Pod, each)]
    details = _conditions(found)
    if _is_complete(found, old):
        return replace(as_wanted(kind, found, all_ready(wanted)), details=tuple(budgets(scene, pods)))
    if spec.paused:
        text = f"{ready} and is paused: nothing is rolled out until it is resumed"
        resume = f"kubectl rollout resume deployment {found.metadata.name} -n {found.metadata.namespace}"
        return not_as_wanted(kind, found, Reason.PAUSED, text, details=details, advice=(resume,))
    failure = next((said for each in (new, *old) if each is not None and (said := _failure(each))), "")
    if failure or not live_pods(pods):
        refused = not_created(
            scene, kind, found, ready, failure, lacking=wanted - max(len(live_pods(pods)), status.ready_replicas)
        )
        if refused is not None:
            return replace(refused, details=(*details, *refused.details))
    if new is not None:
        rollout = Rollout(scene, found, new, old)
        stuck = rollout.stuck(briefly=briefly)
        if stuck is not None:
            return replace(stuck, details=(*details, *stuck.details))
    held = held_back(scene, pods, briefly=briefly)
    if held is not None:
        text = f"{ready}: {held.text}"
        serving = _serving(scene, sets, held)
        explained = of_pod(
            not_as_wanted(kind, found, held.explanation.reason, text),
            held.explanation,
            [*details, *budgets(scene, pods)],
        )
        if not serving or status.ready_replicas < wanted:
            return explained
        still = f"{count(len(serving), 'old pod')} still {'serves' if len(serving) == 1 else 'serve'}"
        cause = f"{kind} {full_name(found)} cannot finish its rollout: {held.text}; {still}"
        undo = f"roll back: kubectl rollout undo deployment {found.metadata.name} -n {found.metadata.namespace}"
        return replace(explained, cause=cause, changes=(*explained.changes, Change(text=undo)))
    text = f"{ready} and {status.updated_replicas} of them up to date: its rollout continues"
    return not_as_wanted(kind, found, Reason.PROGRESSING, text, details=details)


def _serving(scene: Scene, sets: Sequence[ReplicaSet], held: HeldBack) -> list[core_v1.Pod]:
    """Ready pods of other templates."""
    owned = [scene.owned_by(core_v1.Pod, each) for each in sets]
    stuck = {pod.metadata.uid for pod in held.pods}
    return [
        pod
        for pods in owned
        if not stuck & {pod.metadata.uid for pod in pods}
        for pod in live_pods(pods)
        if is_ready(pod)
    ]


def _is_complete(found: Deployment, old: Sequence[ReplicaSet]) -> bool:
    wanted, status = wanted_replicas(found.spec), found.status
    return status.ready_replicas >= wanted and status.updated_replicas >= wanted and not any(map(replicas_of, old))


def _conditions(found: Deployment) -> list[str]:
    """Its relevant conditions."""
    return [
        f"condition {each.type} is {each.status}, {each.reason}: {each.message}"
        for each in found.status.conditions
        # The first line already says that pods are missing.
        if each.type == "Progressing" and each.status == "False"
    ]


def _new_and_old(found: Deployment, sets: Sequence[ReplicaSet]) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
    """The ReplicaSet of the current template, the oldest if there are several, and the others."""
    if found.spec.template is None:
        return None, list(sets)
    key = template_key(found.spec.template)
    by_age = sorted(sets, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name))
    same = [
        each for each in by_age if each.spec.template is not None and template_key(each.spec.template, _HASH) == key
    ]
    # The revision distinguishes equal templates, and recognizes a template that was written differently.
    revision = found.metadata.annotations.get(_REVISION)
    numbered = [each for each in same or by_age if revision and each.metadata.annotations.get(_REVISION) == revision]
    new = next(iter(numbered or same), None)
    return new, [each for each in sets if each is not new]


class Rollout:
    """A rolling update in progress."""

    def __init__(self, scene: Scene, deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> None:
        self._scene = scene
        self._deployment = deployment
        self._new_pods = live_pods(scene.owned_by(core_v1.Pod, new))
        self._old_pods = live_pods(pod for each in old for pod in scene.owned_by(core_v1.Pod, each))

    def stuck(self, *, briefly: bool) -> Explanation | None:
        """Why it is stuck: no new pod can start, and no old one may be deleted before that. None if it is not."""
        spec = self._deployment.spec
        if not self._old_pods or spec.strategy.type == RECREATE or self._may_go(spec) > 0:
            return None
        waiting = [pod for pod in self._new_pods if not is_ready(pod)]
        if not waiting or any(pod.spec.node_name for pod in waiting):
            return None
        held = held_back(self._scene, waiting, briefly=True)
        if held is None or held.explanation.state is not State.PENDING or held.explanation.reason is Reason.FITS:
            return None
        text = (
            f"cannot continue its rollout: {held.text}, and no old pod ({listed([p.metadata.name for p in self._old_pods])}) may "
            f"be deleted before a new one is available, because {self._why(spec)}"
        )
        found = not_as_wanted("Deployment", self._deployment, Reason.ROLLOUT_STUCK, text)
        if briefly:
            return found
        return of_pod(replace(found, changes=tuple(self._changes(held))), self._scene.explain_pod(held.pods[0], False))

    def _may_go(self, spec: DeploymentSpec) -> int:
        """How many old pods may be deleted now."""
        available = sum(is_ready(pod) for pod in (*self._new_pods, *self._old_pods))
        return available - (wanted_replicas(spec) - max_unavailable(spec))

    def _why(self, spec: DeploymentSpec) -> str:
        wanted, rolling = wanted_replicas(spec), spec.strategy.rolling_update
        given = rolling.max_unavailable if rolling is not None else None
        rounded = f" ({given} of {count(wanted, 'replica')}, rounded down)" if isinstance(given, str) else ""
        unavailable = max_unavailable(spec)
        if unavailable:
            return f"no more than maxUnavailable {unavailable}{rounded} of its pods may be missing, and as many are"
        return f"maxUnavailable is 0{rounded}, with maxSurge {max_surge(spec)}"

    # --- what would help ---

    def _changes(self, held: HeldBack) -> Iterator[Change]:
        metadata = self._deployment.metadata
        where = f"in Deployment {metadata.namespace}/{metadata.name}"
        one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
        tries = (
            (
                f"set maxSurge: 0 and maxUnavailable: 1 {where}, so that an old pod is deleted before a new one is created",
                one_by_one,
            ),
            (f"set strategy: {{type: Recreate}} {where}, so that all old pods are deleted first", {"type": RECREATE}),
        )
        for text, strategy in tries:
            operation = {"op": "add", "path": "/spec/strategy", "value": strategy}
            patch = patch_of("Deployment", metadata.name, operation, namespace=metadata.namespace)
            node = self._node_after(patch, held.pods[0])
            if node:
                yield Change(text=text, verified=True, node=node, patches=(patch,))

    def _node_after(self, patch: Patch, pod: core_v1.Pod) -> str:
        """Where a new pod is placed after the controller has acted on the changed Deployment; empty if nowhere."""
        subject = pod_subject(pod)

        def after(changed: WhatIfCluster, journal: Journal) -> None:
            metadata = self._deployment.metadata
            deployment = changed.get(Deployment, metadata.name, metadata.namespace)
            assert deployment is not None, "a Deployment that was changed is there"
            many = len(self._old_pods)
            if deployment.spec.strategy.type != RECREATE:
                many = max(self._may_go(deployment.spec), 0)
            for old in self._old_pods[:many]:
                changed.delete(old, journal)
            settle(changed, journal, list(subject.pods))

        try:
            with self._scene.what_if.changed((patch,), after) as changed:
                outcome = try_out(changed, subject)
                return outcome.node_of(subject) if outcome.schedulable else ""
        except CannotChange:
            return ""
