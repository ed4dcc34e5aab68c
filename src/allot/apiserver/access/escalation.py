"""The privilege escalation check on every write of a role or binding."""

from __future__ import annotations

from typing import Any

from allot.apiserver.access.authorizer import Authorizer
from allot.apiserver.errors import StatusError, forbidden
from allot.apiserver.request import ApiRequest
from allot.apiserver.server_context import ServerContext
from allot.core.access.attributes import User
from allot.core.access.escalation import check_binding_write, check_role_write
from allot.core.access.rbac import GROUP, RESOURCES, RoleMissing
from allot.core.validation.fields import FieldError


async def check_write(
    context: ServerContext,
    request: ApiRequest,
    object_: dict[str, Any],
    old: dict[str, Any] | None,
    subresource: str,  # noqa: ARG001
) -> tuple[FieldError, ...]:
    """What writers of roles and bindings need besides permission to write them."""
    check_rbac_write(context.authorizer, request.user, request.resource, request.namespace, object_, old)
    return ()


def check_rbac_write(
    authorizer: Authorizer,
    user: User,
    resource: str,
    namespace: str,
    object_: dict[str, Any],
    old: dict[str, Any] | None = None,
) -> None:
    """Pass, or raise 403 (or 404 if a binding's role does not exist). For objects of the group rbac.authorization.k8s.io."""
    assert resource in RESOURCES, f"{resource} is not a resource of {GROUP}"
    name = (object_.get("metadata") or {}).get("name") or ""
    try:
        if resource in ("roles", "clusterroles"):
            reason = check_role_write(authorizer.policy, authorizer.authorize, user, resource, namespace, object_, old)
        else:
            reason = check_binding_write(authorizer.policy, authorizer.authorize, user, namespace, object_, old)
    except RoleMissing as error:
        details = {"name": error.name, "group": GROUP, "kind": error.resource}
        raise StatusError(404, "NotFound", str(error), details=details) from error
    if reason is not None:
        raise forbidden(GROUP, resource, name, reason)
