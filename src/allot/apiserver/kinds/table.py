"""Every built-in kind of Kubernetes 1.37, as data: one row per kind, expanded to one Resource per version.

Order matters: groups as in kube-apiserver's discovery, and in a group the preferred version first. Beta and alpha
versions, which a stock kube-apiserver has but does not serve, are served here.
"""

from __future__ import annotations

from functools import cache

import msgspec

from allot.apiserver.kinds import fields
from allot.apiserver.resources import Resource, Subresource
from allot.core.model import classic
from allot.core.model.kinds import deprecation_of

_ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_NO_COLLECTION = ("create", "delete", "get", "list", "patch", "update", "watch")
_CREATE = ("create",)
_READ_WRITE = ("get", "patch", "update")
_CONNECT = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")

_STATUS = Subresource("status", _READ_WRITE)
_SCALE = Subresource("scale", _READ_WRITE, "autoscaling", "v1", "Scale")


class _Row(msgspec.Struct, frozen=True):
    """A kind with everything that distinguishes it from most. Its first version is the preferred one."""

    group: str
    kind: str
    plural: str
    namespaced: bool = True
    versions: tuple[str, ...] = ("v1",)
    # The stored version, or group and version, when that is not the first one.
    stored_as: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = _ALL
    subresources: tuple[Subresource, ...] = ()
    selectable: fields.Fields = {}
    folder: str = ""
    stored: bool = True
    unconditional: bool = True
    upsert: bool = False
    returns_deleted: bool = False
    orphans: bool = False


_CLUSTER = False
_WITH_STATUS = (_STATUS,)
_SCALED = (_SCALE, _STATUS)
_IN_ALL = ("all",)
_EXTENSION = ("api-extensions",)
_DRA = ("v1", "v1beta2", "v1beta1")
_GANG = ("v1beta1", "v1alpha3")

_POD_SUBRESOURCES = (
    Subresource("attach", _CONNECT, kind="PodAttachOptions"),
    Subresource("binding", _CREATE, kind="Binding"),
    Subresource("ephemeralcontainers", _READ_WRITE),
    Subresource("eviction", _CREATE, "policy", "v1", "Eviction"),
    Subresource("exec", _CONNECT, kind="PodExecOptions"),
    Subresource("log", ("get",)),
    Subresource("portforward", _CONNECT, kind="PodPortForwardOptions"),
    Subresource("proxy", _PROXY, kind="PodProxyOptions"),
    Subresource("resize", _READ_WRITE),
    _STATUS,
)
_TOKEN = (Subresource("token", _CREATE, "authentication.k8s.io", "v1", "TokenRequest"),)
_SERVICE_SUBRESOURCES = (Subresource("proxy", _PROXY, kind="ServiceProxyOptions"), _STATUS)
_NODE_SUBRESOURCES = (Subresource("proxy", _PROXY, kind="NodeProxyOptions"), _STATUS)
_NAMESPACE_SUBRESOURCES = (Subresource("finalize", ("update",)), _STATUS)
_APPROVED = (Subresource("approval", _READ_WRITE), _STATUS)

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_CERTIFICATES = "certificates.k8s.io"
_RESOURCE = "resource.k8s.io"
_SCHEDULING = "scheduling.k8s.io"
_STORAGE = "storage.k8s.io"
_NETWORKING = "networking.k8s.io"
_FLOWCONTROL = "flowcontrol.apiserver.k8s.io"

