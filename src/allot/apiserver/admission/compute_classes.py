"""ComputeClass admission as in GKE: sets the class of a pod's namespace and the toleration for its nodes, and refuses conflicting pods."""

from __future__ import annotations

from allot.apiserver.admission.attributes import Admission, Lookup, Operation
from allot.apiserver.admission.objects import labels_of
from allot.apiserver.resources import Resource
from allot.core.lifecycle.compute_class_pods import conflict, may_have_class, with_class


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
        namespace = await self._lookup.get("namespaces", "", "", admission.namespace)
        labels = labels_of(namespace)
        if pod is None or not may_have_class(pod, labels):
            return
        problem = conflict(pod)
        if problem:
            raise admission.forbidden(problem)
        admission.object = with_class(pod, labels)
