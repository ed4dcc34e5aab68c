"""Changes to what cannot be changed in place: a workload's pod, a claim and its template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes.kinship import deployment_of, origin
from allot.core.advice.explain.diagnosis import Candidate, patch_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.report import Change
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import CannotChange, WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.apps_v1 import StatefulSet
from allot.core.model.meta import OwnerReference
from allot.core.workloads.pod_states import is_ready

_TEMPLATE, _CLAIM = "ResourceClaimTemplate", "ResourceClaim"
PARALLEL = "Parallel"
_IN_THE_POD = re.compile(r"\b(?P<word>in|from|to|of) (?:the|this) pod\b(?!')")
_OF_THE_POD = re.compile(r"\bthe pod's\b")


def workload_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """`Deployment web`: the workload that creates pods like this one, and that users edit; empty if there is none."""
    found = origin(what_if, pod.metadata)
    if found is None:
        return ""
    deployment = deployment_of(what_if, pod) if found.kind == "ReplicaSet" else ""
    return f"Deployment {deployment}" if deployment else f"{found.kind} {found.name}"


def in_template(what_if: WhatIfCluster, pod: core_v1.Pod, changes: Iterable[Change]) -> tuple[Change, ...]:
    """Changes to the workload instead of its pod."""
    owner = workload_of(what_if, pod)
    if not owner:
        return tuple(replace(each, text=f"{each.text}{_again(each)}") for each in changes)
    again = anew(controller_of(pod), owner) or _not_replaced(what_if, pod)
    return tuple(replace(each, text=of_workload(each.text, owner, again)) for each in changes)


def _not_replaced(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """What else has to be done for a pod that a StatefulSet waits for: it does not replace one that never became ready. Empty for others."""
    maker = controller_of(pod)
    found = what_if.get(StatefulSet, maker.name, pod.metadata.namespace) if maker is not None else None
    if found is None or found.metadata.uid != (maker.uid if maker is not None else "") or is_ready(pod):
        return ""
    return "" if found.spec.pod_management_policy == PARALLEL else deletion(pod)


def deletion(pod: core_v1.Pod) -> str:
    """What has to be done after a change to the template of a StatefulSet."""
    return f", and delete pod {pod.metadata.name}: the StatefulSet does not replace a pod that is not ready by itself"


def _again(change: Change) -> str:
    """What has to be done for a change to a pod that no workload makes; empty if it can be changed in place."""
    return " (recreate the pod)" if any(each.kind == "Pod" and each.recreate for each in change.patches) else ""


def anew(maker: OwnerReference | None, owner: str) -> str:
    """What else has to be done after a change to a workload whose Jobs keep the template that they have; empty if nothing. maker: of the
    pod."""
    if maker is None or maker.kind != "Job":
        return ""
    return (
        f", and delete Job {maker.name}, which has the old template"
        if owner.startswith("CronJob ")
        else ", and recreate it"
    )


def of_workload(text: str, owner: str, again: str) -> str:
    """A change to a workload instead of its pod. again: what else has to be done then."""
    changed = _OF_THE_POD.sub(f"{owner}'s", _IN_THE_POD.sub(rf"\g<word> {owner}", text))
    return f"{changed}{again}" if changed != text and not changed.endswith(again or "\n") else changed


def existing(what_if: WhatIfCluster, pod: core_v1.Pod, candidate: Candidate) -> Candidate | None:
    """For a change that makes a claim template what another one of the namespace already is: the pod uses that one. None if there is no
    such template."""
    namespace = pod.metadata.namespace
    patch = candidate.patches[0] if len(candidate.patches) == 1 else None
    if patch is None or (patch.action, patch.kind, patch.namespace) != ("patch", _TEMPLATE, namespace):
        return None
    others = [each for each in what_if.all(api.ResourceClaimTemplate) if each.metadata.namespace == namespace]
    index = [each.resource_claim_template_name for each in pod.spec.resource_claims]
    if len(others) < 2 or index.count(patch.name) != 1:
        return None
    try:
        with what_if.changed((patch,), lambda _cluster, _journal: None) as changed:
            then = changed.get(api.ResourceClaimTemplate, patch.name, namespace)
            wanted = then.spec.spec if then is not None else None
    except CannotChange:
        return None
    name = next((each.metadata.name for each in others if each.spec.spec == wanted), None)
    if name is None:
        return None
    operation = {"op": "replace", "path": f"/spec/resourceClaims/{index.index(patch.name)}/resourceClaimTemplateName"}
    use = patch_of("Pod", pod.metadata.name, {**operation, "value": name}, namespace=namespace, recreate=True)
    # Its spec is immutable, and pods keep the claims that they have.
    again = "recreate that template" if controller_of(pod) is None else "recreate that template, then the pods"
    text = f"set resourceClaimTemplateName: {name} in the pod (that template already exists), or {candidate.text} and {again}"
    return replace(candidate, text=text, patches=(use,))


def made_again(text: str, patches: Sequence[Patch], pods: int) -> str:
    """A change with what has to be created again for it: the specs of claims and of their templates are immutable."""
    what = [
        word
        for kind, word in ((_TEMPLATE, "the template"), (_CLAIM, "the claim"))
        if any(each.kind == kind and each.action == "patch" and _is_spec(each) for each in patches)
    ]
    if not what:
        return text
    if "recreate" in text:
        return f"{text} and {what[0]}"
    return f"{text} (recreate {what[0]}, then the {'pod' if pods == 1 else 'pods'})"


def _is_spec(patch: Patch) -> bool:
    return any(str(each.get("path", "")).startswith("/spec") for each in patch.patch)
