"""Team queues of other schedulers: KAI's Queue (scheduling.run.ai/v2) and Volcano's
(scheduling.volcano.sh/v1beta1), as far as scheduling reads them."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.meta import EMPTY, Int32, ObjectMeta, PartialStruct
from allot.core.quantity import Quantity

KAI_GROUP = "scheduling.run.ai"
VOLCANO_GROUP = "scheduling.volcano.sh"


class KaiQueueResource(PartialStruct, frozen=True, kw_only=True):
    """One resource; -1 is unlimited. Numbers, which may have fractions. A limit that is not set counts as 0."""

    quota: Quantity = Quantity.ZERO
    over_quota_weight: Quantity = Quantity.ZERO
    limit: Quantity | None = None


class KaiQueueResources(PartialStruct, frozen=True, kw_only=True):
    """In devices, millicores and millions of bytes."""

    gpu: KaiQueueResource = KaiQueueResource()
    cpu: KaiQueueResource = KaiQueueResource()
    memory: KaiQueueResource = KaiQueueResource()


class KaiQueueSpec(PartialStruct, frozen=True, kw_only=True):
    """What a queue is entitled to."""

    display_name: str = ""
    parent_queue: str = ""
    priority: Int32 | None = None
    resources: KaiQueueResources | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class KaiQueue(PartialStruct, frozen=True, kw_only=True):
    """scheduling.run.ai/v2 Queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiQueueSpec = KaiQueueSpec()


class VolcanoGuarantee(PartialStruct, frozen=True, kw_only=True):
    """What is kept for a queue, whether it uses it or not."""

    resource: Mapping[str, Quantity] = EMPTY


class VolcanoQueueSpec(PartialStruct, frozen=True, kw_only=True):
    """What a queue is entitled to."""

    weight: Int32 = 1
    capability: Mapping[str, Quantity] = EMPTY
    deserved: Mapping[str, Quantity] = EMPTY
    guarantee: VolcanoGuarantee = VolcanoGuarantee()
    reclaimable: bool | None = None
    parent: str = ""
    priority: Int32 = 0


class VolcanoQueueStatus(PartialStruct, frozen=True, kw_only=True):
    """Open, Closed or Closing, and what its running pods use."""

    state: str = ""
    allocated: Mapping[str, Quantity] = EMPTY


class VolcanoQueue(PartialStruct, frozen=True, kw_only=True):
    """scheduling.volcano.sh/v1beta1 Queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: VolcanoQueueStatus = VolcanoQueueStatus()
