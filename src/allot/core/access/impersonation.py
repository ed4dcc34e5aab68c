"""Impersonation: what the Impersonate headers request, and whether the client may.

Five modes are tried in turn, as in Kubernetes 1.37: four that are bound to what is done as the other user (for the node that a
service account runs on, for nodes, for service accounts, for other users), and the old verb `impersonate`, which is not.
If all refuse, the first refusal is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from allot.core.access.attributes import (
    ANONYMOUS,
    AUTHENTICATED_GROUP,
    MASTERS_GROUP,
    NODE_USER_PREFIX,
    NODES_GROUP,
    UNAUTHENTICATED_GROUP,
    Attributes,
    Decision,
    User,
)
from allot.core.access.service_accounts import NODE_NAME, group_names, is_subdomain, split_user_name
from allot.core.validation.fields import quote

Authorize = Callable[[Attributes], Decision]

_GROUP = "authentication.k8s.io"
_EXTRA_PREFIX = "impersonate-extra-"
# From so many single questions on, it is first asked whether everything of the kind is allowed.
_MANY = 4
_EXTRA_KEY = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_PREFIX = "impersonate-"


class BadImpersonation(ValueError):
    """Headers that cannot be meant: groups or more without a user. 400."""


class ImpersonationRefused(Exception):
    """The asker may not. What was asked, and the reason. 403."""

    def __init__(self, attributes: Attributes, reason: str) -> None:
        super().__init__(reason)
        self.attributes = attributes
        self.reason = reason


def wanted_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """Who is to be impersonated, exactly as the headers say; None if no one is."""
    name, uid = "", ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        key = header.lower()
        if not key.startswith(_PREFIX):
            continue
        if not _is_text(header) or not _is_text(value):
            # Such a name could not be told to anyone, neither in an answer nor in the audit log.
            raise BadImpersonation(f"header {quote(header)} is not UTF-8")
        if key == "impersonate-user":
            name = name or value
        elif key == "impersonate-uid":
            uid = uid or value
        elif key == "impersonate-group":
            groups.append(value)
        elif key.startswith(_EXTRA_PREFIX):
            extra.setdefault(unquote(key[len(_EXTRA_PREFIX) :]), []).append(value)
    if name:
        return User(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})
    if uid or groups or extra:
        raise BadImpersonation(f"requested {_go_text(uid, groups, extra)} without impersonating a user name")
    return None


def _is_text(value: str) -> bool:
    """Whether all bytes of a header were characters; servers turn the others into lone surrogates."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _go_text(uid: str, groups: list[str], extra: dict[str, list[str]]) -> str:
    """The headers as Kubernetes prints them."""

    def listed(values: list[str]) -> str:
        return f"{{{', '.join(quote(value) for value in values)}}}"

    group_text = f"[]string{listed(groups)}" if groups else "[]string(nil)"
    entries = ", ".join(f"{quote(key)}:[]string{listed(extra[key])}" for key in sorted(extra))
    extra_text = f"map[string][]string{{{entries}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{quote(uid)}, Groups:{group_text}, Extra:{extra_text}}}'


class Impersonated(NamedTuple):
    """The user to continue as. constraint: the verb that allowed it, empty for the old one (for the audit log)."""

    user: User
    constraint: str


class _Mode(msgspec.Struct, frozen=True):
    name: str
    applies: Callable[[User, User], bool]

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.name else "impersonate"


def impersonate(authorize: Authorize, attributes: Attributes, wanted: User) -> Impersonated:
    """The user to act as for a request, ImpersonationRefused if its sender may not."""
    first: ImpersonationRefused | None = None
    for mode in _MODES:
        if not mode.applies(wanted, attributes.user):
            continue
        try:
            return _impersonate(authorize, attributes, wanted, mode)
        except ImpersonationRefused as refused:
            first = first or refused
    assert first is not None, "the last mode applies to everybody"
    raise first


def _impersonate(authorize: Authorize, attributes: Attributes, wanted: User, mode: _Mode) -> Impersonated:
    if mode.name:
        on_verb = f"impersonate-on:{mode.name}:{attributes.verb}"
        _check(authorize, msgspec.structs.replace(attributes, verb=on_verb))
    groups = _check_name(authorize, attributes.user, wanted, mode)
    asked = Attributes(user=attributes.user, verb=mode.verb, group=_GROUP, version="v1", resource="uids")
    if wanted.uid:
        _check(authorize, msgspec.structs.replace(asked, name=wanted.uid))
    _check_groups(authorize, attributes.user, wanted, mode)
    _check_extra(authorize, msgspec.structs.replace(asked, resource="userextras"), wanted, mode)
    if wanted.name == ANONYMOUS.name:
        groups = _with(groups, UNAUTHENTICATED_GROUP)
    elif UNAUTHENTICATED_GROUP not in groups:
        groups = _with(groups, AUTHENTICATED_GROUP)
    user = User(wanted.name, wanted.uid, groups, wanted.extra)
    return Impersonated(user, mode.verb if mode.name else "")


