"""The parts of apps/v1 that scheduling reads: which pods belong together."""

from __future__ import annotations

from allot.core.model.meta import LabelSelector, ObjectMeta, PartialStruct

GROUP = "apps"


class ReplicaSetSpec(PartialStruct, frozen=True, kw_only=True):
    """Which pods are replicas."""

    selector: LabelSelector | None = None


class ReplicaSet(PartialStruct, frozen=True, kw_only=True):
    """A number of equal pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()


class StatefulSetSpec(PartialStruct, frozen=True, kw_only=True):
    """Which pods are replicas."""

    selector: LabelSelector | None = None


class StatefulSet(PartialStruct, frozen=True, kw_only=True):
    """A number of pods with names of their own."""

    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
