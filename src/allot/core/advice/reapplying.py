"""Objects of a cluster in a form that can be applied to another one: what users wrote, without what the cluster added.

A cluster adds status, uids and times, names of nodes, addresses, and whole objects: pods of Deployments, claims of templates, slices,
its own certificates. None of it has a meaning elsewhere, and much of it would be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from allot.core.advice.application_order import order_of
from allot.core.model.plain import plain_text
from allot.core.model.resource_v1 import EXTENDED_RESOURCE_CLAIM_ANNOTATION, POD_CLAIM_NAME_ANNOTATION
from allot.core.validation.pod import MIRROR_POD_ANNOTATION

Object = dict[str, Any]

DEFINITION = "CustomResourceDefinition"
SYSTEM_NAMESPACES = frozenset(("kube-node-lease", "kube-public", "kube-system"))


class LeftOut(StrEnum):
    """Why an object is left out."""

    OWNED = "made by a controller for another object"
    OF_CLUSTER = "made by the cluster itself"
    OF_NODES = "what nodes and drivers say of themselves"
    TRANSIENT = "events, leases, requests and the like"
    SYSTEM = "in the cluster's own namespaces (--system)"
    ENDING = "being deleted"
    FINISHED = "pods and jobs that have ended (--finished)"
    SECRET = "secrets (--secrets)"
    PROVISIONED = "volumes that a provisioner made"
    ADDRESS = "webhooks at an address of this cluster"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to include beyond what users wrote."""

    system: bool = False
    finished: bool = False
    secrets: bool = False


PLAIN = Choice()


class Exported(msgspec.Struct, frozen=True):
    """What to apply, in order, and what was left out."""

    objects: tuple[Object, ...]
    left_out: tuple[tuple[LeftOut, Object], ...]


