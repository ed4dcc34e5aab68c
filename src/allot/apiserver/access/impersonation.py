"""Impersonation: answers requests with Impersonate headers."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from allot.apiserver.access.authorizer import Authorizer
from allot.apiserver.errors import bad_request
from allot.core.access.attributes import Attributes
from allot.core.access.impersonation import BadImpersonation, ImpersonationRefused, impersonate, wanted_user


def impersonated(
    authorizer: Authorizer, attributes: Attributes, headers: Iterable[tuple[str, str]]
) -> tuple[Attributes, str]:
    """The attributes to continue with: unchanged, or with the impersonated user; and the constraint, for the audit log.

    400 for invalid headers, 403 if the sender may not impersonate.
    """
    try:
        wanted = wanted_user(headers)
    except BadImpersonation as error:
        raise bad_request(str(error)) from error
    if wanted is None:
        return attributes, ""
    try:
        user, constraint = impersonate(authorizer.authorize, attributes, wanted)
    except ImpersonationRefused as refused:
        raise authorizer.refused(refused.attributes, refused.reason) from refused
    return msgspec.structs.replace(attributes, user=user), constraint
