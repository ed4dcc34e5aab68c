"""NamespaceLifecycle: refuses new objects in missing or terminating namespaces, and protects some namespaces from deletion."""

from __future__ import annotations

from allot.apiserver.admission.attributes import Admission, Lookup, Operation
from allot.apiserver.admission.objects import field
from allot.apiserver.errors import forbidden, not_found
from allot.apiserver.resources import Resource

IMMORTAL = frozenset(("default", "kube-system", "kube-public"))
_NAMESPACES = ("", "namespaces")
# The answer would reveal whether the namespace exists to users who may do nothing else.
_ACCESS_REVIEWS = ("authorization.k8s.io", "localsubjectaccessreviews")


class NamespaceLifecycle:
    """The plugin."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates in namespaces, and deletes of namespaces."""
        key = (resource.group, resource.plural)
        if key == _NAMESPACES:
            return operation is Operation.DELETE and not subresource
        return operation is Operation.CREATE and resource.namespaced and key != _ACCESS_REVIEWS

    async def mutate(self, admission: Admission) -> None:
        """Refuse, or let pass."""
        if admission.operation is Operation.DELETE:
            if admission.name in IMMORTAL:
                raise forbidden("", "namespaces", admission.name, "this namespace may not be deleted")
            return
        if not admission.namespace:
            return
        namespace = await self._lookup.get("namespaces", "", "", admission.namespace)
        if namespace is None:
            raise not_found("", "namespaces", admission.namespace)
        if field(namespace, "status", "phase") == "Terminating":
            raise _terminating(admission)


def _terminating(admission: Admission) -> Exception:
    name = admission.namespace
    error = admission.forbidden(f"unable to create new content in namespace {name} because it is being terminated")
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {name} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = {**(error.details or {}), "causes": [cause]}
    return error
