"""What a write needs besides the right to make it: nobody hands out more than they have, and not everybody allocates.

Called on every create and update after admission has had its say. Field errors are added to those of validation; the check on
roles and bindings answers by itself.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.access.authorizer import Authorizer
from allot.apiserver.access.escalation import check_rbac_write
from allot.apiserver.request import ApiRequest
from allot.apiserver.resources import Resource
from allot.core.access.claim_status import check_claim_status_write
from allot.core.access.rbac import GROUP, RESOURCES
from allot.core.features import FeatureGates
from allot.core.validation.fields import FieldError

Object = dict[str, Any]

_CLAIM_GATE = "DRAResourceClaimGranularStatusAuthorization"


def check_write(
    authorizer: Authorizer,
    gates: FeatureGates,
    request: ApiRequest,
    resource: Resource,
    object_: Object,
    old: Object | None,
    subresource: str = "",
) -> tuple[FieldError, ...]:
    """Field errors of what the sender may not write; 403 or 404 for roles and bindings. Objects in their storage version."""
    if resource.group == GROUP and resource.plural in RESOURCES:
        check_rbac_write(authorizer, request.user, resource.plural, request.namespace, object_, old)
    elif (
        subresource == "status"
        and resource.plural == "resourceclaims"
        and resource.group == "resource.k8s.io"
        and _CLAIM_GATE in gates
    ):
        before = old.get("status") if old is not None else None
        return check_claim_status_write(authorizer.authorize, request.attributes(), object_.get("status"), before)
    return ()