_ROWS: tuple[_Row, ...] = (
    # core
    _Row("", "Binding", "bindings", verbs=_CREATE, stored=False),
    _Row("", "ComponentStatus", "componentstatuses", _CLUSTER, short=("cs",), verbs=("get", "list"), stored=False),
    _Row("", "ConfigMap", "configmaps", short=("cm",)),
    _Row("", "Endpoints", "endpoints", short=("ep",), folder="services/endpoints", upsert=True),
    _Row("", "Event", "events", short=("ev",), selectable=fields.EVENT, upsert=True),
    _Row("", "LimitRange", "limitranges", short=("limits",), upsert=True),
    _Row("", "Namespace", "namespaces", _CLUSTER, short=("ns",), verbs=_NO_COLLECTION, selectable=fields.NAMESPACE,
         subresources=_NAMESPACE_SUBRESOURCES, returns_deleted=True),
    _Row("", "Node", "nodes", _CLUSTER, short=("no",), folder="minions", selectable=fields.NODE,
         subresources=_NODE_SUBRESOURCES),
    _Row("", "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), subresources=_WITH_STATUS,
         returns_deleted=True),
    _Row("", "PersistentVolume", "persistentvolumes", _CLUSTER, short=("pv",), subresources=_WITH_STATUS,
         returns_deleted=True),
    _Row("", "Pod", "pods", short=("po",), categories=_IN_ALL, selectable=fields.POD, subresources=_POD_SUBRESOURCES,
         returns_deleted=True),
    _Row("", "PodTemplate", "podtemplates", returns_deleted=True),
    _Row("", "ReplicationController", "replicationcontrollers", short=("rc",), categories=_IN_ALL,
         selectable=fields.REPLICAS, subresources=_SCALED, folder="controllers", orphans=True),
    _Row("", "ResourceQuota", "resourcequotas", short=("quota",), subresources=_WITH_STATUS, returns_deleted=True),
    _Row("", "Secret", "secrets", selectable=fields.SECRET),
    _Row("", "ServiceAccount", "serviceaccounts", short=("sa",), subresources=_TOKEN, returns_deleted=True),
    _Row("", "Service", "services", short=("svc",), categories=_IN_ALL, selectable=fields.SERVICE, upsert=True,
         subresources=_SERVICE_SUBRESOURCES, folder="services/specs", returns_deleted=True),
    # apiregistration.k8s.io
    _Row("apiregistration.k8s.io", "APIService", "apiservices", _CLUSTER, categories=_EXTENSION,
         subresources=_WITH_STATUS, folder="apiregistration.k8s.io/apiservices", unconditional=False),
    # apps
    _Row("apps", "ControllerRevision", "controllerrevisions"),
    _Row("apps", "DaemonSet", "daemonsets", short=("ds",), categories=_IN_ALL, subresources=_WITH_STATUS),
    _Row("apps", "Deployment", "deployments", short=("deploy",), categories=_IN_ALL, subresources=_SCALED),
    _Row("apps", "ReplicaSet", "replicasets", short=("rs",), categories=_IN_ALL, subresources=_SCALED,
         selectable=fields.REPLICAS),
    _Row("apps", "StatefulSet", "statefulsets", short=("sts",), categories=_IN_ALL, subresources=_SCALED),
    # events.k8s.io
    _Row("events.k8s.io", "Event", "events", short=("ev",), stored_as="/v1", upsert=True,
         selectable=fields.EVENTS_K8S_IO_EVENT),
    # authentication.k8s.io, authorization.k8s.io: asked, never stored
    _Row(_AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", _CLUSTER, verbs=_CREATE, stored=False),
    _Row(_AUTHENTICATION, "TokenReview", "tokenreviews", _CLUSTER, verbs=_CREATE, stored=False),
    _Row(_AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=_CREATE, stored=False),
    _Row(_AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", _CLUSTER, verbs=_CREATE, stored=False),
    _Row(_AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", _CLUSTER, verbs=_CREATE, stored=False),
    _Row(_AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", _CLUSTER, verbs=_CREATE, stored=False),
    # autoscaling, batch
    _Row("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", versions=("v2", "v1"), short=("hpa",),
         categories=_IN_ALL, subresources=_WITH_STATUS),
    _Row("batch", "CronJob", "cronjobs", short=("cj",), categories=_IN_ALL, subresources=_WITH_STATUS),
    _Row("batch", "Job", "jobs", categories=_IN_ALL, selectable=fields.JOB, subresources=_WITH_STATUS, orphans=True),
    # certificates.k8s.io
    _Row(_CERTIFICATES, "CertificateSigningRequest", "certificatesigningrequests", _CLUSTER, short=("csr",),
         selectable=fields.SIGNING_REQUEST, subresources=_APPROVED),
    _Row(_CERTIFICATES, "ClusterTrustBundle", "clustertrustbundles", _CLUSTER, ("v1", "v1beta1"),
         selectable=fields.SIGNING_REQUEST, unconditional=False),
    _Row(_CERTIFICATES, "PodCertificateRequest", "podcertificaterequests", versions=("v1", "v1beta1"),
         selectable=fields.POD_CERTIFICATE_REQUEST, subresources=_WITH_STATUS, unconditional=False),
    # networking.k8s.io, policy, rbac.authorization.k8s.io
    _Row(_NETWORKING, "Ingress", "ingresses", short=("ing",), subresources=_WITH_STATUS, folder="ingress"),
    _Row(_NETWORKING, "IngressClass", "ingressclasses", _CLUSTER),
    _Row(_NETWORKING, "IPAddress", "ipaddresses", _CLUSTER, short=("ip",)),
    _Row(_NETWORKING, "NetworkPolicy", "networkpolicies", short=("netpol",)),
    _Row(_NETWORKING, "ServiceCIDR", "servicecidrs", _CLUSTER, subresources=_WITH_STATUS),
    _Row("policy", "PodDisruptionBudget", "poddisruptionbudgets", short=("pdb",), subresources=_WITH_STATUS,
         unconditional=False),
    _Row(_RBAC, "ClusterRoleBinding", "clusterrolebindings", _CLUSTER, upsert=True),
    _Row(_RBAC, "ClusterRole", "clusterroles", _CLUSTER, upsert=True),
    _Row(_RBAC, "RoleBinding", "rolebindings", upsert=True),
    _Row(_RBAC, "Role", "roles", upsert=True),
    # storage.k8s.io
    _Row(_STORAGE, "CSIDriver", "csidrivers", _CLUSTER, unconditional=False, returns_deleted=True),
    _Row(_STORAGE, "CSINode", "csinodes", _CLUSTER, unconditional=False, returns_deleted=True),
    _Row(_STORAGE, "CSIStorageCapacity", "csistoragecapacities", unconditional=False),
    _Row(_STORAGE, "StorageClass", "storageclasses", _CLUSTER, short=("sc",), returns_deleted=True),
    _Row(_STORAGE, "VolumeAttachment", "volumeattachments", _CLUSTER, subresources=_WITH_STATUS, unconditional=False,
         returns_deleted=True),
    _Row(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", _CLUSTER, short=("vac",), returns_deleted=True),
    # admissionregistration.k8s.io
    _Row(_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", _CLUSTER, ("v1", "v1beta1", "v1alpha1"),
         categories=_EXTENSION, unconditional=False),
    _Row(_ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", _CLUSTER,
         ("v1", "v1beta1", "v1alpha1"), categories=_EXTENSION, unconditional=False),
    _Row(_ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", _CLUSTER, categories=_EXTENSION,
         unconditional=False),
    _Row(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", _CLUSTER, categories=_EXTENSION,
         subresources=_WITH_STATUS, unconditional=False),
    _Row(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", _CLUSTER,
         categories=_EXTENSION, unconditional=False),
    _Row(_ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", _CLUSTER,
         categories=_EXTENSION, unconditional=False),
    # apiextensions.k8s.io
    _Row("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", _CLUSTER,
         short=("crd", "crds"), categories=_EXTENSION, subresources=_WITH_STATUS, unconditional=False,
         folder="apiextensions.k8s.io/customresourcedefinitions"),
    # scheduling.k8s.io
    _Row(_SCHEDULING, "PriorityClass", "priorityclasses", _CLUSTER, short=("pc",)),
    _Row(_SCHEDULING, "Workload", "workloads", versions=_GANG, unconditional=False),
    _Row(_SCHEDULING, "PodGroup", "podgroups", versions=_GANG, subresources=_WITH_STATUS, unconditional=False),
    _Row(_SCHEDULING, "CompositePodGroup", "compositepodgroups", versions=("v1alpha3",), subresources=_WITH_STATUS,
         unconditional=False),
    # coordination.k8s.io, node.k8s.io, discovery.k8s.io
    _Row("coordination.k8s.io", "Lease", "leases", unconditional=False, upsert=True),
    _Row("coordination.k8s.io", "LeaseCandidate", "leasecandidates", versions=("v1beta1", "v1alpha2"),
         unconditional=False, upsert=True),
    _Row("node.k8s.io", "RuntimeClass", "runtimeclasses", _CLUSTER, unconditional=False, upsert=True),
    _Row("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    # resource.k8s.io
    _Row(_RESOURCE, "DeviceClass", "deviceclasses", _CLUSTER, _DRA, returns_deleted=True),
    _Row(_RESOURCE, "DeviceTaintRule", "devicetaintrules", _CLUSTER, ("v1", "v1beta2", "v1alpha3"), "v1beta2",
         subresources=_WITH_STATUS, returns_deleted=True),
    _Row(_RESOURCE, "ResourceClaim", "resourceclaims", versions=_DRA, subresources=_WITH_STATUS, returns_deleted=True),
    _Row(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates", versions=_DRA, returns_deleted=True),
    _Row(_RESOURCE, "ResourceSlice", "resourceslices", _CLUSTER, _DRA, selectable=fields.SLICE, returns_deleted=True),
    _Row(_RESOURCE, "ResourcePoolStatusRequest", "resourcepoolstatusrequests", _CLUSTER, ("v1alpha3",),
         subresources=_WITH_STATUS, unconditional=False, returns_deleted=True),
    # flowcontrol.apiserver.k8s.io and rarely used groups
    _Row(_FLOWCONTROL, "FlowSchema", "flowschemas", _CLUSTER, subresources=_WITH_STATUS),
    _Row(_FLOWCONTROL, "PriorityLevelConfiguration", "prioritylevelconfigurations", _CLUSTER,
         subresources=_WITH_STATUS),
    _Row("internal.apiserver.k8s.io", "StorageVersion", "storageversions", _CLUSTER, ("v1alpha1",),
         subresources=_WITH_STATUS, unconditional=False),
    _Row("storagemigration.k8s.io", "StorageVersionMigration", "storageversionmigrations", _CLUSTER,
         ("v1", "v1beta1"), subresources=_WITH_STATUS, unconditional=False),
    _Row("lifecycle.k8s.io", "Eviction", "evictions", versions=("v1alpha1",), subresources=_WITH_STATUS,
         unconditional=False),
    _Row("lifecycle.k8s.io", "EvictionRequest", "evictionrequests", versions=("v1alpha1",), subresources=_WITH_STATUS,
         unconditional=False),
)  # fmt: skip


def _expanded(row: _Row, version: str) -> Resource:
    group, slash, stored_version = row.stored_as.rpartition("/")
    # The newest version of taint rules behaves like new kinds: no blind updates, and DELETE returns a Status.
    strict = row.kind == "DeviceTaintRule" and version == "v1"
    api_version = f"{row.group}/{version}" if row.group else version
    return Resource(
        group=row.group,
        version=version,
        kind=row.kind,
        plural=row.plural,
        singular=row.kind.lower(),
        namespaced=row.namespaced,
        storage_version=stored_version or row.versions[0],
        storage_group=group if slash else None,
        short_names=row.short,
        categories=row.categories,
        verbs=row.verbs,
        subresources={subresource.name: subresource for subresource in row.subresources},
        selectable_fields=row.selectable,
        storage_resource=row.folder,
        stored=row.stored,
        unconditional_update=row.unconditional and not strict,
        create_on_update=row.upsert,
        returns_deleted=row.returns_deleted and not strict,
        orphans_dependents=row.orphans,
        warning=_warning(api_version, row.kind),
    )


def _warning(api_version: str, kind: str) -> str:
    if (api_version, kind) == ("v1", "ComponentStatus"):
        return "v1 ComponentStatus is deprecated in v1.19+"
    if (api_version, kind) == ("v1", "Endpoints"):
        return "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    return deprecation_of(api_version, kind) or ""


# Kinds that Kubernetes 1.31 had in v1alpha3.
_CLASSIC_KINDS = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")


@cache
def classic_resources() -> tuple[Resource, ...]:
    """Kinds also served where drivers' controllers allocate claims (feature gate DRAControlPlaneController)."""
    context = _Row(
        _RESOURCE, "PodSchedulingContext", "podschedulingcontexts", versions=("v1alpha3",), subresources=_WITH_STATUS
    )
    rows = [*(row for row in _ROWS if row.group == _RESOURCE and row.kind in _CLASSIC_KINDS), context]
    return tuple(
        msgspec.structs.replace(
            _expanded(row, "v1alpha3"),
            warning=f"{classic.API_VERSION} {row.kind} is of Kubernetes 1.31, and served because feature gate {classic.GATE} is on",
        )
        for row in rows
    )


@cache
def builtin_resources() -> tuple[Resource, ...]:
    """All kinds in all versions; the preferred version of a kind comes first."""
    return tuple(_expanded(row, version) for row in _ROWS for version in row.versions)
