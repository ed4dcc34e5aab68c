"""Memory limits that nobody wrote into a pod or its template: defaults of a LimitRange.

The annotation that the API server's LimitRanger leaves on a pod tells which limits are defaults, but not of which LimitRange: that is
the one whose default is the same. It may have been changed since, and so may the template.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from allot.core.advice.explain.causes.kinship import origin
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.messages.facts import memory_left
from allot.core.advice.explain.wording import joined, named
from allot.core.advice.what_if import WhatIfCluster
from allot.core.json_objects import mapping
from allot.core.model import apps_v1, batch_v1, core_v1, observed_v1
from allot.core.quantity import Quantity, QuantityError
from allot.core.quota.limits import ANNOTATION
from allot.core.workloads.pod_templates import template_value

_SET = "LimitRanger plugin set: "
_MEMORY = "memory"
_WITH_TEMPLATE: dict[
    str,
    type[apps_v1.Deployment | apps_v1.ReplicaSet | apps_v1.StatefulSet | apps_v1.DaemonSet | batch_v1.Job],
] = {
    each.__name__: each
    for each in (apps_v1.Deployment, apps_v1.ReplicaSet, apps_v1.StatefulSet, apps_v1.DaemonSet, batch_v1.Job)
}


class DefaultLimit(NamedTuple):
    """Where the memory limit of a container comes from. text: phrased to follow a colon."""

    text: str
    advice: tuple[str, ...]


class _Range(NamedTuple):
    """A LimitRange with a default for memory limits."""

    name: str
    default: Quantity


def default_limit(what_if: WhatIfCluster, pod: core_v1.Pod, container: str) -> DefaultLimit | None:
    """The default that is a container's memory limit; None if the limit was written, or there is none."""
    found = next((each for each in (*pod.spec.init_containers, *pod.spec.containers) if each.name == container), None)
    limit = found.resources.limits.get(_MEMORY) if found is not None else None
    if limit is None or limit.nano <= 0 or not _is_default(pod, container):
        return None
    written = _written(what_if, pod, container)
    if written is not None and written.nano == limit.nano:
        return None
    owner = origin(what_if, pod.metadata)
    workload = f"{owner.kind} {owner.name}" if owner is not None else "the pod"
    metadata = pod.metadata
    ranges = list(_ranges(what_if, metadata.namespace))
    same = [each for each in ranges if each.default.nano == limit.nano]
    who = (
        named("LimitRange", [each.name for each in same]) if same else f"a LimitRange of namespace {metadata.namespace}"
    )
    set_ = f"{who} {'set its' if len(same) == 1 else 'set the'} default of {limit}"
    again = _made_again(pod)
    if written is not None:
        text = f"when the pod was created, {workload} had no memory limit, so {set_}; by now it has one of {written}"
        return DefaultLimit(text, (f"{again}, so that it gets the memory limit of {workload}: {written}",))
    text = f"{workload} has no memory limit for it, so {set_}"
    other = max((each for each in ranges if each not in same), key=lambda each: each.default.nano, default=None)
    if not same and other is not None:
        text += f" when the pod was created; the default of LimitRange {other.name} is {other.default} by now"
    most = _most(what_if, pod, container)
    twice = Quantity.from_nano(2 * limit.nano, limit.format)
    wanted = twice if most is None or most[1].nano <= limit.nano else min(twice, most[1], key=lambda each: each.nano)
    own = _own_limit(what_if, pod, container, limit, wanted, most)
    # A default above the maximum is invalid.
    if same and (most is None or wanted.nano <= most[1].nano):
        change = f"raise default.memory of {who} from {limit} to {wanted}, for example, which is for all new containers without a limit, and {again}"
        return DefaultLimit(text, (own, change))
    if other is not None and other.default.nano > limit.nano:
        return DefaultLimit(text, (f"{again}, so that it gets the default of {other.default}", own))
    return DefaultLimit(text, (own,))


