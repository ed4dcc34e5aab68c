"""Which rules a kind has."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.validation.builtin import (
    api_services,
    batch,
    certificates,
    core_kinds,
    endpoints,
    flowcontrol,
    networking,
    other_kinds,
    pods,
    policies,
    quota_kinds,
    services,
    storage_kinds,
    workloads,
)
from allot.core.validation.builtin.rules import Rules

_GENERIC = Rules()
_STORAGE = "storage.k8s.io"
_NETWORKING = "networking.k8s.io"
_FLOWCONTROL = "flowcontrol.apiserver.k8s.io"

_RULES: Mapping[tuple[str, str], Rules] = {
    ("", "ConfigMap"): core_kinds.CONFIG_MAP,
    ("", "Endpoints"): endpoints.ENDPOINTS,
    ("", "Event"): core_kinds.EVENT,
    ("", "LimitRange"): quota_kinds.LIMIT_RANGE,
    ("", "Namespace"): core_kinds.NAMESPACE,
    ("", "Node"): core_kinds.NODE,
    ("", "PersistentVolume"): storage_kinds.PERSISTENT_VOLUME,
    ("", "PersistentVolumeClaim"): storage_kinds.PERSISTENT_VOLUME_CLAIM,
    ("", "Pod"): pods.POD,
    ("", "PodTemplate"): workloads.POD_TEMPLATE,
    ("", "ReplicationController"): workloads.REPLICATION_CONTROLLER,
    ("", "ResourceQuota"): quota_kinds.RESOURCE_QUOTA,
    ("", "Secret"): core_kinds.SECRET,
    ("", "Service"): services.SERVICE,
    ("", "ServiceAccount"): core_kinds.SERVICE_ACCOUNT,
    ("apps", "ControllerRevision"): workloads.CONTROLLER_REVISION,
    ("apps", "DaemonSet"): workloads.DAEMON_SET,
    ("apps", "Deployment"): workloads.DEPLOYMENT,
    ("apps", "ReplicaSet"): workloads.REPLICA_SET,
    ("apps", "StatefulSet"): workloads.STATEFUL_SET,
    ("autoscaling", "HorizontalPodAutoscaler"): policies.AUTOSCALER,
    ("batch", "CronJob"): batch.CRON_JOB,
    ("batch", "Job"): batch.JOB,
    ("policy", "PodDisruptionBudget"): policies.DISRUPTION_BUDGET,
    ("resource.k8s.io", "PodSchedulingContext"): other_kinds.POD_SCHEDULING_CONTEXT,
    ("scheduling.k8s.io", "PriorityClass"): policies.PRIORITY_CLASS,
    ("coordination.k8s.io", "Lease"): policies.LEASE,
    (policies.RBAC_GROUP, "Role"): policies.ROLE,
    (policies.RBAC_GROUP, "RoleBinding"): policies.ROLE_BINDING,
    (policies.RBAC_GROUP, "ClusterRole"): policies.CLUSTER_ROLE,
    (policies.RBAC_GROUP, "ClusterRoleBinding"): policies.CLUSTER_ROLE_BINDING,
    (_STORAGE, "StorageClass"): storage_kinds.STORAGE_CLASS,
    (_STORAGE, "CSIDriver"): other_kinds.CSI_DRIVER,
    (_STORAGE, "CSINode"): other_kinds.CSI_NODE,
    (_NETWORKING, "Ingress"): networking.INGRESS,
    (_NETWORKING, "IngressClass"): networking.INGRESS_CLASS,
    (_STORAGE, "VolumeAttachment"): other_kinds.VOLUME_ATTACHMENT,
    (_STORAGE, "VolumeAttributesClass"): other_kinds.VOLUME_ATTRIBUTES_CLASS,
    (_NETWORKING, "IPAddress"): networking.IP_ADDRESS,
    (_NETWORKING, "ServiceCIDR"): networking.SERVICE_CIDR,
    (_NETWORKING, "NetworkPolicy"): networking.NETWORK_POLICY,
    ("discovery.k8s.io", "EndpointSlice"): endpoints.ENDPOINT_SLICE,
    (_FLOWCONTROL, "FlowSchema"): flowcontrol.FLOW_SCHEMA,
    (_FLOWCONTROL, "PriorityLevelConfiguration"): flowcontrol.PRIORITY_LEVEL,
    ("certificates.k8s.io", "CertificateSigningRequest"): certificates.SIGNING_REQUEST,
    ("certificates.k8s.io", "ClusterTrustBundle"): certificates.TRUST_BUNDLE,
    ("certificates.k8s.io", "PodCertificateRequest"): other_kinds.POD_CERTIFICATE_REQUEST,
    ("storagemigration.k8s.io", "StorageVersionMigration"): other_kinds.STORAGE_VERSION_MIGRATION,
    ("node.k8s.io", "RuntimeClass"): other_kinds.RUNTIME_CLASS,
    ("apiregistration.k8s.io", "APIService"): api_services.API_SERVICE,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): other_kinds.CUSTOM_RESOURCE_DEFINITION,
}


def rules_for(group: str, kind: str) -> Rules:
    """The rules of a kind in its storage group; generic ones if it has nothing beyond its schema."""
    return _RULES.get((group, kind), _GENERIC)
