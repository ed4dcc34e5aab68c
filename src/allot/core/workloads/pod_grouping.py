"""Which pods form a PodGroup of KAI if their users created none: by their owners.

A pod's controllers are followed to the top one, whose kind determines how many pods start together and in which parts. Kinds of
other operators are recognized by their specs and by the labels of their pods, as in KAI's pod grouper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import Resource
from allot.core.model import kai_words as words
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import OwnerReference

Object = Mapping[str, Any]

TRAIN, BUILD, INFERENCE = "train", "build", "inference"
_SEGMENTS_MAX = 10_000
# Of an owner's name in the name of its group, which has at most 253 characters.
_NAME_MAX = 180
_KUBEFLOW = "kubeflow.org"


class Ungroupable(Exception):
    """A pod's owner does not say how many pods start together."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-group."""

    name: str
    parent: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    near: Mapping[str, str] = {}


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods of an owner start together. part: that of the given pod; suffix: of the group's name, if an owner has
    several.
    """

    min_member: int | None = 1
    min_sub_group: int | None = None
    parts: tuple[Part, ...] = ()
    part: str = ""
    suffix: str = ""
    default_class: str = TRAIN


class Grouping(msgspec.Struct, frozen=True, kw_only=True):
    """The desired PodGroup of a pod, and the pod's part of it."""

    name: str
    part: str
    metadata: Object
    spec: Object


def _known(group: str, plural: str, kind: str, *versions: str) -> dict[tuple[str, str], tuple[Resource, ...]]:
    made = tuple(
        Resource(group=group, version=version, plural=plural, kind=kind, namespaced=True) for version in versions
    )
    return {(group, kind): made}


# Kinds to look up: owners of other kinds are known by their references alone.
OWNERS: Mapping[tuple[str, str], tuple[Resource, ...]] = {
    **_known("apps", "replicasets", "ReplicaSet", "v1"),
    **_known("apps", "deployments", "Deployment", "v1"),
    **_known("apps", "statefulsets", "StatefulSet", "v1"),
    **_known("batch", "jobs", "Job", "v1"),
    **_known("batch", "cronjobs", "CronJob", "v1"),
    **_known(_KUBEFLOW, "pytorchjobs", "PyTorchJob", "v1"),
    **_known(_KUBEFLOW, "tfjobs", "TFJob", "v1"),
    **_known(_KUBEFLOW, "xgboostjobs", "XGBoostJob", "v1"),
    **_known(_KUBEFLOW, "jaxjobs", "JAXJob", "v1"),
    **_known(_KUBEFLOW, "mpijobs", "MPIJob", "v2beta1", "v1"),
    **_known(_KUBEFLOW, "notebooks", "Notebook", "v1", "v1beta1"),
    **_known("trainer.kubeflow.org", "trainjobs", "TrainJob", "v1alpha1"),
    **_known("jobset.x-k8s.io", "jobsets", "JobSet", "v1alpha2"),
    **_known("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet", "v1"),
    **_known("ray.io", "rayclusters", "RayCluster", "v1"),
    **_known("ray.io", "rayjobs", "RayJob", "v1"),
    **_known("ray.io", "rayservices", "RayService", "v1"),
    **_known("argoproj.io", "workflows", "Workflow", "v1alpha1"),
}
# Kinds that only wrap others: the owner below determines how many pods start together.
_WRAPPERS = frozenset((("argoproj.io", "Workflow"), ("trainer.kubeflow.org", "TrainJob"), ("batch", "CronJob")))


def resource_of_owner(reference: OwnerReference) -> Resource | None:
    """Where to look up an owner; None if it is known by its reference alone."""
    group, _, version = reference.api_version.rpartition("/")
    known = OWNERS.get((group, reference.kind), ())
    return next((each for each in known if each.version == version), None)


def controller_of(references: Iterable[OwnerReference]) -> OwnerReference | None:
    """The controller of an object."""
    return next((each for each in references if each.controller), None)


def by_reference(reference: OwnerReference, namespace: str) -> Object:
    """An owner known only by its reference."""
    metadata = {"name": reference.name, "namespace": namespace, "uid": reference.uid}
    return {"apiVersion": reference.api_version, "kind": reference.kind, "metadata": metadata}


def is_skipped(pod: Pod, owners: Sequence[Object]) -> bool:
    """Whether a pod, or its owner, opts out of grouping."""
    own = (pod.metadata.labels, pod.metadata.annotations)
    theirs = (each for owner in owners for each in (_labels(owner), _annotations(owner)))
    return any(words.SKIP_GROUPER in each and each[words.SKIP_GROUPER] == "true" for each in (*own, *theirs))


