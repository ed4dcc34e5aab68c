"""Causes related to volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, patch_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.nodes import selects_node
from allot.core.advice.explain.remedies.nodes import selector_text
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import count, joined, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, storage_v1
from allot.core.scheduling import HOSTNAME, NodeInfo, PodInfo, volume_matching

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_SOME_STORAGE = "100Gi"
_ZONE = "topology.kubernetes.io/zone"
# Copies of the same data have similar names.
_LIKENESS_MIN = 0.75
# A claim that is older than its pod by more than this has probably been written to.
_FRESH_MAX_S = 3600


def volume_cause(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Diagnosis:
    """Why a pod's volumes are not available. said: the scheduler's message."""
    candidates: list[Candidate] = []
    texts: list[str] = []
    advice: list[str] = []
    for full in what_if.cluster.profiles.of(pod).volume_claims:
        namespace, _, name = full.partition("/")
        claim = what_if.get(core_v1.PersistentVolumeClaim, name, namespace)
        if claim is None:
            texts.append(f"PersistentVolumeClaim {full} does not exist{_similar(what_if, namespace, name)}")
            candidates += _new_claim(what_if, namespace, name)
            advice.append(f"create PersistentVolumeClaim {full}")
        elif not claim.spec.volume_name:
            texts.append(f"PersistentVolumeClaim {full} is not bound{_why_unbound(what_if, claim)}")
            candidates += _other_classes(what_if, pod, claim)
            advice += _class_advice(what_if, pod, claim)
        elif not volume_matching.is_bound(claim):
            texts.append(
                f"PersistentVolumeClaim {full} names volume {claim.spec.volume_name}, but is not bound to it yet"
            )
            advice.append("wait a moment: the volume controller of the controller manager binds them")
    return Diagnosis(
        reason=Reason.VOLUME,
        text=listed(texts) or said,
        candidates=tuple(candidates),
        advice=tuple(advice),
    )


def _class_advice(what_if: WhatIfCluster, pod: core_v1.Pod, claim: core_v1.PersistentVolumeClaim) -> Iterator[str]:
    """For a claim whose class does not exist, or has provisioned nothing."""
    name = claim.spec.storage_class_name or ""
    known = sorted(class_.metadata.name for class_ in what_if.all(storage_v1.StorageClass))
    if name in known:
        yield f"find out why it has no volume: allot explain pvc/{claim.metadata.name} -n {claim.metadata.namespace}"
        return
    if known:
        yield _with_class(pod, claim, nearest(name, known) or known[0])
    if name:
        yield f"create StorageClass {name}"


def _new_claim(what_if: WhatIfCluster, namespace: str, name: str) -> Iterator[Candidate]:
    """A claim of the default class, or of the only one."""
    classes = {class_.metadata.name: class_ for class_ in what_if.all(storage_v1.StorageClass)}
    default = [each for each, found in classes.items() if found.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    for class_ in default or (classes if len(classes) == 1 else ()):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_,
            "resources": {"requests": {"storage": _SOME_STORAGE}},
        }
        metadata = {"namespace": namespace, "name": name}
        object_ = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        text = f"create PersistentVolumeClaim {namespace}/{name} (storageClassName: {class_})"
        yield Candidate(rank=Rank.CREATE, text=text, patches=(Patch(action="create", object=object_),))


def _similar(what_if: WhatIfCluster, namespace: str, name: str) -> str:
    known = [
        each.metadata.name
        for each in what_if.all(core_v1.PersistentVolumeClaim)
        if each.metadata.namespace == namespace
    ]
    meant = nearest(name, known)
    return f' (did you mean "{meant}"?)' if meant is not None else ""


def node_text(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> str:
    """Which of a pod's volumes a node does not reach; empty if it reaches them all."""
    texts = []
    for claim, volume in _bound(what_if, pod):
        affinity = volume.spec.node_affinity
        required = affinity.required if affinity is not None else None
        if required is not None and not selects_node(required, info):
            texts.append(
                f"does not reach volume {volume.metadata.name} of PersistentVolumeClaim {claim.metadata.name}, which is only for "
                f"nodes with {selector_text(required)}"
            )
    for full in what_if.cluster.profiles.of(pod).volume_claims:
        namespace, _, name = full.partition("/")
        waiting = what_if.get(core_v1.PersistentVolumeClaim, name, namespace)
        if waiting is not None and not waiting.spec.volume_name:
            texts.append(
                f"has no volume that PersistentVolumeClaim {name} (class {waiting.spec.storage_class_name}) could be bound to"
                f"{_made_where(what_if, waiting)}"
            )
    texts += _exclusive(what_if, pod)
    return joined(texts) or _too_many(what_if, pod, info)


