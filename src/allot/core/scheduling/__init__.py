"""From changes of objects to decisions: which pod is next, which node and devices it gets, or why not.

Knows: filters, scores, claims of pods, preemption, gates, the order in which pods wait. Does not know how objects are read or
written, or the time (it is an argument). `Machine` is the entry point for decisions and what-if questions. Also
exported are its arguments and results, and single filters for explanations; the
other modules are internal.
"""

from allot.core.scheduling.attempt import looks_around
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices import extended_resources
from allot.core.scheduling.devices.binding_conditions import (
    BINDING_TIMEOUT_SECONDS,
    Binding,
    binding_state,
    deadline,
    has_conditions,
)
from allot.core.scheduling.devices.claim_fit import NOT_AVAILABLE, ClaimFit
from allot.core.scheduling.devices.claim_fit import PLUGIN as DYNAMIC_RESOURCES
from allot.core.scheduling.devices.claims import Claims, one_of_class
from allot.core.scheduling.devices.group_claims import controller_of
from allot.core.scheduling.devices.pod_claims import Held, Variant
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.groups.dialects import DIALECTS, Dialect, ForeignGroup, coscheduling_group, dialect_of
from allot.core.scheduling.groups.forest import Tree
from allot.core.scheduling.groups.shape import minimum_of, topology_key
from allot.core.scheduling.intake import Change, ObjectChange
from allot.core.scheduling.machine import Applied, Bound, DecisionFailed, Machine, NotBound, Outcome, Settled
from allot.core.scheduling.messages import explanation, refusal_text, refusing_plugins
from allot.core.scheduling.node_admission import NodeAdmission, Rejection
from allot.core.scheduling.nodes import volume_matching
from allot.core.scheduling.nodes.filter_cache import local_refusal, static_refusal
from allot.core.scheduling.nodes.full_evaluation import FullEvaluation, fits
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.topology_terms import TopologyTerms, spreads_of
from allot.core.scheduling.nodes.volume_matching import BIND_COMPLETED, OLD_CLASS, SELECTED_NODE
from allot.core.scheduling.plan import ClaimStep, Decision, GroupOutcome, Placement, Refusal, Unit, VolumeStep
from allot.core.scheduling.podinfo import SCHEDULE_ANYWAY, PodInfo, PodTerm, Profile, Spread, claim_name
from allot.core.scheduling.preempting.preemption import preempt
from allot.core.scheduling.queueing.backoff import BackoffTimes
from allot.core.scheduling.queueing.gates import GANG_SCHEDULING, SCHEDULING_GATES, Closed
from allot.core.scheduling.queueing.queue import group_key, group_name_of
from allot.core.scheduling.queueing.queue_order import PRIORITY_SORT, QUEUE_ORDERS, QueueOrder
from allot.core.scheduling.queues.amounts import UNLIMITED, Amounts
from allot.core.scheduling.queues.book import DEFAULT_QUEUES, PREEMPTIBILITY_LABEL, QUEUE_LABEL, VOLCANO_QUEUE
from allot.core.scheduling.queues.decisions import Look
from allot.core.scheduling.queues.dialects import QUEUE_KINDS
from allot.core.scheduling.queues.jobs import Job, Task, asked
from allot.core.scheduling.queues.limits import (
    OVER_LIMIT,
    OVER_QUOTA,
    Excess,
    amounts_text,
    number,
    over_limit,
    unit_of,
)
from allot.core.scheduling.queues.model import Queue, QueueShares
from allot.core.scheduling.queues.rounds import Started
from allot.core.scheduling.queues.takeover import CONSOLIDATE, PREEMPT, RECLAIM, TRIALS_MAX, Nothing, Takeover
from allot.core.scheduling.settings import DEFAULT_SETTINGS, HOSTNAME, Policy, Settings, device_policy, under
from allot.core.scheduling.status import Status, Verdict
from allot.core.scheduling.supposing import Supposing, put_into_force

__all__ = (
    "BINDING_TIMEOUT_SECONDS",
    "BIND_COMPLETED",
    "CONSOLIDATE",
    "DEFAULT_QUEUES",
    "DEFAULT_SETTINGS",
    "DIALECTS",
    "DYNAMIC_RESOURCES",
    "GANG_SCHEDULING",
    "HOSTNAME",
    "NOT_AVAILABLE",
    "OLD_CLASS",
    "OVER_LIMIT",
    "OVER_QUOTA",
    "PREEMPT",
    "PREEMPTIBILITY_LABEL",
    "PRIORITY_SORT",
    "QUEUE_KINDS",
    "QUEUE_LABEL",
    "QUEUE_ORDERS",
    "RECLAIM",
    "SCHEDULE_ANYWAY",
    "SCHEDULING_GATES",
    "SELECTED_NODE",
    "TRIALS_MAX",
    "UNLIMITED",
    "VOLCANO_QUEUE",
    "Amounts",
    "Applied",
    "BackoffTimes",
    "Binding",
    "Bound",
    "Change",
    "ClaimFit",
    "ClaimStep",
    "Claims",
    "Closed",
    "Cluster",
    "Decision",
    "DecisionFailed",
    "Dialect",
    "Excess",
    "Failure",
    "ForeignGroup",
    "FullEvaluation",
    "GroupOutcome",
    "Held",
    "Job",
    "Look",
    "Machine",
    "NodeAdmission",
    "NodeInfo",
    "NotBound",
    "Nothing",
    "ObjectChange",
    "Outcome",
    "Placement",
    "PodInfo",
    "PodTerm",
    "Policy",
    "Profile",
    "Queue",
    "QueueOrder",
    "QueueShares",
    "Refusal",
    "Rejection",
    "Settings",
    "Settled",
    "Spread",
    "Started",
    "Status",
    "Supposing",
    "Takeover",
    "Task",
    "TopologyTerms",
    "Tree",
    "Unit",
    "Variant",
    "Verdict",
    "VolumeStep",
    "amounts_text",
    "asked",
    "binding_state",
    "claim_name",
    "controller_of",
    "coscheduling_group",
    "deadline",
    "device_policy",
    "dialect_of",
    "explanation",
    "extended_resources",
    "fits",
    "group_key",
    "group_name_of",
    "has_conditions",
    "local_refusal",
    "looks_around",
    "minimum_of",
    "number",
    "one_of_class",
    "over_limit",
    "preempt",
    "put_into_force",
    "refusal_text",
    "refusing_plugins",
    "spreads_of",
    "static_refusal",
    "topology_key",
    "under",
    "unit_of",
    "volume_matching",
)
