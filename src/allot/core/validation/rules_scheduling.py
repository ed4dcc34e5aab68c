"""Declarative rules of scheduling.k8s.io (PodGroup, Workload, CompositePodGroup), spec.scheduling of jobs, and the pod status.

The versions of scheduling.k8s.io spell the fields alike, so one table serves all. Rules at stage alpha are left out.
"""

from __future__ import annotations

from allot.core.model import batch_v1, core_v1
from allot.core.model import scheduling_v1 as s
from allot.core.validation import declarative_formats as f
from allot.core.validation.declarative import (
    NO_ADD_ITEM,
    NO_REMOVE_ITEM,
    NO_SET,
    NO_UNSET,
    Rule,
    Rules,
    Schema,
)
from allot.core.validation.item_text import item_text

PREEMPTION_POLICIES = frozenset((s.PREEMPT_NEVER, s.PREEMPT_LOWER_PRIORITY))

_VISIT = Rule(beta=False)
_REQUIRED = Rule(required=True, beta=False)
_FROZEN = Rule(immutable=True, beta=False)
_FROZEN_NAME = Rule(immutable=True, format=f.long_name, beta=False)
_COUNT = Rule(required=True, minimum=1, beta=False)
_LONG_NAME = Rule(format=f.long_name, beta=False)
_SHORT_NAME = Rule(required=True, format=f.short_name, beta=False)
_GANG = Rule(update=(NO_SET, NO_UNSET), beta=False)
_PRIORITY = Rule(immutable=True, maximum=s.PRIORITY_MAX, beta=False)
_PREEMPTION = Rule(immutable=True, gate="PodGroupPreemptionPolicy", enum=PREEMPTION_POLICIES, beta=False)
_TOPOLOGY = Rule(immutable=True, gate="TopologyAwareWorkloadScheduling", beta=False)
_CLAIMS = Rule(immutable=True, unique=("name",), max_items=s.POD_GROUP_RESOURCE_CLAIMS_MAX, beta=False)
_TEMPLATES = Rule(
    unique=("name",), max_items=s.POD_GROUP_TEMPLATES_MAX, update=(NO_ADD_ITEM, NO_REMOVE_ITEM), beta=False
)
_COMPOSITE_TEMPLATES = Rule(
    unique=("name",), max_items=s.POD_GROUP_TEMPLATES_MAX, update=(NO_ADD_ITEM, NO_REMOVE_ITEM), beta=False,
    gate="CompositePodGroup",
)  # fmt: skip

_SHARED_SPEC = {
    "disruption_mode": _FROZEN,
    "priority_class_name": _FROZEN_NAME,
    "priority": _PRIORITY,
    "preemption_policy": _PREEMPTION,
}

