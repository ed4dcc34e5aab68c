"""Why a HorizontalPodAutoscaler does not scale."""

from __future__ import annotations

import re

from msgspec.structs import replace

from allot.core.advice.explain.causes.selecting import Unselected
from allot.core.advice.explain.causes.serving import not_served
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.wording import count, listed
from allot.core.advice.explain.workloads.exporters import without_pods
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, not_as_wanted
from allot.core.advice.nearest import nearest
from allot.core.model import core_v1
from allot.core.model.apps_v1 import Deployment, ReplicaSet, StatefulSet
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.observed_v1 import APIService, HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition
from allot.core.workloads.ownership import selector_of

_NO_REQUEST = re.compile(r"missing request for (?P<resource>\S+)(?: in container (?P<container>\S+))?")
_METRIC = re.compile(r"unable to get (?:resource |external )?metric (?P<name>[^\s:]+)")
_RESOURCE_METRICS = "metrics.k8s.io"
_TARGETS: dict[str, type[APIStruct]] = {"Deployment": Deployment, "ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet}


def explain_autoscaler(scene: Scene, found: HorizontalPodAutoscaler, *, briefly: bool) -> Explanation:  # noqa: ARG001
    """Why an autoscaler does not scale, or no further."""
    kind, spec, status = "HorizontalPodAutoscaler", found.spec, found.status
    target = spec.scale_target_ref
    missing = _missing_target(scene, found)
    if missing is not None:
        return missing
    if not status.conditions:
        check = "check that horizontal-pod-autoscaler-controller runs: allot controllers, or a kube-controller-manager"
        text = "has not been processed by any controller since it was created"
        return not_as_wanted(kind, found, Reason.NOT_OBSERVED, text, advice=(check,))
    able, active = _condition(found, "AbleToScale"), _condition(found, "ScalingActive")
    if able is not None and able.status == "False":
        text = f"cannot scale {target.kind} {target.name} ({able.reason}): {able.message}"
        return not_as_wanted(kind, found, Reason.TARGET_MISSING, text)
    if active is not None and active.status == "False":
        if active.reason == "ScalingDisabled":
            return as_wanted(kind, found, f"is idle: {target.kind} {target.name} is scaled to 0")
        text = f"does not scale {target.kind} {target.name} ({active.reason}): {active.message}"
        lacking = _NO_REQUEST.search(active.message)
        advice: tuple[str, ...] = _advice(active.reason)
        metric = _METRIC.search(active.message)
        down = _not_served(scene, active.message) or (
            without_pods(scene.what_if, metric["name"], _pods_of(scene, found)) if metric is not None else None
        )
        if down is not None:
            what = f"metric {metric['name']}" if metric is not None else "its metric"
            text = (
                f"does not scale {target.kind} {target.name} ({active.reason}), as {what} cannot be read: {down.text}"
            )
            advice = (down.advice,)
        if lacking is not None:
            where = f" container {lacking['container']} of" if lacking["container"] else ""
            advice = (f"set resources.requests.{lacking['resource']} in{where} {target.kind} {target.name}",)
        return not_as_wanted(kind, found, Reason.METRIC_MISSING, text, advice=advice)
    limited = _condition(found, "ScalingLimited")
    if limited is not None and limited.status == "True" and status.current_replicas >= spec.max_replicas:
        text = f"is at its maximum of {count(spec.max_replicas, 'replica')} (maxReplicas), and its metrics ask for more"
        advice = (f"raise spec.maxReplicas of HorizontalPodAutoscaler {found.metadata.name}",)
        return not_as_wanted(kind, found, Reason.AT_MAXIMUM, text, advice=advice)
    text = f"keeps {target.kind} {target.name} at {count(status.desired_replicas, 'replica')} (of {spec.min_replicas or 1} to {spec.max_replicas})"
    return as_wanted(kind, found, text)


def with_autoscaler(scene: Scene, found: APIStruct, explained: Explanation) -> Explanation:
    """A workload that has all its pods, with the autoscaler that would give it another number of them if it could."""
    metadata: ObjectMeta = found.metadata  # type: ignore[attr-defined]
    kind = type(found).__name__
    for each in scene.what_if.all(HorizontalPodAutoscaler):
        target = each.spec.scale_target_ref
        if (target.kind, target.name, each.metadata.namespace) != (kind, metadata.name, metadata.namespace):
            continue
        scaler = explain_autoscaler(scene, each, briefly=True)
        if scaler.state is State.NOT_AS_WANTED:
            said = scaler.cause.replace(f"{each.metadata.namespace}/{each.metadata.name}", each.metadata.name, 1)
            cause = f"{explained.cause}, but {said}"
            return replace(
                explained,
                state=scaler.state,
                reason=scaler.reason,
                cause=cause,
                details=(*explained.details, *scaler.details),
                changes=scaler.changes,
            )
    return explained


def _not_served(scene: Scene, said: str) -> Unselected | None:
    """The metrics API named in a message, if it is not served; None if it is, or if unknown."""
    for entry in scene.what_if.all(APIService):
        named = entry.spec.group in said or (entry.spec.group == _RESOURCE_METRICS and "resource metrics API" in said)
        found = not_served(scene.what_if, entry) if named else None
        if found is not None:
            return found
    return None


def _pods_of(scene: Scene, found: HorizontalPodAutoscaler) -> list[core_v1.Pod]:
    """The pods that an autoscaler counts."""
    target, namespace = found.spec.scale_target_ref, found.metadata.namespace
    type_ = _TARGETS.get(target.kind)
    there = scene.what_if.get(type_, target.name, namespace) if type_ is not None else None
    requirements = selector_of(there.spec.selector) if there is not None else None  # type: ignore[attr-defined]
    if requirements is None:
        return []
    return [pod for pod in scene.pods_in(namespace) if requirements.matches(pod.metadata.labels)]


def _condition(found: HorizontalPodAutoscaler, type_: str) -> HorizontalPodAutoscalerCondition | None:
    return next((each for each in found.status.conditions if each.type == type_), None)


def _missing_target(scene: Scene, found: HorizontalPodAutoscaler) -> Explanation | None:
    target, namespace = found.spec.scale_target_ref, found.metadata.namespace
    type_ = _TARGETS.get(target.kind)
    if type_ is None or type_ in scene.what_if.unread or scene.what_if.get(type_, target.name, namespace) is not None:
        return None
    names = sorted(
        each.metadata.name  # type: ignore[attr-defined]
        for each in scene.what_if.all(type_)
        if each.metadata.namespace == namespace  # type: ignore[attr-defined]
    )
    meant = nearest(target.name, names)
    there = f"did you mean {meant}?" if meant is not None else f"there is {listed(names)}" if names else "there is none"
    text = f"has nothing to scale: {target.kind} {namespace}/{target.name} does not exist ({there})"
    advice = (f"set spec.scaleTargetRef.name: {meant or names[0]}",) if names else ()
    return not_as_wanted("HorizontalPodAutoscaler", found, Reason.TARGET_MISSING, text, advice=advice)


def _advice(reason: str) -> tuple[str, ...]:
    if reason == "FailedGetResourceMetric":
        return ("check that kubectl top pods shows the pods, and that their containers have requests of that resource",)
    if reason in ("FailedGetPodsMetric", "FailedGetObjectMetric", "FailedGetContainerResourceMetric"):
        return ("check that the pods publish the metric: kubectl get --raw /apis/custom.metrics.k8s.io/v1beta2",)
    if reason == "FailedGetExternalMetric":
        return ("check that the metric is published: kubectl get --raw /apis/external.metrics.k8s.io/v1beta1",)
    return ()
