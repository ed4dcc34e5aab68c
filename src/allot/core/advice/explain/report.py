"""The answer as data: what `allot explain -o json` prints. Field names are stable, and every field is always present."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from allot.core.advice.patches import Patch
from allot.core.advice.usage.queues import QueueJob, QueueUsage


class State(StrEnum):
    """The state of the object."""

    PENDING = "Pending"
    # Has a node, does not run yet.
    STARTING = "Starting"
    PLACED = "Placed"
    ENDED = "Ended"
    # For workloads: whether they are as wanted.
    AS_WANTED = "AsWanted"
    NOT_AS_WANTED = "NotAsWanted"


class Reason(StrEnum):
    """The kind of a cause."""

    # Before the scheduler looks.
    BEING_DELETED = "BeingDeleted"
    SCHEDULING_GATE = "SchedulingGate"
    NO_SUCH_SCHEDULER = "NoSuchScheduler"
    COMPONENT_DOWN = "ComponentDown"
    GROUP_MISSING = "PodGroupMissing"
    GROUP_INCOMPLETE = "PodGroupIncomplete"
    GROUP_PRIORITY = "PodGroupPriority"
    TEMPLATE_MISSING = "TemplateMissing"
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_NOT_CREATED = "ClaimNotCreated"
    CLAIM_BEING_DELETED = "ClaimBeingDeleted"
    CLAIM_NOT_OWNED = "ClaimNotOwned"
    CLAIM_FULL = "ClaimFull"
    CLAIM_CONTROLLER = "ClaimController"
    QUOTA = "Quota"
    ADMIN_ACCESS = "AdminAccess"
    CLASS_MISSING = "DeviceClassMissing"
    RESOURCE_UNKNOWN = "ExtendedResourceUnknown"
    VOLUME = "Volume"
    # Queues of teams.
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_LIMIT = "QueueLimit"
    QUEUE_QUOTA = "QueueQuota"
    QUEUE_SHARE = "QueueShare"
    QUEUE_MAKES_ROOM = "QueueMakesRoom"
    MINIMUM_RUNTIME = "MinimumRuntime"
    PREEMPTION_DELAY = "PreemptionDelay"
    # Nodes and devices.
    NO_NODES = "NoNodes"
    NO_DRIVER = "NoDriver"
    NO_DEVICES = "NoDevices"
    NOT_REACHABLE = "NotReachable"
    NOT_IN_CLASS = "NoDeviceInClass"
    SELECTOR = "Selector"
    SELECTOR_ERROR = "SelectorError"
    POOL_INCOMPLETE = "PoolIncomplete"
    POOL_INVALID = "PoolInvalid"
    IN_USE = "InUse"
    TOO_FEW = "TooFewDevices"
    COUNTERS = "Counters"
    CAPACITY = "Capacity"
    TAINT = "DeviceTaint"
    CONSTRAINT = "Constraint"
    TOGETHER = "NotTogether"
    FEATURE = "FeatureGate"
    PINNED = "ClaimPinned"
    # It fits once others have left.
    WAITS_FOR_ROOM = "WaitsForRoom"
    BINDING_CONDITIONS = "BindingConditions"
    # A node was found, but a write before binding failed.
    NOT_BOUND = "NotBound"
    CORDONED = "NodeCordoned"
    NODE_TAINT = "NodeTaint"
    NODE_NOT_READY = "NodeNotReady"
    AFFINITY = "NodeAffinity"
    RESOURCES = "NodeResources"
    PORTS = "HostPorts"
    NEIGHBOURS = "OtherPods"
    SEVERAL = "Several"
    GANG = "Gang"
    # After the scheduler.
    PREPARE = "Prepare"
    NOT_ALLOCATED = "ClaimNotAllocated"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    IMAGE = "Image"
    CRASH = "ContainerCrashes"
    OUT_OF_MEMORY = "OutOfMemory"
    STARTING = "Starting"
    NOT_READY = "NotReady"
    # Workloads. If one of their pods is the cause, they have the pod's reason.
    AS_WANTED = "AsWanted"
    PROGRESSING = "Progressing"
    NOT_OBSERVED = "NotObserved"
    SELECTOR_MISMATCH = "SelectorMismatch"
    PODS_NOT_CREATED = "PodsNotCreated"
    ROLLOUT_STUCK = "RolloutStuck"
    PAUSED = "Paused"
    ORDERED = "WaitsForOrdinal"
    NO_NODE_MATCHES = "NoNodeMatches"
    JOB_FAILED = "JobFailed"
    BACK_OFF = "JobBackOff"
    SUSPENDED = "Suspended"
    SCHEDULE_INVALID = "ScheduleInvalid"
    SCHEDULE_MISSED = "ScheduleMissed"
    STILL_RUNNING = "StillRunning"
    TARGET_MISSING = "TargetMissing"
    METRIC_MISSING = "MetricMissing"
    AT_MAXIMUM = "AtMaximum"
    STORAGE_CLASS_MISSING = "StorageClassMissing"
    NOT_PROVISIONED = "NotProvisioned"
    NO_VOLUME = "NoVolume"
    VOLUME_LOST = "VolumeLost"
    WAITS_FOR_CONSUMER = "WaitsForConsumer"
    NO_POD_SELECTED = "NoPodSelected"
    NO_READY_POD = "NoReadyPod"
    PORT_MISSING = "PortMissing"
    NO_DISRUPTION = "NoDisruptionAllowed"
    # Nothing is in the way.
    FITS = "Fits"
    # Not everything needed for a decision could be read.
    UNREAD = "Unread"
    UNUSED = "Unused"
    PLACED = "Placed"
    ENDED = "Ended"


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A possible remedy."""

    text: str
    # Whether the scheduler placed the pod on the changed cluster.
    verified: bool = False
    # Where the pod would go.
    node: str = ""
    patches: tuple[Patch, ...] = ()
    # For expressions: the new one.
    expression: str = ""
    # Pods that must leave first, because their queue is then not entitled to what they hold.
    leaving: tuple[str, ...] = ()
    # Just wait: patches describe the state afterwards, and must not be applied.
    waits: bool = False


