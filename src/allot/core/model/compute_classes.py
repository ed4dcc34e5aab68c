"""ComputeClass of cloud.google.com/v1: the order in which nodes are provisioned for the pods that select it. A GKE custom resource.

Also the labels that assign nodes, pods and namespaces to a class, and those that describe GKE's nodes. Fields
without meaning outside Google Cloud (disks, images, host policies) are only in the resource definition.
"""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.core_v1 import NodeSelectorRequirement, Pod, Taint
from allot.core.model.meta import EMPTY, Int32, Int64, ObjectMeta, PartialStruct

GROUP, VERSION, KIND, PLURAL = "cloud.google.com", "v1", "ComputeClass", "computeclasses"
# On nodes and in the node selectors of pods: the name of a class. The taint of its nodes has the same key.
CLASS_LABEL = f"{GROUP}/compute-class"
# On namespaces: the class of pods that select none, with or without DaemonSet pods.
DEFAULT_LABEL, DEFAULT_LABEL_NO_DAEMONS = (
    f"{GROUP}/default-compute-class",
    f"{GROUP}/default-compute-class-non-daemonset",
)
# The class of this name is for pods that select none, and for pools without a class.
DEFAULT_NAME = "default"
SCALE_UP_ANYWAY, DO_NOT_SCALE_UP = "ScaleUpAnyway", "DoNotScaleUp"
SPECIFIC = "Specific"
# On nodes created for a class: the index of their priority, from 0.
PRIORITY_ANNOTATION, ANYWAY_INDEX = "ccc_priority_index", "ccc_scale_up_anyway"

NODE_POOL = f"{GROUP}/gke-nodepool"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
MACHINE_FAMILY = f"{GROUP}/machine-family"
SPOT, FLEX_START = f"{GROUP}/gke-spot", f"{GROUP}/gke-flex-start"
ACCELERATOR, ACCELERATOR_COUNT = f"{GROUP}/gke-accelerator", f"{GROUP}/gke-accelerator-count"
TPU_ACCELERATOR, TPU_TOPOLOGY = f"{GROUP}/gke-tpu-accelerator", f"{GROUP}/gke-tpu-topology"
RESERVATION = f"{GROUP}/reservation-name"


class Accelerator(PartialStruct, frozen=True, kw_only=True):
    """GPUs or TPU chips of a node: their label value and count. topology: of TPU chips."""

    type: str = ""
    count: Int64 = 0
    topology: str = ""


class SpecificReservation(PartialStruct, frozen=True, kw_only=True):
    """Reserved machines."""

    name: str = ""


class Reservations(PartialStruct, frozen=True, kw_only=True):
    """Whether machines come from reservations: only these, or any."""

    affinity: str = ""
    specific: tuple[SpecificReservation, ...] = ()


class Location(PartialStruct, frozen=True, kw_only=True):
    """Where machines are."""

    zones: tuple[str, ...] = ()


class Enabled(PartialStruct, frozen=True, kw_only=True):
    """A switch."""

    enabled: bool = False


class Priority(PartialStruct, frozen=True, kw_only=True):
    """Nodes that may be provisioned: from existing pools, or by machine description."""

    nodepools: tuple[str, ...] = ()
    machine_family: str = ""
    machine_type: str = ""
    min_cores: Int64 = 0
    min_memory_gb: Int64 = 0
    gpu: Accelerator | None = None
    tpu: Accelerator | None = None
    spot: bool = False
    flex_start: Enabled = Enabled()
    reservations: Reservations = Reservations()
    location: Location = Location()
    priority_score: Int32 | None = None
    node_labels: Mapping[str, str] = EMPTY
    taints: tuple[Taint, ...] = ()


class ActiveMigration(PartialStruct, frozen=True, kw_only=True):
    """Whether pods are moved to nodes of a better priority."""

    optimize_rule_priority: bool = False


class AutoscalingPolicy(PartialStruct, frozen=True, kw_only=True):
    """When a node is removed. Thresholds in percent; None for the general default."""

    consolidation_delay_minutes: Int32 | None = None
    consolidation_threshold: Int32 | None = None
    gpu_consolidation_threshold: Int32 | None = None


class NodePoolConfig(PartialStruct, frozen=True, kw_only=True):
    """What all pools of a class share, besides its label and taint."""

    node_labels: Mapping[str, str] = EMPTY
    taints: tuple[Taint, ...] = ()


class PriorityDefaults(PartialStruct, frozen=True, kw_only=True):
    """Defaults for priorities, except those that name pools."""

    location: Location = Location()


class ComputeClassSpec(PartialStruct, frozen=True, kw_only=True):
    """Which nodes to add, best first, and what to do if none is available."""

    priorities: tuple[Priority, ...] = ()
    when_unsatisfiable: str = DO_NOT_SCALE_UP
    node_pool_auto_creation: Enabled = Enabled()
    active_migration: ActiveMigration = ActiveMigration()
    autoscaling_policy: AutoscalingPolicy = AutoscalingPolicy()
    node_pool_config: NodePoolConfig = NodePoolConfig()
    priority_defaults: PriorityDefaults = PriorityDefaults()


class ComputeClass(PartialStruct, frozen=True, kw_only=True):
    """ComputeClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ComputeClassSpec = ComputeClassSpec()


def class_of(pod: Pod) -> str:
    """The class that a pod selects, by its node selector or by an affinity that names only one; empty if none."""
    selected = pod.spec.node_selector.get(CLASS_LABEL, "")
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if selected or required is None:
        return selected
    named = [_named(term.match_expressions) for term in required.node_selector_terms]
    return named[0] if named and len(set(named)) == 1 else ""


def _named(expressions: tuple[NodeSelectorRequirement, ...]) -> str:
    for each in expressions:
        if each.key == CLASS_LABEL and each.operator == "In" and len(each.values) == 1:
            return each.values[0]
    return ""