# By group and kind.
_OF_NODES = frozenset(
    (
        ("", "Node"),
        ("resource.k8s.io", "ResourceSlice"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "CSIStorageCapacity"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("metrics.k8s.io", "NodeMetrics"),
        ("metrics.k8s.io", "PodMetrics"),
    )
)
_TRANSIENT = frozenset(
    (
        ("", "Event"),
        ("", "ComponentStatus"),
        ("", "Endpoints"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("certificates.k8s.io", "PodCertificateRequest"),
        ("coordination.k8s.io", "Lease"),
        ("coordination.k8s.io", "LeaseCandidate"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("events.k8s.io", "Event"),
        ("internal.apiserver.k8s.io", "StorageVersion"),
        ("networking.k8s.io", "IPAddress"),
        ("resource.k8s.io", "ResourcePoolStatusRequest"),
    )
)
# Group, kind and name of objects that every cluster has.
_OF_CLUSTER = frozenset(
    (
        ("", "ConfigMap", "kube-root-ca.crt"),
        ("", "Namespace", "default"),
        *(("", "Namespace", name) for name in SYSTEM_NAMESPACES),
        ("", "ServiceAccount", "default"),
        ("networking.k8s.io", "ServiceCIDR", "kubernetes"),
        ("scheduling.k8s.io", "PriorityClass", "system-cluster-critical"),
        ("scheduling.k8s.io", "PriorityClass", "system-node-critical"),
    )
)
# Labels and annotations of objects that a cluster maintains itself.
_CLUSTERS_MARKS = (
    "kubernetes.io/bootstrapping",
    "kube-aggregator.kubernetes.io/automanaged",
    "apf.kubernetes.io/autoupdate-spec",
)
_TOKEN_SECRETS = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
_PROVISIONED = "pv.kubernetes.io/provisioned-by"

_ANNOTATIONS = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deployment.kubernetes.io/revision",
        "deprecated.daemonset.template.generation",
        "endpoints.kubernetes.io/last-change-trigger-time",
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "volume.beta.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/selected-node",
        "volume.kubernetes.io/storage-provisioner",
    )
)
_LABELS = frozenset(("kubernetes.io/metadata.name",))
# For a Job and its pods.
_JOB_LABELS = frozenset(
    ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
)
# A cluster adds its finalizers again; foreign ones matter to their owner.
_CLUSTERS_FINALIZERS = (
    "kubernetes.io/",
    "resource.kubernetes.io/",
    "batch.kubernetes.io/",
    "scheduling.k8s.io/",
    "service.kubernetes.io/",
    "external-provisioner.volume.kubernetes.io/",
    "customresourcecleanup.apiextensions.k8s.io",
    "foregroundDeletion",
    "orphan",
)
_TOKEN_VOLUME = "kube-api-access-"
_OWN_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_OWN_TOLERATION_S = 300


def export(objects: Iterable[Object], choice: Choice = PLAIN) -> Exported:
    """The objects that can be applied again, in order of application."""
    kept: list[Object] = []
    left_out: list[tuple[LeftOut, Object]] = []
    for object_ in objects:
        why = why_not(object_, choice)
        if why is None:
            kept.append(reapplicable(object_))
        else:
            left_out.append((why, object_))
    return Exported(tuple(sorted(kept, key=order_of)), tuple(left_out))


# --- which ---


def why_not(object_: Object, choice: Choice) -> LeftOut | None:
    """Why an object is left out; None if it is included."""
    metadata = _mapping(object_, "metadata")
    named = _group_of(object_), object_["kind"]
    if metadata.get("deletionTimestamp"):
        return LeftOut.ENDING
    if named in _OF_NODES:
        return LeftOut.OF_NODES
    if named in _TRANSIENT:
        return LeftOut.TRANSIENT
    if _is_made_by_cluster(object_, named):
        return LeftOut.OF_CLUSTER
    if _is_owned(metadata) or _is_mirror(metadata):
        return LeftOut.OWNED
    if plain_text(metadata.get("namespace")) in SYSTEM_NAMESPACES and not choice.system:
        return LeftOut.SYSTEM
    if named == ("", "Secret") and not choice.secrets:
        return LeftOut.SECRET
    if named == ("", "PersistentVolume") and _PROVISIONED in _mapping(metadata, "annotations"):
        return LeftOut.PROVISIONED
    if named[0] == "admissionregistration.k8s.io" and _has_address(object_):
        return LeftOut.ADDRESS
    return LeftOut.FINISHED if not choice.finished and _has_ended(object_, named) else None


def _is_made_by_cluster(object_: Object, named: tuple[str, str]) -> bool:
    metadata = _mapping(object_, "metadata")
    if (*named, plain_text(metadata.get("name"))) in _OF_CLUSTER:
        return True
    if (named, metadata.get("name"), metadata.get("namespace")) == (("", "Service"), "kubernetes", "default"):
        return True
    if named == ("", "Secret") and object_.get("type") in _TOKEN_SECRETS:
        return True
    marks = {**_mapping(metadata, "labels"), **_mapping(metadata, "annotations")}
    return any(mark in marks and marks[mark] != "false" for mark in _CLUSTERS_MARKS)


def _is_owned(metadata: Object) -> bool:
    """Whether a controller recreates it."""
    annotations = _mapping(metadata, "annotations")
    if POD_CLAIM_NAME_ANNOTATION in annotations or EXTENDED_RESOURCE_CLAIM_ANNOTATION in annotations:
        return True
    return any(owner.get("controller") for owner in _items(metadata, "ownerReferences"))


def _is_mirror(metadata: Object) -> bool:
    return MIRROR_POD_ANNOTATION in _mapping(metadata, "annotations")


def _has_address(object_: Object) -> bool:
    return any(_mapping(webhook, "clientConfig").get("url") for webhook in _items(object_, "webhooks"))


def _has_ended(object_: Object, named: tuple[str, str]) -> bool:
    status = _mapping(object_, "status")
    if named == ("", "Pod"):
        return status.get("phase") in ("Succeeded", "Failed")
    if named != ("batch", "Job"):
        return False
    ends = ("Complete", "Failed")
    return any(each.get("type") in ends and each.get("status") == "True" for each in _items(status, "conditions"))


# --- without what a cluster added ---


def reapplicable(object_: Object) -> Object:
    """The object without what the cluster added."""
    made = {key: value for key, value in object_.items() if key != "status"}
    made["metadata"] = _metadata(_mapping(object_, "metadata"))
    clean = _CLEANERS.get((_group_of(object_), object_["kind"]))
    return clean(made) if clean is not None else made


def _group_of(object_: Object) -> str:
    return str(object_["apiVersion"]).rpartition("/")[0]


def _mapping(value: Object, key: str) -> Object:
    """A field that should be an object; dumps may have been edited."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _items(value: Object, key: str) -> list[Object]:
    """A field that should be a list of objects."""
    found = value.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _metadata(metadata: Object) -> Object:
    """The part that a user may write. Owners are named by uids of this cluster."""
    kept = {key: metadata[key] for key in ("name", "namespace") if metadata.get(key)}
    for key, others in (("annotations", _ANNOTATIONS), ("labels", _LABELS)):
        kept[key] = {name: text for name, text in _mapping(metadata, key).items() if name not in others}
    finalizers = metadata.get("finalizers")
    if isinstance(finalizers, list):
        kept["finalizers"] = [each for each in finalizers if not _is_clusters_finalizer(each)]
    return {key: value for key, value in kept.items() if value}


def _is_clusters_finalizer(name: Any) -> bool:
    return name == "kubernetes" or str(name).startswith(_CLUSTERS_FINALIZERS)


def _without(value: Object, *keys: str) -> Object:
    return {key: part for key, part in value.items() if key not in keys}


def _with_spec(object_: Object, spec: Object) -> Object:
    return {**object_, "spec": spec} if spec else _without(object_, "spec")


def _pod(object_: Object) -> Object:
    # The value and preemption policy are filled in from the priority class, and refused if they differ.
    spec = _without(
        _mapping(object_, "spec"),
        "nodeName",
        "priority",
        "preemptionPolicy",
        "serviceAccount",
        "ephemeralContainers",
        "overhead",
    )
    spec = _without_token_volume(spec)
    tolerations = [each for each in _items(spec, "tolerations") if not _is_clusters_toleration(each)]
    spec = {**spec, "tolerations": tolerations} if tolerations else _without(spec, "tolerations")
    return _with_spec(object_, spec)


def _without_token_volume(spec: Object) -> Object:
    """Without the token volume that every pod gets."""
    volumes = _items(spec, "volumes")
    kept = [each for each in volumes if not _is_token_volume(each)]
    gone = {str(each["name"]) for each in volumes if _is_token_volume(each)}
    if not gone:
        return spec
    made = {**spec, "volumes": kept} if kept else _without(spec, "volumes")
    for field in ("initContainers", "containers"):
        if field in spec:
            made[field] = [_without_mounts(each, gone) for each in _items(spec, field)]
    return made


def _is_token_volume(volume: Object) -> bool:
    return str(volume.get("name")).startswith(_TOKEN_VOLUME) and "projected" in volume


def _without_mounts(container: Object, gone: set[str]) -> Object:
    kept = [each for each in _items(container, "volumeMounts") if str(each.get("name")) not in gone]
    return {**container, "volumeMounts": kept} if kept else _without(container, "volumeMounts")


def _is_clusters_toleration(toleration: Object) -> bool:
    return (
        toleration.get("key") in _OWN_TOLERATIONS
        and toleration.get("effect") == "NoExecute"
        and toleration.get("tolerationSeconds") == _OWN_TOLERATION_S
    )


def _service(object_: Object) -> Object:
    spec = _mapping(object_, "spec")
    kept = _without(spec, "clusterIPs", "ipFamilies", "healthCheckNodePort")
    if spec.get("clusterIP") != "None":
        kept = _without(kept, "clusterIP")
    if "ports" in spec:
        kept["ports"] = [_without(port, "nodePort") for port in _items(spec, "ports")]
    return _with_spec(object_, kept)


def _job(object_: Object) -> Object:
    """The controller sets a Job's selector, unless the user did."""
    spec = _mapping(object_, "spec")
    if spec.get("manualSelector"):
        return object_
    template = _mapping(spec, "template")
    kept = {**_without(spec, "selector"), "template": {**template, "metadata": _without_job_labels(template)}}
    return {**object_, "metadata": _without_job_labels(object_), "spec": kept}


def _without_job_labels(value: Object) -> Object:
    """The metadata of a Job or its template without what its controller added."""
    metadata = _mapping(value, "metadata")
    labels = {key: text for key, text in _mapping(metadata, "labels").items() if key not in _JOB_LABELS}
    kept = {**metadata, "labels": labels} if labels else _without(metadata, "labels")
    return _without(kept, "creationTimestamp")


def _volume_claim(object_: Object) -> Object:
    return _with_spec(object_, _without(_mapping(object_, "spec"), "volumeName"))


def _volume(object_: Object) -> Object:
    spec = _mapping(object_, "spec")
    claim = _mapping(spec, "claimRef")
    if not claim:
        return object_
    return _with_spec(object_, {**spec, "claimRef": _without(claim, "uid", "resourceVersion")})


def _namespace(object_: Object) -> Object:
    return _with_spec(object_, _without(_mapping(object_, "spec"), "finalizers"))


def _service_account(object_: Object) -> Object:
    return _without(object_, "secrets")


def _cluster_role(object_: Object) -> Object:
    """Aggregated rules are aggregated again."""
    return {**object_, "rules": []} if object_.get("aggregationRule") else object_


_CLEANERS: dict[tuple[str, str], Callable[[Object], Object]] = {
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("", "Namespace"): _namespace,
    ("", "ServiceAccount"): _service_account,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _volume_claim,
    ("batch", "Job"): _job,
    ("rbac.authorization.k8s.io", "ClusterRole"): _cluster_role,
}


def counted(left_out: Sequence[tuple[LeftOut, Object]]) -> list[tuple[LeftOut, str]]:
    """The number of objects by kind, for each reason in order."""
    found: dict[LeftOut, dict[str, int]] = {}
    for why, object_ in left_out:
        kinds = found.setdefault(why, {})
        kinds[object_["kind"]] = kinds.get(object_["kind"], 0) + 1
    return [
        (why, ", ".join(f"{count} {kind}" for kind, count in sorted(found[why].items())))
        for why in LeftOut
        if why in found
    ]
