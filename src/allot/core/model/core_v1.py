"""The parts of core/v1 that device allocation and scheduling read or write: pods, nodes, namespaces, volumes, services.

Types that derive from `PartialStruct` name only the fields that matter here; an envelope keeps the rest of such an
object, so that it can be written back whole (`model.codec`). The small types that belong to device allocation are
complete.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model.meta import (
    EMPTY,
    APIStruct,
    Condition,
    Int32,
    Int64,
    IntOrString,
    LabelSelector,
    ObjectMeta,
    PartialStruct,
    Time,
)
from allot.core.quantity import Quantity

# --- selecting nodes ---


class NodeSelectorRequirement(APIStruct, frozen=True, kw_only=True):
    """One condition on a node label or field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(APIStruct, frozen=True, kw_only=True):
    """Requirements that must all hold; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(APIStruct, frozen=True, kw_only=True):
    """Terms, at least one of which must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(APIStruct, frozen=True, kw_only=True):
    """A weighted preference for certain nodes."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(APIStruct, frozen=True, kw_only=True):
    """Nodes that a pod requires and prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(APIStruct, frozen=True, kw_only=True):
    """Pods to be near to or away from, and the topology that defines near."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(APIStruct, frozen=True, kw_only=True):
    """A weighted preference to be near to or away from pods."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(APIStruct, frozen=True, kw_only=True):
    """Pods that a pod must, or preferably should, be near to."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class PodAntiAffinity(APIStruct, frozen=True, kw_only=True):
    """Pods that a pod must, or preferably should, be away from."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(APIStruct, frozen=True, kw_only=True):
    """Where a pod may run."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class TopologySpreadConstraint(APIStruct, frozen=True, kw_only=True):
    """How evenly pods are spread over the values of a node label."""

    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class Toleration(APIStruct, frozen=True, kw_only=True):
    """A node taint that a pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class Taint(APIStruct, frozen=True, kw_only=True):
    """Why pods should stay away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


# --- Pod: spec ---


class ContainerResourceClaim(APIStruct, frozen=True, kw_only=True):
    """core/v1 ResourceClaim: an entry of pod.spec.resourceClaims, or one request of it, that a container uses."""

    name: str = ""
    request: str = ""


class ResourceRequirements(APIStruct, frozen=True, kw_only=True):
    """What a container or pod may use."""

    limits: Mapping[str, Quantity] = EMPTY
    requests: Mapping[str, Quantity] = EMPTY
    claims: tuple[ContainerResourceClaim, ...] = ()


class ContainerPort(APIStruct, frozen=True, kw_only=True):
    """A port of a container, and of its node if it has a host port."""

    name: str = ""
    host_port: Int32 = 0
    container_port: Int32 = 0
    protocol: str = ""
    # "hostIP" does not follow the camel rule.
    host_ip: str = msgspec.field(default="", name="hostIP")


class ProbeTarget(PartialStruct, frozen=True, kw_only=True):
    """Which port a probe connects to."""

    port: IntOrString = 0


class HTTPProbeTarget(ProbeTarget, frozen=True, kw_only=True):
    """What a probe asks for by HTTP."""

    path: str = "/"


class ProbeTimes(PartialStruct, frozen=True, kw_only=True):
    """How often a container is probed, how often it may fail, and at which port."""

    initial_delay_seconds: Int32 = 0
    period_seconds: Int32 = 10
    timeout_seconds: Int32 = 1
    failure_threshold: Int32 = 3
    http_get: HTTPProbeTarget | None = None
    tcp_socket: ProbeTarget | None = None
    grpc: ProbeTarget | None = None

    @property
    def port(self) -> IntOrString | None:
        """The port that it connects to; None if it runs a command."""
        target = self.http_get or self.tcp_socket or self.grpc
        return target.port if target is not None else None


class RestartExitCodes(APIStruct, frozen=True, kw_only=True):
    """Exit codes that a rule applies to: In or NotIn."""

    operator: str = ""
    values: tuple[Int32, ...] = ()


class ContainerRestartRule(APIStruct, frozen=True, kw_only=True):
    """What happens after certain exits of a container, whatever its policy."""

    action: str = ""
    exit_codes: RestartExitCodes | None = None

    def applies(self, exit_code: int) -> bool:
        """Whether the container ended in that way."""
        codes = self.exit_codes
        return codes is not None and (exit_code in codes.values) is (codes.operator == "In")


class Container(PartialStruct, frozen=True, kw_only=True):
    """A container, init container or ephemeral container."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    startup_probe: ProbeTimes | None = None
    readiness_probe: ProbeTimes | None = None
    liveness_probe: ProbeTimes | None = None

    @property
    def is_sidecar(self) -> bool:
        """For an init container: whether it runs alongside the others."""
        return self.restart_policy == "Always"