class Removed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Devices that one filter removed."""

    obstacle: str
    count: int
    # Phrased to follow the number: "have memory 40Gi, need 80Gi".
    text: str
    expression: str = ""
    actual: str = ""
    needed: str = ""
    # Some of them, some of their nodes, and how many nodes there are.
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node_count: int = 0


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that holds devices which the request could use."""

    claim: str
    devices: int
    pods: tuple[str, ...] = ()
    # Pods that it is still reserved for, although they no longer exist.
    gone: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since: str = ""
    seconds: int | None = None


class RequestReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One request of a claim, over the whole cluster."""

    claim: str
    request: str
    device_class: str
    # For a generated request: its extended resource.
    resource: str = ""
    # How many devices; 0 means all of them.
    needed: int = 0
    # Published in the cluster, and how many of these are in the class.
    published: int = 0
    devices: int = 0
    # Including nodes that the pod cannot use for other reasons.
    free: int = 0
    free_nodes: int = 0
    # The node with the most free devices, and how many.
    most_free_node: str = ""
    most_free: int = 0
    removed: tuple[Removed, ...] = ()
    holders: tuple[Holder, ...] = ()
    # Why the free ones cannot be used together.
    together: str = ""


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that refuse for the same reasons."""

    reasons: tuple[str, ...]
    count: int
    # Some of them.
    nodes: tuple[str, ...] = ()


class NearestMiss(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The node that fails in the fewest ways, and on it the device that does."""

    node: str
    reasons: tuple[str, ...]
    device: str = ""


class UsedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device that the pod has."""

    claim: str
    request: str
    device: str


class GivesBack(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that must leave, and the job of another queue, or of higher priority, that it leaves for."""

    pod: str
    job: str
    queue: str


class QueueReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a queue. path: its parents, topmost first, and itself; waiting: jobs of it and of its children, in order;
    gives_back: what it must give back now."""

    path: tuple[QueueUsage, ...]
    waiting: tuple[QueueJob, ...] = ()
    gives_back: tuple[GivesBack, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why."""

    kind: str
    namespace: str
    name: str
    state: State
    reason: Reason
    # The first line.
    cause: str
    # More about the cause, a sentence each.
    details: tuple[str, ...] = ()
    # Smallest first; only verified ones, unless nothing can be tried.
    changes: tuple[Change, ...] = ()
    requests: tuple[RequestReport, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    node_count: int = 0
    nearest: NearestMiss | None = None
    # Whether a node is coming, from which pool, or why none can help.
    autoscaler: tuple[str, ...] = ()
    # The last message of the cluster's own scheduler.
    scheduler_said: str = ""
    # For a pod that has a node.
    node: str = ""
    devices: tuple[UsedDevice, ...] = ()
    # For a queue.
    queue: QueueReport | None = None
