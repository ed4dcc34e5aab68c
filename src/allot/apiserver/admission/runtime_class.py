"""RuntimeClass: pods get the overhead and the scheduling constraints of their runtime class."""

from __future__ import annotations

from typing import Any

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation
from allot.apiserver.admission.objects import field, sequence
from allot.apiserver.resources import Resource
from allot.core.json_objects import mapping
from allot.core.quota.amounts import parse_amounts

_MISMATCH = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


class RuntimeClass:
    """The plugin."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of pods."""
        return (resource.group, resource.plural, subresource, operation) == ("", "pods", "", Operation.CREATE)

    async def mutate(self, admission: Admission) -> None:
        """Fill in what the class specifies."""
        pod = admission.object
        found = await self._class(admission)
        if pod is None or found is None:
            return
        spec = dict(mapping(pod.get("spec")))
        overhead = field(found, "overhead", "podFixed")
        if overhead is not None:
            if spec.get("overhead") and not _equal(spec["overhead"], overhead):
                raise admission.forbidden(_MISMATCH)
            spec["overhead"] = overhead
        scheduling = mapping(found.get("scheduling"))
        if scheduling:
            _schedule(admission, spec, scheduling)
        admission.object = {**pod, "spec": spec}

    async def validate(self, admission: Admission) -> None:
        """The overhead must be that of the class."""
        given = field(admission.object, "spec", "overhead")
        overhead = field(await self._class(admission), "overhead", "podFixed")
        if overhead is not None:
            if not _equal(given, overhead):
                raise admission.forbidden(_MISMATCH)
        elif given is not None:
            raise admission.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )

    async def _class(self, admission: Admission) -> Object | None:
        name = field(admission.object, "spec", "runtimeClassName")
        if not isinstance(name, str):
            return None
        found = await self._lookup.get("runtimeclasses", "node.k8s.io", "", name)
        if found is None:
            raise admission.forbidden(f'pod rejected: RuntimeClass "{name}" not found')
        return found


def _equal(one: Any, other: Any) -> bool:
    return parse_amounts(one) == parse_amounts(other)


def _schedule(admission: Admission, spec: dict[str, Any], scheduling: Any) -> None:
    wanted = mapping(scheduling.get("nodeSelector"))
    given = mapping(spec.get("nodeSelector"))
    for key in sorted(wanted):
        if key in given and given[key] != wanted[key]:
            raise admission.forbidden(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted[key]}; "
                f"pod.spec.nodeSelector[{key}] = {given[key]}"
            )
    if wanted:
        spec["nodeSelector"] = {**given, **wanted}
    tolerations = [*sequence(spec.get("tolerations"))]
    added = [one for one in sequence(scheduling.get("tolerations")) if one not in tolerations]
    if added:
        spec["tolerations"] = tolerations + added