class PodResourceClaim(APIStruct, frozen=True, kw_only=True):
    """One-of: a claim by name, or a template for the pod's own claim."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(APIStruct, frozen=True, kw_only=True):
    """The PodGroup that a pod is scheduled with."""

    pod_group_name: str | None = None


class PodSchedulingGate(APIStruct, frozen=True, kw_only=True):
    """Something that must happen before a pod is scheduled."""

    name: str = ""


class PersistentVolumeClaimVolumeSource(APIStruct, frozen=True, kw_only=True):
    """A volume claim of the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """A volume claim created for the pod; its fields are not modeled here."""


class ImageVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """The content of an image."""

    reference: str = ""


class GCEPersistentDiskVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """A disk that one node may write to."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """A disk that one node may use."""

    # "volumeID" does not follow the camel rule.
    volume_id: str = msgspec.field(default="", name="volumeID")


class ISCSIVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """A disk that one node may write to."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """A disk that one node may write to."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class NodeLocalSource(PartialStruct, frozen=True, kw_only=True):
    """Files that are on the node: of a hostPath in path, of an emptyDir of some medium."""

    medium: str = ""
    path: str = ""


class Volume(PartialStruct, frozen=True, kw_only=True):
    """A volume of a pod; names only sources that affect scheduling or are lost with the node."""

    name: str = ""
    # For these, only their presence matters, and for the first whether it is memory.
    empty_dir: NodeLocalSource | None = None
    host_path: NodeLocalSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None


class PodSpec(PartialStruct, frozen=True, kw_only=True):
    """What a pod runs and needs."""

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None
    node_selector: Mapping[str, str] = EMPTY
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    overhead: Mapping[str, Quantity] = EMPTY
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements | None = None
    scheduling_group: PodSchedulingGroup | None = None


# --- Pod: status ---


class PodCondition(APIStruct, frozen=True, kw_only=True):
    """A condition of a pod."""

    type: str = ""
    observed_generation: Int64 = 0
    status: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class ResourceHealth(APIStruct, frozen=True, kw_only=True):
    """Health of one device of a container."""

    # "resourceID" does not follow the camel rule.
    resource_id: str = msgspec.field(default="", name="resourceID")
    health: str = ""
    message: str | None = None


class ResourceStatus(APIStruct, frozen=True, kw_only=True):
    """Health of the devices behind one claim or extended resource of a container."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStateWaiting(APIStruct, frozen=True, kw_only=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(PartialStruct, frozen=True, kw_only=True):
    """A running container."""

    started_at: Time | None = None


class ContainerStateTerminated(PartialStruct, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: Int32 = 0
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None


class ContainerState(APIStruct, frozen=True, kw_only=True):
    """One-of; empty means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a container."""

    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    ready: bool = False
    restart_count: Int32 = 0
    # What the node has allocated for the container, and what it runs with: during a resize they differ from the spec.
    allocated_resources: Mapping[str, Quantity] = EMPTY
    resources: ResourceRequirements | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class PodResourceClaimStatus(APIStruct, frozen=True, kw_only=True):
    """The claim made for an entry of spec.resourceClaims; no name means that none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(APIStruct, frozen=True, kw_only=True):
    """Which request of the extended resource claim backs a container's extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(APIStruct, frozen=True, kw_only=True):
    """The claim made for a pod's extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableResourceAmount(APIStruct, frozen=True, kw_only=True):
    """How much of a node resource a claim's devices represent."""

    name: str = ""
    quantity: Quantity | None = None


