"""From changes of objects to decisions: which pod is next, which node and devices it gets, or why not.

Knows: filters, scores, claims of pods, preemption, gates, the order in which pods wait. Does not know: how objects are read or
written, what time it is (it is told). `Machine` is the door: whoever decides or asks what would be decided drives it. What
else is named here is what its questions and answers are made of, and single filters for those who explain refusals; the
modules behind are nobody else's business.
"""

from allot.core.scheduling.attempt import looks_around
from allot.core.scheduling.backoff import BackoffTimes
from allot.core.scheduling.binding_conditions import (
    BINDING_TIMEOUT_SECONDS,
    Binding,
    binding_state,
    deadline,
    has_conditions,
)
from allot.core.scheduling.claim_fit import NOT_AVAILABLE, ClaimFit
from allot.core.scheduling.claim_fit import PLUGIN as DYNAMIC_RESOURCES
from allot.core.scheduling.claims import Claims, one_of_class
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.filter_cache import local_refusal
from allot.core.scheduling.full_evaluation import FullEvaluation, fits
from allot.core.scheduling.gates import GANG_SCHEDULING, SCHEDULING_GATES, Closed
from allot.core.scheduling.group_claims import controller_of
from allot.core.scheduling.groups import minimum_of
from allot.core.scheduling.intake import Change, ObjectChange
from allot.core.scheduling.machine import Applied, Bound, DecisionFailed, Machine, NotBound, Outcome, Settled
from allot.core.scheduling.messages import explanation, refusal_text
from allot.core.scheduling.nodeinfo import NodeInfo
from allot.core.scheduling.plan import ClaimStep, Decision, Placement, Refusal, Unit
from allot.core.scheduling.pod_claims import Held, Variant
from allot.core.scheduling.podinfo import PodTerm, Profile, Spread
from allot.core.scheduling.preemption import preempt
from allot.core.scheduling.queue import group_key
from allot.core.scheduling.queue_order import QueueOrder
from allot.core.scheduling.settings import DEFAULT_SETTINGS, HOSTNAME, Policy, Settings, device_policy, under
from allot.core.scheduling.status import Status, Verdict
from allot.core.scheduling.topology_terms import TopologyTerms, spreads_of
from allot.core.scheduling.volumes import BIND_COMPLETED, OLD_CLASS, SELECTED_NODE

__all__ = (
    "BINDING_TIMEOUT_SECONDS",
    "BIND_COMPLETED",
    "DEFAULT_SETTINGS",
    "DYNAMIC_RESOURCES",
    "GANG_SCHEDULING",
    "HOSTNAME",
    "NOT_AVAILABLE",
    "OLD_CLASS",
    "SCHEDULING_GATES",
    "SELECTED_NODE",
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
    "Failure",
    "FullEvaluation",
    "Held",
    "Machine",
    "NodeInfo",
    "NotBound",
    "ObjectChange",
    "Outcome",
    "Placement",
    "PodTerm",
    "Policy",
    "Profile",
    "QueueOrder",
    "Refusal",
    "Settings",
    "Settled",
    "Spread",
    "Status",
    "TopologyTerms",
    "Unit",
    "Variant",
    "Verdict",
    "binding_state",
    "controller_of",
    "deadline",
    "device_policy",
    "explanation",
    "fits",
    "group_key",
    "has_conditions",
    "local_refusal",
    "looks_around",
    "minimum_of",
    "one_of_class",
    "preempt",
    "refusal_text",
    "spreads_of",
    "under",
)
