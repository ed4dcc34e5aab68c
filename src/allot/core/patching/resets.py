"""Fields that an endpoint cannot change: the server resets them, so their writer does not own them.

The main resource of a kind with a status subresource does not change the status; that subresource changes nothing else, but
for some kinds leaves labels and other metadata writable. As in Kubernetes v1.37.0-rc.1 (GetResetFields of each strategy).
"""

from __future__ import annotations

from functools import cache

from allot.core.patching.fieldset import LEAF, Tree, fields

# Groups whose status subresource lets metadata be changed.
_OPEN_METADATA = frozenset({"", "apps", "autoscaling", "batch", "policy"})
_EXCEPTIONS: dict[tuple[str, str, str], Tree] = {
    ("", "pods", "status"): fields("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
    ("apps", "deployments", "status"): fields("spec", "metadata.labels"),
    ("networking.k8s.io", "ingresses", "status"): fields("spec"),
    ("certificates.k8s.io", "certificatesigningrequests", ""): fields("spec", "status"),
    ("certificates.k8s.io", "certificatesigningrequests", "status"): fields("spec", "status.conditions"),
    ("certificates.k8s.io", "certificatesigningrequests", "approval"): fields("spec", "status.certificate"),
    ("", "namespaces", "finalize"): fields("status"),
}


@cache
def reset_fields(group: str, resource: str, subresource: str, has_status: bool) -> Tree:
    """The fields to give as `reset` when a resource (plural) or one of its subresources is written.

    has_status: whether the resource has a status subresource. The answer is the same object every time.
    """
    known = _EXCEPTIONS.get((group, resource, subresource))
    if known is not None:
        return known
    if subresource == "status":
        return fields("spec") if group in _OPEN_METADATA else fields("spec", "metadata")
    return fields("status") if has_status and not subresource else LEAF