_RULES: dict[type, Rules] = {
    s.PodGroup: Rules(fields={"spec": _VISIT, "status": _VISIT}),
    s.PodGroupSpec: Rules(
        fields={
            "parent_composite_pod_group_name": Rule(
                immutable=True, gate="CompositePodGroup", format=f.long_name, beta=False
            ),
            "workload_ref": _FROZEN,
            "scheduling_policy": _VISIT,
            "scheduling_constraints": _TOPOLOGY,
            "resource_claims": _CLAIMS,
            **_SHARED_SPEC,
        }
    ),
    s.PodGroupStatus: Rules(
        fields={
            "resource_claim_statuses": Rule(unique=("name",), max_items=s.POD_GROUP_RESOURCE_CLAIMS_MAX, beta=False)
        }
    ),
    s.PodGroupResourceClaimStatus: Rules(fields={"resource_claim_name": _LONG_NAME}),
    s.PodGroupSchedulingPolicy: Rules(
        fields={"basic": _FROZEN, "gang": _GANG}, union=("basic", "gang"), union_beta=False
    ),
    s.GangSchedulingPolicy: Rules(fields={"min_count": _COUNT}),
    s.PodGroupResourceClaim: Rules(
        fields={
            "name": _SHORT_NAME,
            "resource_claim_name": _LONG_NAME,
            "resource_claim_template_name": _LONG_NAME,
        },
        union=("resource_claim_name", "resource_claim_template_name"),
        union_beta=False,
    ),
    s.DisruptionMode: Rules(fields={}, union=("single", "all"), union_beta=False),
    s.WorkloadReference: Rules(
        fields={"workload_name": Rule(required=True, format=f.long_name, beta=False), "template_name": _SHORT_NAME}
    ),
    s.SchedulingConstraints: Rules(
        fields={"topology": Rule(max_items=s.TOPOLOGY_CONSTRAINTS_MAX, beta=False)},
    ),
    s.TopologyConstraint: Rules(fields={"key": Rule(required=True, format=f.label_key, beta=False)}),
    # --- CompositePodGroup ---
    s.CompositePodGroup: Rules(fields={"spec": _VISIT}),
    s.CompositePodGroupSpec: Rules(
        fields={
            "parent_composite_pod_group_name": _FROZEN_NAME,
            "workload_ref": Rule(required=True, immutable=True, beta=False),
            "scheduling_policy": _FROZEN,
            "scheduling_constraints": _FROZEN,
            **_SHARED_SPEC,
        }
    ),
    s.CompositePodGroupSchedulingPolicy: Rules(
        fields={"basic": _FROZEN, "gang": _GANG}, union=("basic", "gang"), union_beta=False
    ),
    s.CompositeGangSchedulingPolicy: Rules(fields={"min_group_count": _COUNT}),
    # --- Workload ---
    s.Workload: Rules(fields={"spec": _VISIT}),
    s.WorkloadSpec: Rules(
        fields={
            "controller_ref": _FROZEN,
            "pod_group_templates": _TEMPLATES,
            "composite_pod_group_templates": _COMPOSITE_TEMPLATES,
        },
        union=("pod_group_templates", "composite_pod_group_templates"),
        union_beta=False,
    ),
    s.TypedLocalObjectReference: Rules(
        fields={
            "api_group": _LONG_NAME,
            "kind": Rule(required=True, format=f.path_segment_name, beta=False),
            "name": Rule(required=True, format=f.path_segment_name, beta=False),
        }
    ),
    s.PodGroupTemplate: Rules(
        fields={
            "name": _SHORT_NAME,
            "scheduling_policy": _VISIT,
            "scheduling_constraints": _TOPOLOGY,
            "resource_claims": _CLAIMS,
            **_SHARED_SPEC,
        }
    ),
    s.CompositePodGroupTemplate: Rules(
        fields={
            "name": _SHORT_NAME,
            "scheduling_policy": _VISIT,
            "scheduling_constraints": _FROZEN,
            **_SHARED_SPEC,
            "pod_group_templates": _TEMPLATES,
            "composite_pod_group_templates": _TEMPLATES,
        }
    ),
    # --- Job ---
    batch_v1.JobSpec: Rules(fields={"scheduling": _GANG}),
    batch_v1.JobSchedulingConfiguration: Rules(
        fields={
            "scheduling_policy": _GANG,
            "scheduling_constraints": _FROZEN,
            "disruption_mode": _FROZEN,
            "resource_claims": _CLAIMS,
        }
    ),
    batch_v1.JobSchedulingPolicy: Rules(
        fields={"basic": _VISIT, "gang": _VISIT}, union=("basic", "gang"), union_beta=False
    ),
    batch_v1.JobGangSchedulingPolicy: Rules(fields={"min_count": Rule(minimum=1, beta=False)}),
    # --- Pod ---
    core_v1.Pod: Rules(fields={"status": _VISIT}),
    core_v1.PodStatus: Rules(
        fields={"node_allocatable_resource_claim_statuses": Rule(unique=("resource_claim_name",), beta=False)}
    ),
    core_v1.NodeAllocatableResourceClaimStatus: Rules(
        fields={
            "resource_claim_name": _REQUIRED,
            "containers": Rule(unique=(), beta=False),
            "mapping": Rule(unique=("name",), beta=False),
            "overhead": Rule(unique=("name",), beta=False),
        }
    ),
    core_v1.NodeAllocatableResourceAmount: Rules(fields={"name": _REQUIRED, "quantity": _REQUIRED}),
    core_v1.NodeAllocatableResourceOverhead: Rules(fields={"name": _REQUIRED}),
}

SCHEMA = Schema(rules=_RULES, item_text=item_text)
