"""LimitRanger: limit ranges of the namespace set defaults and limits for pods and volume claims."""

from __future__ import annotations

from allot.apiserver.admission.attributes import Admission, Lookup, Operation
from allot.apiserver.admission.objects import metadata
from allot.apiserver.resources import Resource
from allot.core.quota.limits import pod_limit_errors, volume_claim_limit_errors, with_default_limits

_PODS = ("", "pods")
_VOLUME_CLAIMS = ("", "persistentvolumeclaims")


class LimitRanger:
    """The plugin."""

    idle_by = (("limitranges", ""),)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of pods, resizes of their containers, writes of volume claims."""
        key = (resource.group, resource.plural)
        if key == _PODS:
            return (subresource, operation) in (("", Operation.CREATE), ("resize", Operation.UPDATE))
        return key == _VOLUME_CLAIMS and not subresource and operation in (Operation.CREATE, Operation.UPDATE)

    def idle(self, namespace: str) -> bool:
        """Whether the namespace has no limit ranges."""
        return self._lookup.known_list("limitranges", "", namespace) == []

    async def mutate(self, admission: Admission) -> None:
        """Defaults for containers."""
        if admission.key != _PODS or admission.object is None or _is_going(admission):
            return
        for limit_range in await self._lookup.list("limitranges", "", admission.namespace):
            admission.object = with_default_limits(admission.object, limit_range)

    async def validate(self, admission: Admission) -> None:
        """Bounds."""
        if admission.object is None or _is_going(admission):
            return
        errors_of = pod_limit_errors if admission.key == _PODS else volume_claim_limit_errors
        for limit_range in await self._lookup.list("limitranges", "", admission.namespace):
            errors = list(dict.fromkeys(errors_of(admission.object, limit_range)))
            if errors:
                raise admission.forbidden(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _is_going(admission: Admission) -> bool:
    return admission.old is not None and metadata(admission.old).get("deletionTimestamp") is not None