def _made_again(pod: core_v1.Pod) -> str:
    maker = controller_of(pod)
    if maker is None:
        return "recreate the pod"
    # Job controllers count a pod that has failed, whether it is deleted or not.
    if maker.kind == "Job" and pod.status.phase == "Failed":
        return f"recreate Job {maker.name}"
    return f"delete pod {pod.metadata.namespace}/{pod.metadata.name}"


def _is_default(pod: core_v1.Pod, container: str) -> bool:
    """Whether LimitRanger says so: `cpu, memory limit for container main; memory limit for init container load`."""
    for part in pod.metadata.annotations.get(ANNOTATION, "").removeprefix(_SET).split("; "):
        resources, is_limit, whose = part.partition(" limit for ")
        if is_limit and whose.removeprefix("init ") == f"container {container}":
            return _MEMORY in resources.split(", ")
    return False


def _written(what_if: WhatIfCluster, pod: core_v1.Pod, container: str) -> Quantity | None:
    """The memory limit in the template that new pods are made from; None if it has none, or is not known."""
    namespace = pod.metadata.namespace
    for owner in (origin(what_if, pod.metadata), controller_of(pod)):
        type_ = _WITH_TEMPLATE.get(owner.kind) if owner is not None else None
        made_by = what_if.get(type_, owner.name, namespace) if owner is not None and type_ is not None else None
        if made_by is None or owner is None or made_by.metadata.uid != owner.uid or made_by.spec.template is None:
            continue
        spec = mapping(template_value(made_by.spec.template).get("spec"))
        for each in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            if mapping(each).get("name") == container:
                limits = mapping(mapping(mapping(each).get("resources")).get("limits"))
                try:
                    return Quantity.parse(str(limits[_MEMORY])) if _MEMORY in limits else None
                except QuantityError:
                    return None
        return None
    return None


def _ranges(what_if: WhatIfCluster, namespace: str) -> Iterator[_Range]:
    for each in what_if.all(observed_v1.LimitRange):
        if each.metadata.namespace != namespace:
            continue
        # The last item counts, as in LimitRanger.
        defaults = [
            item.default[_MEMORY] for item in each.spec.limits if item.type == "Container" and _MEMORY in item.default
        ]
        if defaults:
            yield _Range(f"{namespace}/{each.metadata.name}", defaults[-1])


def _own_limit(
    what_if: WhatIfCluster,
    pod: core_v1.Pod,
    container: str,
    limit: Quantity,
    wanted: Quantity,
    most: tuple[str, Quantity] | None,
) -> str:
    """To write a limit. most: what a LimitRange allows."""
    known = []
    first = ""
    if most is not None:
        name, bound = most
        if bound.nano <= limit.nano:
            first = f"raise max.memory of LimitRange {name} above {bound}, then "
        else:
            known.append(f"LimitRange {name} allows up to {bound}")
    left = memory_left(what_if, pod)
    known += [f"node {pod.spec.node_name} has {left} left"] if left else []
    room = f" ({joined(known)})" if known else ""
    again = "" if controller_of(pod) else ", and recreate it"
    return f"{first}set resources.limits.memory and resources.requests.memory of container {container} in the pod to {wanted}, for example{room}{again}"


def _most(what_if: WhatIfCluster, pod: core_v1.Pod, container: str) -> tuple[str, Quantity] | None:
    """The LimitRange that allows a container the least, and how much that is; None if nothing limits it."""
    others = sum(
        each.resources.limits[_MEMORY].nano
        for each in pod.spec.containers
        if each.name != container and _MEMORY in each.resources.limits
    )
    found = []
    for range_ in what_if.all(observed_v1.LimitRange):
        for item in range_.spec.limits if range_.metadata.namespace == pod.metadata.namespace else ():
            bound = item.max.get(_MEMORY)
            if bound is None or item.type not in ("Container", "Pod"):
                continue
            taken = others if item.type == "Pod" else 0
            left = Quantity.from_nano(max(0, bound.nano - taken), bound.format)
            found.append((f"{range_.metadata.namespace}/{range_.metadata.name}", left))
    return min(found, key=lambda each: (each[1].nano, each[0]), default=None)
