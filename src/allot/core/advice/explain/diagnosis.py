"""A cause and its possible remedies, before any of them has been tried."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.advice.explain.report import Reason
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.claim_owners import claim_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A change that may help. rank: smaller is tried and shown first. waits: it happens by itself, and patches say what is different
    then. gist: what it comes to; of several that come to the same, one is shown."""

    rank: int
    text: str
    patches: tuple[Patch, ...] = ()
    expression: str = ""
    waits: bool = False
    gist: str = ""


class Rank:
    """How close a change is to the user's own objects, and how small it is."""

    FIX = 10
    CREATE = 20
    RELAX = 30
    FEWER = 35
    TOLERATE = 40
    NODE = 45
    OTHERS = 50
    DROP = 53
    ADMIN = 55
    GATE = 60
    ADD_NODE = 70


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod waits. text: phrased to follow "is pending because"."""

    reason: Reason
    text: str
    details: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    # Advice that cannot be tried on a snapshot.
    advice: tuple[str, ...] = ()


class ClaimPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the spec of a claim can be changed: in its template, or in the claim itself."""

    kind: str
    namespace: str
    name: str
    prefix: str
    recreate: bool

    @property
    def spoken(self) -> str:
        """`ResourceClaimTemplate default/gpu`."""
        return f"{self.kind} {self.namespace}/{self.name}"

    def patch(self, *operations: dict[str, Any]) -> Patch:
        """A patch of the spec; paths are relative to it."""
        absolute = tuple({**operation, "path": f"{self.prefix}{operation['path']}"} for operation in operations)
        return Patch(
            action="patch",
            kind=self.kind,
            namespace=self.namespace,
            name=self.name,
            patch=absolute,
            recreate=self.recreate,
        )


def place_of_claim(what_if: WhatIfCluster, pod: core_v1.Pod | None, claim: api.ResourceClaim) -> ClaimPlace | None:
    """Where to change a claim; None for one that stands for a pod's extended resources."""
    namespace, name = claim.metadata.namespace, claim.metadata.name
    if what_if.get(api.ResourceClaim, name, namespace) is None:
        return None
    owners: list[Any] = [] if pod is None else [pod, *filter(None, [what_if.claims.pod_group_of(pod)])]
    for owner in owners:
        for entry in owner.spec.resource_claims:
            template = entry.resource_claim_template_name
            if template is not None and claim_name(owner, entry) == name:
                return ClaimPlace(
                    kind="ResourceClaimTemplate",
                    namespace=namespace,
                    name=template,
                    prefix="/spec/spec",
                    recreate=False,
                )
    return ClaimPlace(kind="ResourceClaim", namespace=namespace, name=name, prefix="/spec", recreate=True)


def request_path(spec: api.ResourceClaimSpec, full_name: str) -> str:
    """The path of a request, or of one of its alternatives, in a claim's spec."""
    name, _, alternative = full_name.partition("/")
    for index, request in enumerate(spec.devices.requests):
        if request.name != name:
            continue
        if not alternative:
            return f"/devices/requests/{index}/exactly"
        for position, sub in enumerate(request.first_available):
            if sub.name == alternative:
                return f"/devices/requests/{index}/firstAvailable/{position}"
    raise KeyError(full_name)


def patch_of(
    object_kind: str, name: str, *operations: dict[str, Any], namespace: str = "", recreate: bool = False
) -> Patch:
    """A patch of any object."""
    return Patch(
        action="patch", kind=object_kind, namespace=namespace, name=name, patch=tuple(operations), recreate=recreate
    )


def delete_of(object_kind: str, name: str, namespace: str = "") -> Patch:
    """The deletion of an object."""
    return Patch(action="delete", kind=object_kind, namespace=namespace, name=name)


def pointer(name: str) -> str:
    """A member's name as part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def claim_object(namespace: str, name: str, spec: object) -> dict[str, Any]:
    """A new claim."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def template_object(namespace: str, name: str, spec: object) -> dict[str, Any]:
    """A new template of claims. spec: with the claims' metadata, if any, and spec."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}