class NodeAllocatableResourceOverhead(APIStruct, frozen=True, kw_only=True):
    """What using a claim's devices costs in one node resource."""

    name: str = ""
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResourceClaimStatus(APIStruct, frozen=True, kw_only=True):
    """Node resources that one claim of a pod accounts for."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    mapping: tuple[NodeAllocatableResourceAmount, ...] = ()
    overhead: tuple[NodeAllocatableResourceOverhead, ...] = ()


class PodIP(APIStruct, frozen=True, kw_only=True):
    """An address of a pod, or of its node."""

    ip: str = ""


class PodStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a pod."""

    observed_generation: Int64 = 0
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    message: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    # "hostIPs" and "podIPs" do not follow the camel rule.
    host_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="hostIPs")
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    start_time: Time | None = None
    qos_class: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    # Of the pod as a whole: what its node has allocated, and what it runs with.
    allocated_resources: Mapping[str, Quantity] = EMPTY
    resources: ResourceRequirements | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


class Pod(APIStruct, frozen=True, kw_only=True):
    """Containers that run together on one node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


# --- Node ---


class NodeSpec(PartialStruct, frozen=True, kw_only=True):
    """What an administrator decides about a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    # The cloud provider's ID of the machine.
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeCondition(APIStruct, frozen=True, kw_only=True):
    """A condition of a node."""

    type: str = ""
    status: str = ""
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class ContainerImage(APIStruct, frozen=True, kw_only=True):
    """An image that a node has."""

    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeSystemInfo(PartialStruct, frozen=True, kw_only=True):
    """What software a node runs."""

    kubelet_version: str = ""
    architecture: str = ""


class NodeStatus(PartialStruct, frozen=True, kw_only=True):
    """What a node has and can do."""

    capacity: Mapping[str, Quantity] = EMPTY
    allocatable: Mapping[str, Quantity] = EMPTY
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(APIStruct, frozen=True, kw_only=True):
    """A machine."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- Namespace ---


class NamespaceSpec(APIStruct, frozen=True, kw_only=True):
    """What must happen before a namespace can be deleted."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(PartialStruct, frozen=True, kw_only=True):
    """Active or Terminating, and what still has to go before it is gone."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(APIStruct, frozen=True, kw_only=True):
    """A namespace, with the label that allows admin access."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


# --- volumes ---


class VolumeNodeAffinity(APIStruct, frozen=True, kw_only=True):
    """Nodes that can reach a volume."""

    required: NodeSelector | None = None


class ObjectReference(PartialStruct, frozen=True, kw_only=True):
    """Another object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class CSIPersistentVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """A volume of a storage driver."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(PartialStruct, frozen=True, kw_only=True):
    """What a volume is and where it can be used."""

    capacity: Mapping[str, Quantity] = EMPTY
    csi: CSIPersistentVolumeSource | None = None
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a volume."""

    phase: str = ""


class PersistentVolume(PartialStruct, frozen=True, kw_only=True):
    """Storage that outlives pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class VolumeResourceRequirements(PartialStruct, frozen=True, kw_only=True):
    """How much storage a volume claim requests."""

    requests: Mapping[str, Quantity] = EMPTY


class PersistentVolumeClaimSpec(PartialStruct, frozen=True, kw_only=True):
    """The requested storage, and the volume it is bound to."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None


class PersistentVolumeClaimStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a volume claim."""

    phase: str = ""


class PersistentVolumeClaim(PartialStruct, frozen=True, kw_only=True):
    """A request for storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


# --- services and replication controllers ---


class ServicePort(PartialStruct, frozen=True, kw_only=True):
    """A port, and its target: a number or a container port's name."""

    name: str = ""
    protocol: str = ""
    port: Int32 = 0
    target_port: IntOrString | None = None


class ServiceSpec(PartialStruct, frozen=True, kw_only=True):
    """The pods that serve, and their ports."""

    selector: Mapping[str, str] = EMPTY
    ports: tuple[ServicePort, ...] = ()
    type: str = ""
    # "clusterIP" does not follow the camel rule.
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Service(PartialStruct, frozen=True, kw_only=True):
    """Pods behind one name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationControllerSpec(PartialStruct, frozen=True, kw_only=True):
    """Which pods are replicas."""

    selector: Mapping[str, str] = EMPTY


class ReplicationController(PartialStruct, frozen=True, kw_only=True):
    """A number of identical pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()
