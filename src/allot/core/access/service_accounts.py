"""Service accounts as users: names, groups and what a token adds to them."""

from __future__ import annotations

import re

from allot.core.access.attributes import AUTHENTICATED_GROUP, User

USER_PREFIX = "system:serviceaccount:"
ALL_GROUP = "system:serviceaccounts"

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_LENGTH_MAX = 63
_SUBDOMAIN_LENGTH_MAX = 253


def user_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"{USER_PREFIX}{namespace}:{name}"


def group_names(namespace: str) -> tuple[str, ...]:
    """The groups that every service account of a namespace is in."""
    return (ALL_GROUP, f"{ALL_GROUP}:{namespace}")


def split_user_name(name: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user is, None if it is none."""
    if not name.startswith(USER_PREFIX):
        return None
    parts = name[len(USER_PREFIX) :].split(":")
    if len(parts) != 2:
        return None
    namespace, account = parts
    if len(namespace) > _LABEL_LENGTH_MAX or not _LABEL.fullmatch(namespace) or not is_subdomain(account):
        return None
    return namespace, account


def is_subdomain(name: str) -> bool:
    """Whether the text can be the name of a node or a service account."""
    return len(name) <= _SUBDOMAIN_LENGTH_MAX and _SUBDOMAIN.fullmatch(name) is not None


def service_account_user(namespace: str, name: str, uid: str, extra: dict[str, tuple[str, ...]]) -> User:
    """The user that a service account's token makes."""
    return User(user_name(namespace, name), uid, (*group_names(namespace), AUTHENTICATED_GROUP), extra)