def group_of(pod: Pod, owners: Sequence[Object], classes: Collection[str]) -> Grouping:
    """The group of a pod. owners: its controllers, nearest first; classes: the existing priority classes. Ungroupable with the
    reason if the top owner lacks necessary information.
    """
    top = _top(owners)
    shape = _shape(pod, owners, top)
    if top is None or _is_per_pod(top):
        owner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid}}
    else:
        owner = dict(top)
    about = _metadata(owner)
    spark = pod.metadata.labels.get("spark-app-selector", "") if "spark-app-name" in pod.metadata.labels else ""
    name = spark or f"pg-{about['name'][:_NAME_MAX].rstrip('.-')}-{about['uid']}{shape.suffix}"
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"], "uid": about["uid"]}
    said = _Said(pod, owners, top)
    annotations = {
        words.TOP_OWNER: f"name: {about['name']}\nuid: {about['uid']}\ngroup: {_group_of(owner)}\nkind: {owner['kind']}\n"
    }
    metadata = {
        "name": name,
        "namespace": pod.metadata.namespace,
        "annotations": annotations,
        "ownerReferences": [reference],
    }
    return Grouping(name=name, part=shape.part, metadata=metadata, spec=_spec(shape, said, classes))


class _Said:
    """Labels and annotations: those of the top owner before those of the pod, unless only one of them counts."""

    def __init__(self, pod: Pod, owners: Sequence[Object], top: Object | None) -> None:
        self._pod = pod
        self._owners = owners
        self.top_annotations = _annotations(top) if top is not None else pod.metadata.annotations

    def label(self, name: str) -> str:
        for owner in reversed(self._owners):
            if _labels(owner).get(name):
                return str(_labels(owner)[name])
        return self._pod.metadata.labels.get(name, "")

    def annotation(self, name: str) -> str:
        for owner in reversed(self._owners):
            if _annotations(owner).get(name):
                return str(_annotations(owner)[name])
        return self._pod.metadata.annotations.get(name, "")

    def priority_class(self, classes: Collection[str], default: str) -> str:
        """The first one that exists."""
        wanted = (self.label(words.PRIORITY_CLASS), self._pod.spec.priority_class_name, default)
        return next((name for name in wanted if name and name in classes), "")


def _spec(shape: Shape, said: _Said, classes: Collection[str]) -> Object:
    found: dict[str, Any] = {
        "minMember": shape.min_member,
        "minSubGroup": shape.min_sub_group,
        "subGroups": [_part(each) for each in shape.parts] or None,
        "queue": said.label(words.QUEUE) or said.label(words.PROJECT) or words.DEFAULT_QUEUE,
        "priorityClassName": said.priority_class(
            classes, said.label("ray.io/priority-class-name") or shape.default_class
        ),
        "preemptibility": said.label(words.PREEMPTIBILITY),
        "preemptionDelay": said.annotation(words.PREEMPTION_DELAY),
        "stalenessGracePeriod": said.annotation(words.STALENESS),
        "topologyConstraint": _near(said.top_annotations),
    }
    return {key: value for key, value in found.items() if value not in (None, "", {})}


