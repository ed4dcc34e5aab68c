"""ComputeClasses for advice: those of a cluster, their effect on pods before admission, and reasons as sentences."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from allot.core.advice.nearest import did_you_mean
from allot.core.autoscaling.classes import Classes
from allot.core.autoscaling.pools import Pool
from allot.core.autoscaling.scale_up import PoolReason
from allot.core.model.compute_classes import CLASS_LABEL, ComputeClass, class_of
from allot.core.model.core_v1 import Pod, Taint, Toleration
from allot.core.selectors import tolerates


def classes_of(found: Iterable[ComputeClass]) -> Classes | None:
    """The classes of a cluster; None if it has none, so the label has no meaning."""
    known = list(found)
    return Classes(known) if known else None


def admitted(pod: Pod) -> Pod:
    """A pod after admission: it tolerates the nodes of the class that it selects."""
    name = class_of(pod)
    taint = Taint(key=CLASS_LABEL, value=name, effect="NoSchedule")
    if not name or any(tolerates(each, taint) for each in pod.spec.tolerations):
        return pod
    wanted = Toleration(key=CLASS_LABEL, operator="Equal", value=name, effect="NoSchedule")
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, wanted)))


def of_class(pool: Pool, name: str) -> Pool:
    """A pool as a class would create it: its nodes have the label and the taint."""
    node = pool.template.node
    labels = {**node.metadata.labels, CLASS_LABEL: name}
    taints = (*node.spec.taints, Taint(key=CLASS_LABEL, value=name, effect="NoSchedule"))
    labelled = replace(node, metadata=replace(node.metadata, labels=labels), spec=replace(node.spec, taints=taints))
    return replace(pool, template=replace(pool.template, node=labelled))


def reason_line(reason: PoolReason) -> str:
    """Why a pool or a priority does not help: `priority 1 (a100-80): max node group size reached`."""
    said = ", ".join(reason.reasons) or "it does not fit"
    hint = did_you_mean(reason.value, reason.known) if reason.value and reason.known else ""
    parts = (reason.who, said, reason.detail) if reason.who else (reason.detail,)
    return " ".join(filter(None, (": ".join(filter(None, parts)), hint)))
