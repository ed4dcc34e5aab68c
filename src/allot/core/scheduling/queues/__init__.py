"""The tree of queues: how teams share a cluster, who is next, and who has to give back. Amounts are exact; nothing here has I/O."""

from allot.core.scheduling.queues.amounts import UNLIMITED
from allot.core.scheduling.queues.limits import number, unit_of
from allot.core.scheduling.queues.model import QueueShares

__all__ = ("UNLIMITED", "QueueShares", "number", "unit_of")