def on_lost_nodes(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A volume on nodes that no longer exist: no change in the cluster helps."""
    for claim, volume in _bound(what_if, pod):
        affinity = volume.spec.node_affinity
        gone = _gone_nodes(what_if, affinity.required if affinity is not None else None)
        if not gone:
            continue
        name, nodes = claim.metadata.name, named("node", gone)
        text = f"volume {volume.metadata.name} of its PersistentVolumeClaim {name} is on {nodes}, which the cluster no longer has"
        advice = (
            f"bring {nodes} back, with the data of PersistentVolumeClaim {name}",
            f"give up that data: delete PersistentVolumeClaim {name}, let it be recreated, and restore it from a backup",
        )
        return Diagnosis(reason=Reason.VOLUME, text=text, advice=advice)
    return None


def _gone_nodes(what_if: WhatIfCluster, required: core_v1.NodeSelector | None) -> list[str]:
    """The nodes of a volume, if it names nodes and none of them exists."""
    names: list[str] = []
    for term in required.node_selector_terms if required is not None else ():
        found = [each for each in term.match_expressions if each.key == HOSTNAME and each.operator == "In"]
        if not found:
            return []
        names += found[0].values
    there = {info.labels.get(HOSTNAME, info.name) for info in what_if.cluster.nodes.values()}
    return [] if there & set(names) else sorted(set(names))


def _made_where(what_if: WhatIfCluster, claim: core_v1.PersistentVolumeClaim) -> str:
    """Where the class of a claim provisions volumes, if not everywhere."""
    class_ = what_if.get(storage_v1.StorageClass, claim.spec.storage_class_name or "")
    terms = class_.allowed_topologies if class_ is not None else ()
    shown = [f"{each.key} in ({', '.join(each.values)})" for term in terms for each in term.match_label_expressions]
    return f": the class creates volumes only where {listed(shown)}" if shown else ""


def other_users(what_if: WhatIfCluster, pod: core_v1.Pod) -> list[PodInfo]:
    """Pods that use a volume claim of the pod which only one pod may use."""
    own = set(what_if.cluster.volumes.exclusive(what_if.cluster.profiles.of(pod)))
    return [
        each
        for info in what_if.cluster.nodes.values()
        for each in info.pods.values()
        if own.intersection(each.profile.volume_claims)
    ]


def _exclusive(what_if: WhatIfCluster, pod: core_v1.Pod) -> Iterator[str]:
    users = other_users(what_if, pod)
    for full in what_if.cluster.volumes.exclusive(what_if.cluster.profiles.of(pod)) if users else ():
        who = named("pod", [full_name(each.pod) for each in users if full in each.profile.volume_claims])
        yield f"cannot use PersistentVolumeClaim {full}, which only one pod may use (ReadWriteOncePod): {who} uses it"


def _too_many(what_if: WhatIfCluster, pod: core_v1.Pod, info: NodeInfo) -> str:
    """A node that cannot attach more volumes; empty if that is not its reason."""
    found = what_if.get(storage_v1.CSINode, info.name)
    drivers = {volume.spec.csi.driver for _, volume in _bound(what_if, pod) if volume.spec.csi is not None}
    for driver in found.spec.drivers if found is not None else ():
        most = driver.allocatable.count if driver.allocatable is not None else None
        if most is not None and (driver.name in drivers or len(found.spec.drivers if found is not None else ()) == 1):
            users = [full_name(each.pod) for each in info.pods.values() if each.profile.volume_claims]
            held = f", which {named('pod', users)} {'has' if len(users) == 1 else 'have'}" if users else ""
            return f"can attach only {count(most, 'volume')} of driver {driver.name}{held}"
    return ""


def _bound(
    what_if: WhatIfCluster, pod: core_v1.Pod
) -> Iterator[tuple[core_v1.PersistentVolumeClaim, core_v1.PersistentVolume]]:
    for full in what_if.cluster.profiles.of(pod).volume_claims:
        namespace, _, name = full.partition("/")
        claim = what_if.get(core_v1.PersistentVolumeClaim, name, namespace)
        volume = what_if.get(core_v1.PersistentVolume, claim.spec.volume_name) if claim is not None else None
        if claim is not None and volume is not None:
            yield claim, volume


def volume_advice(what_if: WhatIfCluster, pod: core_v1.Pod, near: Sequence[NodeInfo]) -> Iterator[str]:
    """Remedies for volumes that are not where the devices are, or that only one pod may use. near: the nodes that would otherwise
    fit."""
    for full in (
        what_if.cluster.volumes.exclusive(what_if.cluster.profiles.of(pod)) if other_users(what_if, pod) else ()
    ):
        yield (
            f"use a PersistentVolumeClaim with accessModes: [ReadWriteMany] instead of {full} in the pod: recreate it, as access "
            "modes are immutable; or give each pod its own"
        )
    names = [
        claim.metadata.name
        for claim, volume in _bound(what_if, pod)
        if (affinity := volume.spec.node_affinity) is not None
        and (required := affinity.required) is not None
        and not any(selects_node(required, info) for info in near)
    ]
    for full in what_if.cluster.profiles.of(pod).volume_claims:
        namespace, _, name = full.partition("/")
        waiting = what_if.get(core_v1.PersistentVolumeClaim, name, namespace)
        if waiting is not None and _made_where(what_if, waiting):
            yield f"give PersistentVolumeClaim {name} a StorageClass that makes volumes on {named('node', [info.name for info in near])}"
    early = [
        claim.metadata.name
        for claim, _ in _bound(what_if, pod)
        if claim.metadata.name in names and not _waits_for_pod(what_if, claim)
    ]
    filled = any(_has_data(pod, claim) for claim, _ in _bound(what_if, pod) if claim.metadata.name in names)
    if early and not filled:
        yield _created_later(what_if, early, "")
    if names:
        where = "to where the devices are" if pod.spec.resource_claims else "to where the pod may run"
        where += f",{_zone(near)}" if _zone(near) else ""
        other = _like(what_if, pod, names[0], near) if len(names) == 1 else None
        if other is not None:
            yield f"use PersistentVolumeClaim {other} instead of {names[0]} in the pod, if it has the same data: its volume is{_zone(near) or ' there'}"
        yield f"copy {named('PersistentVolumeClaim', names)} {where}{_by_snapshot(what_if, pod, names)}, or use a volume that every node reaches"
    if early and filled:
        yield _created_later(what_if, early, " first, as a volume may be deleted with its claim")


def _has_data(pod: core_v1.Pod, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether a claim was there long before the pod that waits for it: others have probably written to it."""
    made, asked = claim.metadata.creation_timestamp, pod.metadata.creation_timestamp
    return made is not None and asked is not None and seconds_of(asked) - seconds_of(made) > _FRESH_MAX_S


def _created_later(what_if: WhatIfCluster, names: Sequence[str], risk: str) -> str:
    """Volume claims whose volumes are created for the pod. risk: what happens to their data."""
    able = sorted(
        each.metadata.name
        for each in what_if.all(storage_v1.StorageClass)
        if each.volume_binding_mode == storage_v1.BINDING_WAIT
    )
    there = f" (there is {listed(able)})" if able else ""
    return (
        f"recreate {named('PersistentVolumeClaim', names)} with a StorageClass with volumeBindingMode: {storage_v1.BINDING_WAIT}{there}, so that "
        f"the volume is created where the pod runs; its data must be copied{risk}"
    )


def _by_snapshot(what_if: WhatIfCluster, pod: core_v1.Pod, names: Sequence[str]) -> str:
    """How a volume of a CSI driver gets to another zone; empty for others, such as those of one node."""
    bound = [volume for claim, volume in _bound(what_if, pod) if claim.metadata.name in names]
    if len(bound) != 1 or bound[0].spec.csi is None or bound[0].spec.node_affinity is None:
        return ""
    required = bound[0].spec.node_affinity.required
    terms = required.node_selector_terms if required is not None else ()
    keys = {each.key for term in terms for each in term.match_expressions}
    return " (a new one from a VolumeSnapshot of it)" if any(key.endswith("zone") for key in keys) else ""


def _zone(near: Sequence[NodeInfo]) -> str:
    """` in zone a`: where nodes are, if that is one zone."""
    zones = {info.labels.get(_ZONE, "") for info in near}
    return f" in zone {zones.pop()}" if len(zones) == 1 and "" not in zones else ""


def _like(what_if: WhatIfCluster, pod: core_v1.Pod, name: str, near: Sequence[NodeInfo]) -> str | None:
    """Another claim of the pod's namespace with a similar name, whose volume these nodes reach."""
    found = []
    for claim in what_if.all(core_v1.PersistentVolumeClaim):
        volume = what_if.get(core_v1.PersistentVolume, claim.spec.volume_name)
        if claim.metadata.namespace != pod.metadata.namespace or claim.metadata.name == name or volume is None:
            continue
        affinity = volume.spec.node_affinity
        required = affinity.required if affinity is not None else None
        if required is None or any(selects_node(required, info) for info in near):
            found.append(claim.metadata.name)
    return nearest(name, found, likeness_min=_LIKENESS_MIN)


def _waits_for_pod(what_if: WhatIfCluster, claim: core_v1.PersistentVolumeClaim) -> bool:
    """Whether the volume of a claim is created for its first pod's node, or by hand; otherwise it can be anywhere."""
    class_ = what_if.get(storage_v1.StorageClass, claim.spec.storage_class_name or "")
    return class_ is None or class_.volume_binding_mode == storage_v1.BINDING_WAIT


def _why_unbound(what_if: WhatIfCluster, claim: core_v1.PersistentVolumeClaim) -> str:
    name = claim.spec.storage_class_name
    if not name:
        return ": it names no StorageClass, and no volume has been bound to it"
    if what_if.get(storage_v1.StorageClass, name) is None:
        known = [class_.metadata.name for class_ in what_if.all(storage_v1.StorageClass)]
        return f": its StorageClass {name} does not exist" + (f" (there is {listed(sorted(known))})" if known else "")
    return f": StorageClass {name} has not created a volume for it"


def _other_classes(
    what_if: WhatIfCluster, pod: core_v1.Pod, claim: core_v1.PersistentVolumeClaim
) -> Iterator[Candidate]:
    """Another class for a claim, a similar name or the default first."""
    wrong = claim.spec.storage_class_name or ""
    classes = {class_.metadata.name: class_ for class_ in what_if.all(storage_v1.StorageClass)}
    meant = nearest(wrong, classes)
    ordered = sorted(
        classes,
        key=lambda name: (name != meant, classes[name].metadata.annotations.get(DEFAULT_CLASS) != "true", name),
    )
    namespace, claimed = claim.metadata.namespace, claim.metadata.name
    for name in ordered:
        if name != wrong:
            operation = {"op": "add", "path": "/spec/storageClassName", "value": name}
            yield Candidate(
                rank=Rank.FIX,
                text=_with_class(pod, claim, name),
                patches=(patch_of("PersistentVolumeClaim", claimed, operation, namespace=namespace, recreate=True),),
            )


def _with_class(pod: core_v1.Pod, claim: core_v1.PersistentVolumeClaim, name: str) -> str:
    """How a claim gets another class: the field is immutable, and a StatefulSet creates its claims from templates."""
    full, field = f"PersistentVolumeClaim {full_name(claim)}", f"storageClassName: {name}"
    if claim.spec.storage_class_name is None:
        return f"set {field} in {full}"
    maker = controller_of(pod)
    template = claim.metadata.name.removesuffix(f"-{pod.metadata.name}")
    if maker is not None and maker.kind == "StatefulSet" and template != claim.metadata.name:
        return f"recreate StatefulSet {maker.name} with {field} in its volumeClaimTemplate {template}, and {full} too"
    return f"recreate {full} with {field}"
