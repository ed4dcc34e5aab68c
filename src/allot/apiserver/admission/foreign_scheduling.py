"""The checks and defaults of KAI's webhooks: protects queues with children, validates groups, turns GPU shares into claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.apiserver.admission.attributes import Admission, Lookup, Operation
from allot.apiserver.admission.chain import Settle
from allot.apiserver.admission.objects import annotations_of, field, metadata, sequence, text
from allot.apiserver.resources import Resource
from allot.core.json_objects import mapping
from allot.core.lifecycle.kai_rules import group_problem
from allot.core.model.foreign_groups import KAI
from allot.core.model.kai_words import SCHEDULER
from allot.core.workloads.gpu_shares import CLAIM, BadShare, share_in, with_claim

_QUEUES = (KAI, "queues")
_GROUPS = (KAI, "podgroups")


class KaiRules:
    """Judges queues and groups."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Deletions of queues, writes of groups."""
        key = (resource.group, resource.plural)
        if subresource:
            return False
        if key == _QUEUES:
            return operation is Operation.DELETE
        return key == _GROUPS and operation in (Operation.CREATE, Operation.UPDATE)

    async def validate(self, admission: Admission) -> Settle | None:
        """Refuse what KAI refuses."""
        if admission.key == _GROUPS:
            problem = group_problem(mapping(field(admission.object, "spec")))
        else:
            problem = await self._children(admission.name)
        if problem:
            raise admission.forbidden(problem)
        return None

    async def _children(self, name: str) -> str:
        queues = await self._lookup.list(_QUEUES[1], _QUEUES[0])
        children = [text(metadata(each).get("name")) for each in queues if field(each, "spec", "parentQueue") == name]
        return f"cannot delete queue {name}: it has child queues [{' '.join(children)}]" if children else ""


class GpuShares:
    """Turns GPU shares that a pod requests by annotation into a claim."""

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """New pods."""
        return (resource.group, resource.kind, subresource, operation) == ("", "Pod", "", Operation.CREATE)

    async def mutate(self, admission: Admission) -> None:
        """Add the claim, or refuse invalid requests in KAI's words."""
        pod = admission.object
        if pod is None or field(pod, "spec", "schedulerName") != SCHEDULER:
            return
        containers = [mapping(each) for each in sequence(field(pod, "spec", "containers"))]
        if not all(_is_sound(each) for each in containers):
            # Validation reports what is wrong.
            return
        try:
            share = share_in(annotations_of(pod), containers)
        except BadShare as error:
            raise admission.forbidden(str(error)) from error
        claims = field(pod, "spec", "resourceClaims")
        if not isinstance(claims, list | None):
            return
        claims = claims or []
        if share is None or not containers or any(mapping(each).get("name") == CLAIM for each in claims):
            return
        admission.object = with_claim(pod, share)


def _is_sound(container: Mapping[str, Any]) -> bool:
    resources = container.get("resources")
    if not container or (resources is not None and not isinstance(resources, dict)):
        return False
    return isinstance(mapping(resources).get("claims"), list | None)