def _check(authorize: Authorize, asked: Attributes) -> None:
    decision = authorize(asked)
    if not decision.allowed:
        raise ImpersonationRefused(asked, decision.reason)


def _check_name(authorize: Authorize, user: User, wanted: User, mode: _Mode) -> tuple[str, ...]:
    """Check the name; the groups that the user comes with."""
    group = _GROUP if mode.name else ""
    asked = Attributes(user=user, verb=mode.verb, group=group, version="v1", resource="users", name=wanted.name)
    groups = wanted.groups
    node = _node_of(wanted.name) if mode.name else None
    account = split_user_name(wanted.name)
    if node is not None:
        # The mode is about any node that the asker runs on, so it is asked for all of them.
        name = "*" if mode.name == "associated-node" else node
        asked = msgspec.structs.replace(asked, resource="nodes", name=name)
        groups = (NODES_GROUP,)
    elif account is not None:
        namespace, name = account
        asked = msgspec.structs.replace(asked, resource="serviceaccounts", namespace=namespace, name=name)
        groups = groups or group_names(namespace)
    _check(authorize, asked)
    return groups


def _check_groups(authorize: Authorize, user: User, wanted: User, mode: _Mode) -> None:
    group = _GROUP if mode.name else ""
    asked = Attributes(user=user, verb=mode.verb, group=group, version="v1", resource="groups")
    if mode.name:
        if "" in wanted.groups:
            raise ImpersonationRefused(asked, "impersonating the empty string group is not allowed")
        if MASTERS_GROUP in wanted.groups:
            named = msgspec.structs.replace(asked, name=MASTERS_GROUP)
            raise ImpersonationRefused(named, "impersonating the system:masters group is not allowed")
        if len(wanted.groups) >= _MANY and authorize(msgspec.structs.replace(asked, name="*")).allowed:
            return
    for name in wanted.groups:
        _check(authorize, msgspec.structs.replace(asked, name=name))


def _check_extra(authorize: Authorize, asked: Attributes, wanted: User, mode: _Mode) -> None:
    if mode.name:
        for problem in _extra_problems(wanted):
            raise ImpersonationRefused(asked, problem)
        everything = msgspec.structs.replace(asked, subresource="*", name="*")
        if sum(map(len, wanted.extra.values())) >= _MANY and authorize(everything).allowed:
            return
    for key, values in wanted.extra.items():
        for value in values:
            _check(authorize, msgspec.structs.replace(asked, subresource=key, name=value))


def _extra_problems(wanted: User) -> Iterator[str]:
    for key, values in wanted.extra.items():
        if not key:
            yield "impersonating the empty string key in extra is not allowed"
        elif not _EXTRA_KEY.fullmatch(key):
            yield (
                f"impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {quote(key)}: "
                'must be a domain-prefixed path (such as "acme.io/foo")'
            )
        elif "" in values:
            yield "impersonating the empty string value in extra is not allowed"


def _with(groups: tuple[str, ...], group: str) -> tuple[str, ...]:
    return groups if group in groups else (*groups, group)


def _node_of(name: str) -> str | None:
    node = name.removeprefix(NODE_USER_PREFIX)
    return node if node != name and is_subdomain(node) else None


def _only_name(wanted: User) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _is_own_node(wanted: User, asker: User) -> bool:
    node = _node_of(wanted.name)
    if node is None or not _only_name(wanted) or split_user_name(asker.name) is None:
        return False
    return tuple(asker.extra.get(NODE_NAME, ())) == (node,)


_MODES = (
    _Mode("associated-node", _is_own_node),
    _Mode("arbitrary-node", lambda wanted, _: _only_name(wanted) and _node_of(wanted.name) is not None),
    _Mode("serviceaccount", lambda wanted, _: _only_name(wanted) and split_user_name(wanted.name) is not None),
    _Mode("user-info", lambda wanted, _: _node_of(wanted.name) is None and split_user_name(wanted.name) is None),
    _Mode("", lambda _wanted, _asker: True),
)
