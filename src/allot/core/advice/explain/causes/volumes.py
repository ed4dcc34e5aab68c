"""Causes that lie with volumes."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, patch_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import listed
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1, storage_v1

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def volume_cause(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Diagnosis:
    """Why a pod's volumes cannot be had. said: what the scheduler says."""
    candidates: list[Candidate] = []
    texts = []
    for full in what_if.cluster.profiles.of(pod).volume_claims:
        namespace, _, name = full.partition("/")
        claim = what_if.get(core_v1.PersistentVolumeClaim, name, namespace)
        if claim is None:
            texts.append(f"PersistentVolumeClaim {full} does not exist")
        elif not claim.spec.volume_name:
            texts.append(f"PersistentVolumeClaim {full} is not bound{_why_unbound(what_if, claim)}")
            candidates += _other_classes(what_if, claim)
    return Diagnosis(reason=Reason.VOLUME, text=listed(texts) or said, details=(said,), candidates=tuple(candidates))


def _why_unbound(what_if: WhatIfCluster, claim: core_v1.PersistentVolumeClaim) -> str:
    name = claim.spec.storage_class_name
    if not name:
        return ": it names no StorageClass, and no volume has been bound to it"
    if what_if.get(storage_v1.StorageClass, name) is None:
        known = [class_.metadata.name for class_ in what_if.all(storage_v1.StorageClass)]
        return f": its StorageClass {name} does not exist" + (f" (there is {listed(sorted(known))})" if known else "")
    return f": StorageClass {name} has not made a volume for it"


def _other_classes(what_if: WhatIfCluster, claim: core_v1.PersistentVolumeClaim) -> Iterator[Candidate]:
    """Another class for a claim, a similar name or the default first."""
    wrong = claim.spec.storage_class_name or ""
    classes = {class_.metadata.name: class_ for class_ in what_if.all(storage_v1.StorageClass)}
    meant = nearest(wrong, classes)
    ordered = sorted(
        classes,
        key=lambda name: (name != meant, classes[name].metadata.annotations.get(DEFAULT_CLASS) != "true", name),
    )
    namespace, claimed = claim.metadata.namespace, claim.metadata.name
    for name in ordered:
        if name != wrong:
            operation = {"op": "add", "path": "/spec/storageClassName", "value": name}
            yield Candidate(
                rank=Rank.FIX,
                text=f"name StorageClass {name} in PersistentVolumeClaim {namespace}/{claimed}",
                patches=(patch_of("PersistentVolumeClaim", claimed, operation, namespace=namespace, recreate=True),),
            )