def _part(part: Part) -> Object:
    found: dict[str, Any] = {
        "name": part.name,
        "parent": part.parent or None,
        "minMember": part.min_member,
        "minSubGroup": part.min_sub_group,
        "topologyConstraint": dict(part.near) or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _near(annotations: Mapping[str, Any]) -> dict[str, str]:
    found = {
        "topology": annotations.get(words.TOPOLOGY, ""),
        "requiredTopologyLevel": annotations.get(words.REQUIRED_LEVEL, ""),
        "preferredTopologyLevel": annotations.get(words.PREFERRED_LEVEL, ""),
    }
    return {key: value for key, value in found.items() if value}


def _top(owners: Sequence[Object]) -> Object | None:
    """The owner that counts: the top one, or the one below if that only wraps others."""
    for owner in reversed(owners):
        if (_group_of(owner), owner.get("kind")) not in _WRAPPERS:
            return owner
    return owners[0] if owners else None


def _is_per_pod(owner: Object) -> bool:
    return (_group_of(owner), owner.get("kind")) == ("apps", "Deployment")


def _shape(pod: Pod, owners: Sequence[Object], top: Object | None) -> Shape:
    if top is None:
        return Shape()
    read = _SHAPES.get((_group_of(top), str(top.get("kind"))))
    return read(pod, top, owners) if read is not None else Shape()


# --- kinds ---


def _deployment(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
    return Shape(default_class=INFERENCE)


def _notebook(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
    return Shape(default_class=BUILD)


def _job(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
    # For a CronJob, the annotation is not read.
    if any(each.get("kind") == "CronJob" for each in owners):
        return Shape()
    return Shape(min_member=_batch_minimum(owner, 1))


def _pytorch(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
    replicas = _replicas(owner, "pytorchReplicaSpecs")
    total = sum(replicas.values())
    minimum = _min_available(owner)
    if minimum is None:
        minimum = _integer(_at(owner, "spec", "elasticPolicy", "minReplicas"), total)
    of = pod.metadata.labels.get("training.kubeflow.org/replica-type", "").lower()
    master = replicas.get("Master", 0)
    size = _integer(_annotations(owner).get(words.SEGMENT_SIZE))
    parts: tuple[Part, ...] = (Part(name="master", min_member=master),) if master else ()
    part = "master" if of == "master" and master else "worker"
    if "Worker" not in replicas:
        return Shape(min_member=minimum, parts=parts, part="master" if parts else "")
    if size and size > 0:
        number = _index(pod.metadata.labels.get("training.kubeflow.org/replica-index")) // size
        segments = _segments("worker", replicas["Worker"], size)
        return Shape(min_member=None, parts=(*parts, *segments), part=f"worker-{number}" if part == "worker" else part)
    parts = (*parts, Part(name="worker", min_member=max(0, minimum - master)))
    return Shape(min_member=minimum, parts=parts, part=part)


def _segments(name: str, pods: int, size: int) -> tuple[Part, ...]:
    """A part for all pods, divided into segments of pods that are placed close together."""
    count = -(-pods // size)
    if count > _SEGMENTS_MAX:
        raise Ungroupable(
            f"{words.SEGMENT_SIZE} {size} makes {count} segments of {pods} pods: at most {_SEGMENTS_MAX} are allowed"
        )
    leaves = tuple(
        Part(name=f"{name}-{number}", parent=name, min_member=min(size, pods - number * size))
        for number in range(count)
    )
    return (Part(name=name, min_sub_group=count), *leaves)


def _kubeflow(field: str) -> Callable[[Pod, Object, Sequence[Object]], Shape]:
    def read(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
        replicas = _replicas(owner, field)
        minimum = _min_available(owner)
        return Shape(min_member=sum(replicas.values()) if minimum is None else minimum)

    return read


def _mpi(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
    replicas = _replicas(owner, "mpiReplicaSpecs")
    for needed in ("Launcher", "Worker"):
        if needed not in replicas:
            raise Ungroupable(f"MPIJob {_metadata(owner)['name']} has no spec.mpiReplicaSpecs.{needed}")
    minimum = _min_available(owner)
    total = sum(replicas.values()) if minimum is None else minimum
    waits = _at(owner, "spec", "launcherCreationPolicy") == "WaitForWorkersReady"
    is_launcher = pod.metadata.labels.get("training.kubeflow.org/job-role") == "launcher"
    return Shape(min_member=total - replicas["Launcher"] if waits and not is_launcher else total)


def _jobset(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
    jobs = [each for each in _list(_at(owner, "spec", "replicatedJobs")) if isinstance(each, Mapping)]
    order = _at(owner, "spec", "startupPolicy", "startupPolicyOrder")
    minimum = _batch_minimum(owner, 1 if order == "InOrder" else len(jobs))
    parts: list[Part] = []
    total = sum(1 + max(0, _integer(job.get("replicas"), 1)) for job in jobs)
    if total > _SEGMENTS_MAX:
        raise Ungroupable(f"JobSet {_metadata(owner)['name']} has {total} parts: at most {_SEGMENTS_MAX} are allowed")
    for job in jobs:
        name, replicas = str(job.get("name", "")), _integer(job.get("replicas"), 1)
        template = _mapping(job.get("template"))
        pods = _batch_minimum(template, _integer(_at(template, "spec", "parallelism"), 1))
        near = _near(_annotations(template))
        parts.append(Part(name=name, min_sub_group=replicas))
        parts += (
            Part(name=f"{name}-replica-{number}", parent=name, min_member=pods, near=near) for number in range(replicas)
        )
    labels = pod.metadata.labels
    job_name = labels.get("jobset.sigs.k8s.io/replicatedjob-name", "")
    index = labels.get("jobset.sigs.k8s.io/job-index", "0")
    part = f"{job_name}-replica-{index}" if job_name else ""
    return Shape(min_member=None, min_sub_group=minimum, parts=tuple(parts), part=part)


def _leader_worker_set(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:  # noqa: ARG001
    template = _mapping(_at(owner, "spec", "leaderWorkerTemplate"))
    size = _integer(template.get("size"), 1)
    labels = pod.metadata.labels
    index = labels.get("leaderworkerset.sigs.k8s.io/group-index", "0")
    number = _index(labels.get("leaderworkerset.sigs.k8s.io/worker-index"))
    suffix = f"-group-{index}"
    if size <= 1:
        return Shape(min_member=size, suffix=suffix)
    waits = _at(owner, "spec", "startupPolicy") == "LeaderReady"
    segment = _integer(_at(template, "subGroupPolicy", "subGroupSize")) or _integer(
        _annotations(owner).get(words.SEGMENT_SIZE)
    )
    leader = Part(name="leader", min_member=1)
    if segment and segment > 0:
        parts: tuple[Part, ...] = (leader, *_segments("workers", size - 1, segment))
        part = f"workers-{(number - 1) // segment}"
    else:
        parts = (leader, Part(name="workers", min_member=0 if waits and number == 0 else size - 1))
        part = "workers"
    return Shape(
        min_member=None if segment else (1 if waits and number == 0 else size),
        parts=parts,
        part="leader" if number == 0 else part,
        suffix=suffix,
    )


def _ray(pod: Pod, owner: Object, owners: Sequence[Object]) -> Shape:
    cluster = next((each for each in owners if each.get("kind") == "RayCluster"), owner)
    spec = _mapping(cluster.get("spec"))
    if cluster.get("kind") != "RayCluster":
        spec = _mapping(spec.get("rayClusterSpec") or spec.get("rayClusterConfig"))
    parts = [Part(name="headgroup", min_member=1, near=_template_near(spec.get("headGroupSpec")))]
    for group in _list(spec.get("workerGroupSpecs")):
        if not isinstance(group, Mapping) or group.get("suspend"):
            continue
        hosts = _integer(group.get("numOfHosts"), 1)
        least, replicas = _integer(group.get("minReplicas"), 0), _integer(group.get("replicas"), 0)
        pods = (least if least > 0 else replicas) * hosts
        if pods:
            name = str(group.get("groupName", ""))
            parts.append(Part(name=name, min_member=pods, near=_template_near(group)))
    of = pod.metadata.labels.get("ray.io/group", "")
    part = of if any(each.name == of for each in parts) else "headgroup"
    return Shape(min_member=sum(each.min_member or 0 for each in parts), parts=tuple(parts), part=part)


def _template_near(group: Any) -> dict[str, str]:
    near = _near(_annotations(_mapping(_at(_mapping(group), "template"))))
    return near if near.get("topology") else {}


_SHAPES: Mapping[tuple[str, str], Callable[[Pod, Object, Sequence[Object]], Shape]] = {
    ("apps", "Deployment"): _deployment,
    ("batch", "Job"): _job,
    (_KUBEFLOW, "PyTorchJob"): _pytorch,
    (_KUBEFLOW, "TFJob"): _kubeflow("tfReplicaSpecs"),
    (_KUBEFLOW, "XGBoostJob"): _kubeflow("xgbReplicaSpecs"),
    (_KUBEFLOW, "JAXJob"): _kubeflow("jaxReplicaSpecs"),
    (_KUBEFLOW, "MPIJob"): _mpi,
    (_KUBEFLOW, "Notebook"): _notebook,
    ("jobset.x-k8s.io", "JobSet"): _jobset,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("ray.io", "RayCluster"): _ray,
    ("ray.io", "RayJob"): _ray,
    ("ray.io", "RayService"): _ray,
}


# --- reading what may be malformed ---


def _replicas(owner: Object, field: str) -> dict[str, int]:
    """The number of pods of each role; 1 by default."""
    roles = _mapping(_at(owner, "spec", field))
    found = {str(role): _integer(_mapping(each).get("replicas"), 1) for role, each in roles.items()}
    for role, count in found.items():
        if count <= 0:
            raise Ungroupable(
                f"{owner.get('kind')} {_metadata(owner)['name']}: spec.{field}.{role}.replicas is {count}, expected 1 or more"
            )
    return found


def _min_available(owner: Object) -> int | None:
    found = _at(owner, "spec", "runPolicy", "schedulingPolicy", "minAvailable")
    return found if isinstance(found, int) and found > 0 else None


def _batch_minimum(owner: Object, default: int) -> int:
    text = _annotations(owner).get(words.MIN_MEMBER)
    if text is None:
        return default
    if not str(text).isdigit() or int(text) < 1:
        name = _metadata(owner).get("name", "")
        raise Ungroupable(f"annotation {words.MIN_MEMBER} of {name} is {text!r}, expected a whole number above 0")
    return int(text)


def _integer(value: Any, default: int = 0) -> int:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _index(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _at(object_: Any, *names: str) -> Any:
    for name in names:
        object_ = _mapping(object_).get(name)
    return object_


def _metadata(object_: Object) -> Mapping[str, Any]:
    return _mapping(object_.get("metadata"))


def _labels(object_: Object) -> Mapping[str, Any]:
    return _mapping(_metadata(object_).get("labels"))


def _annotations(object_: Object) -> Mapping[str, Any]:
    return _mapping(_metadata(object_).get("annotations"))


def _group_of(object_: Object) -> str:
    return str(object_.get("apiVersion", "")).rpartition("/")[0]
