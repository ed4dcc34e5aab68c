"""From changes of objects to decisions: which pod is next, which node and devices it gets, or why not.

Knows: filters, scores, claims of pods, preemption, gates, the order in which pods wait. Does not know: how objects are read or
written, what time it is (it is told). `Machine` is the door: whoever decides or asks what would be decided drives it. What
else is named here is what its questions and answers are made of; the modules behind are nobody else's business.
"""

from allot.core.scheduling.gates import GANG_SCHEDULING, SCHEDULING_GATES, Closed
from allot.core.scheduling.intake import Change, ObjectChange, change_of
from allot.core.scheduling.machine import Applied, Bound, DecisionFailed, Machine, NotBound, Outcome, Settled
from allot.core.scheduling.plan import Decision, Placement, Refusal, Unit
from allot.core.scheduling.queue import group_key
from allot.core.scheduling.settings import Policy, Settings
from allot.core.scheduling.status import Status, Verdict

__all__ = (
    "GANG_SCHEDULING",
    "SCHEDULING_GATES",
    "Applied",
    "Bound",
    "Change",
    "Closed",
    "Decision",
    "DecisionFailed",
    "Machine",
    "NotBound",
    "ObjectChange",
    "Outcome",
    "Placement",
    "Policy",
    "Refusal",
    "Settings",
    "Settled",
    "Status",
    "Unit",
    "Verdict",
    "change_of",
    "group_key",
)
