"""Which component acts on objects of a kind, and the warning to their writer if it does not run.

allot's controllers and schedulers announce themselves in a Lease (`announcement`); kube-controller-manager and kube-scheduler are
recognized by the leases that they hold. Names are kube-controller-manager's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from allot.core.features import FeatureGates

Object = Mapping[str, Any]

NAMESPACE = "kube-system"
ANNOTATION = "allot.dev/running"
# The scheduler of pods that name none.
SCHEDULER = "default-scheduler"
CLAIMS = "resourceclaim-controller"
FOLDERS = "folder-provisioner-controller"
LOAD_BALANCERS = "service-lb-controller"
AUTOSCALER = "cluster-autoscaler"
_MANAGER = "kube-controller-manager"
# For a lease without a duration; and the tolerated clock skew.
_DURATION_S = 15
_SKEW_S = 60.0


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """What an object of a kind needs."""

    # Controllers that must all run.
    controllers: tuple[str, ...] = ()
    # The gate without which nothing acts on the kind.
    gate: str = ""
    # The warning for a kind that allot does not support; empty if it has controllers.
    lacking: str = ""


def _by(*controllers: str, gate: str = "") -> Attention:
    return Attention(controllers=controllers, gate=gate)


_NO_POD_SIGNER = "allot has no signer for certificates of pods: without another one, no certificate is issued"
_NO_INGRESS = "allot has no ingress controller: without another one, no request is routed by it"
_APPS, _BATCH, _NETWORKING, _SCHEDULING = "apps", "batch", "networking.k8s.io", "scheduling.k8s.io"
_FLOWCONTROL = "flowcontrol.apiserver.k8s.io"
_GKE = "cloud.google.com"

KINDS: Mapping[tuple[str, str], Attention] = {
    (_APPS, "Deployment"): _by("deployment-controller", "replicaset-controller"),
    (_APPS, "ReplicaSet"): _by("replicaset-controller"),
    ("", "ReplicationController"): _by("replicationcontroller-controller"),
    (_APPS, "StatefulSet"): _by("statefulset-controller"),
    (_APPS, "DaemonSet"): _by("daemonset-controller"),
    (_BATCH, "Job"): _by("job-controller"),
    (_BATCH, "CronJob"): _by("cronjob-controller", "job-controller"),
    ("batch.volcano.sh", "Job"): _by("volcano-job-controller"),
    ("autoscaling", "HorizontalPodAutoscaler"): _by("horizontal-pod-autoscaler-controller"),
    ("policy", "PodDisruptionBudget"): _by("disruption-controller"),
    ("", "PersistentVolumeClaim"): _by("persistentvolume-binder-controller"),
    ("", "PersistentVolume"): _by("persistentvolume-binder-controller"),
    ("resource.k8s.io", "ResourcePoolStatusRequest"): _by(
        "resourcepoolstatusrequest-controller", gate="DRAResourcePoolStatus"
    ),
    ("resource.k8s.io", "DeviceTaintRule"): Attention(gate="DRADeviceTaintRules"),
    (_SCHEDULING, "PodGroup"): Attention(gate="GenericWorkload"),
    (_SCHEDULING, "Workload"): Attention(gate="GenericWorkload"),
    (_SCHEDULING, "CompositePodGroup"): Attention(gate="CompositePodGroup"),
    ("certificates.k8s.io", "CertificateSigningRequest"): _by("certificatesigningrequest-signing-controller"),
    ("certificates.k8s.io", "PodCertificateRequest"): Attention(lacking=_NO_POD_SIGNER),
    ("storagemigration.k8s.io", "StorageVersionMigration"): Attention(
        controllers=("storage-version-migrator-controller",),
        lacking="allot has no controller that migrates stored versions: without another one, nothing is migrated",
    ),
    ("storage.k8s.io", "VolumeAttachment"): Attention(
        lacking="allot attaches no volumes: without a CSI driver that does, nothing is attached"
    ),
    (_FLOWCONTROL, "FlowSchema"): Attention(
        lacking="allot does not sort requests by FlowSchemas: this one has no effect"
    ),
    (_FLOWCONTROL, "PriorityLevelConfiguration"): Attention(
        lacking="allot does not limit requests by PriorityLevelConfigurations: this one has no effect"
    ),
    (_NETWORKING, "Ingress"): Attention(lacking=_NO_INGRESS),
    (_NETWORKING, "IngressClass"): Attention(lacking=_NO_INGRESS),
    (_NETWORKING, "IPAddress"): Attention(
        lacking="allot gives out addresses of services without IPAddresses: this one reserves nothing"
    ),
    (_NETWORKING, "ServiceCIDR"): Attention(
        lacking="allot gives out addresses of one network that is set at start: this one adds none"
    ),
    (_NETWORKING, "NetworkPolicy"): Attention(
        lacking="allot enforces no NetworkPolicies: without a network that does, it has no effect"
    ),
    ("lifecycle.k8s.io", "EvictionRequest"): Attention(
        lacking="allot has no controller for EvictionRequests: nothing is evicted"
    ),
    ("lifecycle.k8s.io", "Eviction"): Attention(lacking="allot has no controller for Evictions: nothing is evicted"),
    ("coordination.k8s.io", "LeaseCandidate"): Attention(
        lacking="allot does not elect leaders among LeaseCandidates: this one is stored without effect"
    ),
    (_GKE, "ComputeClass"): Attention(
        controllers=(AUTOSCALER,),
        lacking="no autoscaler runs, so no nodes are bought for this class: start `allot up --pool` or `allot autoscaler`",
    ),
    ("internal.apiserver.k8s.io", "StorageVersion"): Attention(
        lacking="allot keeps no record of stored versions: this one has no effect"
    ),
}
_NAMESPACES = _by("namespace-controller")

# Controllers that a kube-controller-manager does not have.
_OWN = (FOLDERS, LOAD_BALANCERS, AUTOSCALER)
_UPSTREAM = frozenset(
    name for each in (*KINDS.values(), _NAMESPACES) for name in each.controllers if name not in _OWN
) | {CLAIMS}
# What runs when an upstream lease is held.
_HOLDERS: Mapping[str, frozenset[str]] = {
    _MANAGER: _UPSTREAM,
    "kube-scheduler": frozenset((SCHEDULER,)),
    "cloud-controller-manager": frozenset((LOAD_BALANCERS,)),
    AUTOSCALER: frozenset((AUTOSCALER,)),
}


_KAI, _VOLCANO, _VOLCANO_JOBS = "scheduling.run.ai", "scheduling.volcano.sh", "batch.volcano.sh"
_OLD_KAI = "KAI no longer has it either"
# Fields of other schedulers' kinds that are ignored, by path; `[]`: of any item. The warning for each.
UNREAD: Mapping[tuple[str, str], Mapping[str, str]] = {
    (_KAI, "PodGroup"): {
        "spec.markUnschedulable": "pods always say why they wait",
        "spec.parallelism": _OLD_KAI,
        "spec.completions": _OLD_KAI,
        "spec.backoffLimit": _OLD_KAI,
    },
    (_VOLCANO, "PodGroup"): {
        "spec.networkTopology": "allot knows topologies of KAI and Kubernetes only",
        "spec.subGroupPolicy": "minimums of parts are read from spec.minTaskMember",
    },
    (_VOLCANO_JOBS, "Job"): {
        "spec.volumes": "volumes are those of the tasks' templates",
        "spec.networkTopology": "allot knows topologies of KAI and Kubernetes only",
        "spec.runningEstimate": "nothing is planned by how long jobs run",
        "spec.policies[].timeout": "policies act at once",
        "spec.tasks[].policies[].timeout": "policies act at once",
        "spec.tasks[].partitionPolicy": "minimums of parts are those of tasks",
        "spec.tasks[].topologyPolicy": "containers get CPUs as their node gives them",
        "spec.tasks[].maxRetry": "spec.maxRetry counts for the whole job",
        **{
            f"spec.plugins.{name}": "of the plugins, svc and env are known"
            for name in ("ssh", "pytorch", "tensorflow", "mpi", "ray", "hcclrank")
        },
    },
    (_GKE, "ComputeClass"): {
        **{
            f"spec.priorities[].{field}": "nodes are bought as their pools have them"
            for field in (
                "storage",
                "placement",
                "nodeSystemConfig",
                "maxPodsPerNode",
                "maxRunDurationSeconds",
                "minCpuPlatform",
                "hostMaintenancePolicy",
                "podFamily",
                "capacityCheckWaitTimeSeconds",
            )
        },
        "spec.priorities[].gpu.gpuSharing": "how devices are shared is said by claims",
        "spec.activeMigration.ensureAllDaemonSetPodsRunning": "nodes are not replaced for DaemonSets",
        "spec.autopilot": "allot has no Autopilot",
        "spec.nodePoolGroup": "allot has no groups of pools",
        "spec.priorityDefaults.nodeSystemConfig": "nodes are bought as their pools have them",
    },
    (_VOLCANO, "Queue"): {
        "spec.affinity": "allot places the pods of all queues on all nodes",
        "spec.dequeueStrategy": "a unit that does not fit never keeps others from being tried",
        "spec.extendClusters": "allot knows one cluster",
        "spec.type": "allot knows one type of queue",
    },
}


def unread_fields(group: str, kind: str, object_: Object) -> list[str]:
    """The warnings for fields of an object that are ignored."""
    return [
        f"nothing acts on {path} of this {kind}: {why}"
        for path, why in UNREAD.get((group, kind), {}).items()
        if _has(object_, path.split("."))
    ]


def _has(value: Any, path: list[str]) -> bool:
    for number, name in enumerate(path):
        if not isinstance(value, Mapping):
            return False
        value = value.get(name.removesuffix("[]"))
        if name.endswith("[]"):
            return isinstance(value, list) and any(_has(each, path[number + 1 :]) for each in value)
    return value is not None


def silence(kind: str, needs: Attention, runs: Callable[[str], bool], gates: FeatureGates) -> str:
    """Why nothing will act on an object; empty if something will."""
    if needs.gate and needs.gate not in gates:
        return f"nothing acts on this {kind}: feature gate {needs.gate} is disabled"
    missing = [name for name in needs.controllers if not runs(name)]
    if needs.lacking:
        return needs.lacking if missing or not needs.controllers else ""
    return f"nothing acts on this {kind}: {_not_running(missing)}" if missing else ""


def deletion_silence(runs: Callable[[str], bool]) -> str:
    """Why a deleted namespace will stay; empty if it will not."""
    missing = [name for name in _NAMESPACES.controllers if not runs(name)]
    return f"nothing empties this Namespace, so it stays Terminating: {_not_running(missing)}" if missing else ""


def pod_silence(pod: Object, runs: Callable[[str], bool]) -> str:
    """Why a new pod will not start; empty if nothing is known to prevent it."""
    spec = pod.get("spec")
    if not isinstance(spec, Mapping) or spec.get("nodeName"):
        return ""
    if spec.get("schedulerName", SCHEDULER) == SCHEDULER and not runs(SCHEDULER):
        return "nothing schedules this Pod: neither allot's scheduler nor a kube-scheduler runs"
    claims = spec.get("resourceClaims")
    from_template = isinstance(claims, list) and any(
        isinstance(each, Mapping) and each.get("resourceClaimTemplateName") for each in claims
    )
    if from_template and not runs(CLAIMS):
        return f"nothing makes the claims of this Pod: {_not_running([CLAIMS])}"
    return ""


def _not_running(names: list[str]) -> str:
    verb = "does" if len(names) == 1 else "do"
    return f"{' and '.join(names)} {verb} not run, neither here nor in a {_MANAGER}"


# --- leases ---


def is_announcement(name: str) -> bool:
    """Whether a Lease of that name may announce components."""
    return name in _HOLDERS or name.startswith("allot-")


def announcement(name: str, running: Iterable[str], holder: str, duration_s: int, now: str) -> dict[str, Any]:
    """The Lease that announces these components; with an empty holder, that they have stopped."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {ANNOTATION: ",".join(sorted(running))}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration_s, "renewTime": now},
    }


def announced(lease: Object, now_s: float) -> tuple[frozenset[str], int]:
    """The components that a Lease announces, and for how many seconds that is valid. Empty if it is not held, or has expired."""
    metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
    said = (metadata.get("annotations") or {}).get(ANNOTATION)
    names = frozenset(said.split(",")) if isinstance(said, str) and said else _HOLDERS.get(metadata.get("name", ""))
    duration = spec.get("leaseDurationSeconds")
    duration_s = duration if isinstance(duration, int) and duration > 0 else _DURATION_S
    if (
        names is None
        or not spec.get("holderIdentity")
        or now_s - _time(spec.get("renewTime"), now_s) > duration_s + _SKEW_S
    ):
        return frozenset(), 0
    return names, duration_s


def _time(text: Any, default: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else default
    except ValueError:
        return default
