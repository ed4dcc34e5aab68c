"""The attributes of a request for access decisions, and the texts of refusals.

Knows nothing about authentication, and nothing about rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allot.core.validation.fields import quote

# Members may do everything; neither rules nor bindings can take that away.
MASTERS_GROUP = "system:masters"
AUTHENTICATED_GROUP = "system:authenticated"
UNAUTHENTICATED_GROUP = "system:unauthenticated"
NODES_GROUP = "system:nodes"
NODE_USER_PREFIX = "system:node:"


class User(msgspec.Struct, frozen=True):
    """Who asks."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED_GROUP,))


def authenticated_groups(name: str, groups: Sequence[str]) -> tuple[str, ...]:
    """The groups of a user with a credential: with system:authenticated, but for who is called system:anonymous or is said
    to be in one of the two groups already, as in Kubernetes."""
    if name == ANONYMOUS.name or AUTHENTICATED_GROUP in groups or UNAUTHENTICATED_GROUP in groups:
        return tuple(groups)
    return (*groups, AUTHENTICATED_GROUP)


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What authorization looks at. For paths outside the API only user, verb and path are set."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: str = ""
    label_selector: str = ""

    @property
    def is_resource(self) -> bool:
        """Whether an API object is asked for."""
        return bool(self.resource)


class Decision(msgspec.Struct, frozen=True):
    """Whether it is allowed, and by what; a refusal may have a reason, too."""

    allowed: bool
    reason: str = ""


NO_OPINION = Decision(False)


def node_name(user: User) -> str | None:
    """The node that the user is; empty for a member of system:nodes without a name, None for everyone else."""
    if NODES_GROUP not in user.groups or not user.name.startswith(NODE_USER_PREFIX):
        return None
    return user.name[len(NODE_USER_PREFIX) :]


def selected_name(field_selector: str) -> str:
    """The one object that a field selector is about, empty if it can be about several.

    A list or watch of a single object counts as a request for that object: nodes read secrets this way.
    """
    for term in field_selector.split(","):
        field, _, name = term.strip().partition("=")
        name = name.removeprefix("=")
        if field == "metadata.name" and name and "/" not in name and "%" not in name and name not in (".", ".."):
            return name
    return ""


def refusal(attributes: Attributes, reason: str = "") -> str:
    """The words of a 403 after "is forbidden: ", as Kubernetes has them."""
    told = _told(attributes)
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        told = told.replace(character, escaped)
    return f"{told}: {reason}" if reason else told


def _told(attributes: Attributes) -> str:
    who = f"User {quote(attributes.user.name)} cannot {attributes.verb}"
    if not attributes.is_resource:
        return f"{who} path {quote(attributes.path)}"
    resource = attributes.resource
    if attributes.subresource:
        resource += f"/{attributes.subresource}"
    what = f"{who} resource {quote(resource)} in API group {quote(attributes.group)}"
    if attributes.namespace:
        return f"{what} in the namespace {quote(attributes.namespace)}"
    return f"{what} at the cluster scope"
