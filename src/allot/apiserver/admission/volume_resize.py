"""PersistentVolumeClaimResize: only volumes of a class that allows expansion can grow."""

from __future__ import annotations

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation
from allot.apiserver.admission.objects import annotations_of, field
from allot.apiserver.resources import Resource
from allot.core.quantity import Quantity, QuantityError

_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


class PersistentVolumeClaimResize:
    """The plugin."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Updates of volume claims."""
        key = (resource.group, resource.plural, subresource, operation)
        return key == ("", "persistentvolumeclaims", "", Operation.UPDATE)

    async def validate(self, admission: Admission) -> None:
        """Refuse to grow a volume that cannot be expanded."""
        old, new = admission.old, admission.object
        if old is None or new is None or _size(new) <= _size(old):
            return
        if field(old, "status", "phase") != "Bound":
            raise admission.forbidden("Only bound persistent volume claims can be expanded")
        name = _class_name(new)
        found = None
        if name and name == _class_name(old):
            found = await self._lookup.get("storageclasses", "storage.k8s.io", "", name)
        if found is None or found.get("allowVolumeExpansion") is not True:
            raise admission.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize"
            )


def _size(claim: Object) -> int:
    given = field(claim, "spec", "resources", "requests", "storage")
    try:
        return Quantity.parse(given).nano if isinstance(given, str) else 0
    except QuantityError:
        return 0


def _class_name(claim: Object) -> str:
    old = annotations_of(claim).get(_OLD_CLASS)
    name = old if old is not None else field(claim, "spec", "storageClassName")
    return name if isinstance(name, str) else ""
