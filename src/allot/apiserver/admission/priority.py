"""Priority: names of priority classes become numbers, for pods and groups of pods; at most one class is the default."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation
from allot.apiserver.admission.objects import field, metadata, text
from allot.apiserver.resources import Resource
from allot.core.features import FeatureGates
from allot.core.json_objects import mapping

_GROUP = "scheduling.k8s.io"
_PODS = ("", "pods")
_GROUPS = {(_GROUP, "podgroups"): "pod group", (_GROUP, "compositepodgroups"): "composite pod group"}
_CLASSES = (_GROUP, "priorityclasses")


class _Resolved(msgspec.Struct, frozen=True):
    name: str
    value: int
    preemption_policy: str | None


class Priority:
    """The plugin."""

    def __init__(self, lookup: Lookup, gates: FeatureGates) -> None:
        self._lookup = lookup
        self._gates = gates
        # The list that the default was found in.
        self._classes: list[Object] | None = None
        self._known_default: Object | None = None

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Writes of pods and classes, creates of groups."""
        key = (resource.group, resource.plural)
        if subresource or operation not in (Operation.CREATE, Operation.UPDATE):
            return False
        return key in (_PODS, _CLASSES) or (key in _GROUPS and operation is Operation.CREATE)

    async def mutate(self, admission: Admission) -> None:
        """Fill in the priority."""
        if admission.key == _CLASSES or admission.object is None:
            return
        if admission.key in _GROUPS:
            await self._resolve_group(admission, _GROUPS[admission.key])
        elif admission.operation is Operation.CREATE:
            await self._resolve_pod(admission)
        else:
            _keep(admission)

    async def validate(self, admission: Admission) -> None:
        """Only one class may be the default."""
        new = admission.object
        if admission.key != _CLASSES or new is None or new.get("globalDefault") is not True:
            return
        default = await self._default()
        if default is None:
            return
        name = text(metadata(default).get("name"))
        if admission.operation is Operation.CREATE or name != metadata(new).get("name"):
            raise admission.forbidden(f"PriorityClass {name} is already marked as default. Only one default can exist")

    async def _resolve_pod(self, admission: Admission) -> None:
        pod = admission.object
        assert pod is not None
        spec = mapping(pod.get("spec"))
        found = await self._resolved(admission, spec)
        given, policy = spec.get("priority"), spec.get("preemptionPolicy")
        if given is not None and given != found.value:
            raise admission.forbidden(
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {found.value} from the given PriorityClass name"
            )
        changes: dict[str, Any] = {"priority": found.value}
        if found.name:
            changes["priorityClassName"] = found.name
        if found.preemption_policy is not None:
            if policy is not None and policy != found.preemption_policy:
                raise admission.forbidden(_policy_text(policy, found.preemption_policy, "pod"))
            changes["preemptionPolicy"] = found.preemption_policy
        admission.object = {**pod, "spec": {**spec, **changes}}

    async def _resolve_group(self, admission: Admission, what: str) -> None:
        group = admission.object
        assert group is not None
        spec = mapping(group.get("spec"))
        found = await self._resolved(admission, spec)
        given, policy = spec.get("priority"), spec.get("preemptionPolicy")
        if given is not None and given != found.value:
            raise admission.forbidden(
                f"priority set in the {what} ({given}) must match the priority computed ({found.value}) "
                "based on the priority class set in the spec"
            )
        changes: dict[str, Any] = {"priority": found.value}
        if found.name:
            changes["priorityClassName"] = found.name
        if "PodGroupPreemptionPolicy" in self._gates and found.preemption_policy is not None:
            if policy is not None and policy != found.preemption_policy:
                raise admission.forbidden(_policy_text(policy, found.preemption_policy, what))
            changes["preemptionPolicy"] = found.preemption_policy
        admission.object = {**group, "spec": {**spec, **changes}}

    async def _resolved(self, admission: Admission, spec: Any) -> _Resolved:
        name = text(spec.get("priorityClassName"))
        found = await self._lookup.get("priorityclasses", _GROUP, "", name) if name else await self._default()
        if found is None:
            if name:
                raise admission.forbidden(f"no PriorityClass with name {name} was found")
            return _Resolved("", 0, "PreemptLowerPriority")
        return _Resolved(text(metadata(found).get("name")), found.get("value") or 0, found.get("preemptionPolicy"))

    async def _default(self) -> Object | None:
        """The default with the lowest value: several are possible."""
        classes = await self._lookup.list("priorityclasses", _GROUP)
        if classes is not self._classes:
            defaults = [one for one in classes if one.get("globalDefault") is True]
            self._known_default = min(
                defaults, key=lambda one: (one.get("value") or 0, text(metadata(one).get("name"))), default=None
            )
            self._classes = classes
        return self._known_default


def _policy_text(given: Any, computed: str, what: str) -> str:
    return (
        f"the string value of PreemptionPolicy ({given}) must not be provided in {what} spec; "
        f"priority admission controller computed {computed} from the given PriorityClass name"
    )


def _keep(admission: Admission) -> None:
    """A writer that omits the resolved values means the old ones."""
    pod = admission.object
    assert pod is not None
    spec, before = mapping(pod.get("spec")), field(admission.old, "spec")
    kept = {
        name: mapping(before)[name]
        for name in ("priority", "preemptionPolicy")
        if spec.get(name) is None and mapping(before).get(name) is not None
    }
    if kept:
        admission.object = {**pod, "spec": {**spec, **kept}}
