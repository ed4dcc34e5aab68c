"""What GKE does to new pods for ComputeClasses: the class of their namespace, the toleration of its nodes, and no for what contradicts it."""

from __future__ import annotations

from allot.apiserver.admission.attributes import Admission, Lookup, Operation
from allot.apiserver.admission.objects import labels_of
from allot.apiserver.resources import Resource
from allot.core.lifecycle.compute_class_pods import conflict, with_class


class ComputeClasses:
    """The plugin."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """New pods."""
        return (resource.group, resource.kind, subresource, operation) == ("", "Pod", "", Operation.CREATE)

    async def mutate(self, admission: Admission) -> None:
        """Select and tolerate."""
        pod = admission.object
        if pod is None:
            return
        problem = conflict(pod)
        if problem:
            raise admission.forbidden(problem)
        namespace = await self._lookup.get("namespaces", "", "", admission.namespace)
        admission.object = with_class(pod, labels_of(namespace))
