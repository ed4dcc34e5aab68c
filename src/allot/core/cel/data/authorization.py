"""Values of Kubernetes' authorizer library: `authorizer.group('apps').resource('deployments').check('get').allowed()`.

The caller provides the function that answers, in the `Authorizer`; this module only builds questions.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization question. service_account: namespace and name of the account to check instead of the requester."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: tuple[str, str] | None = None


class Decision(msgspec.Struct, frozen=True):
    """The answer."""

    allowed: bool
    reason: str = ""
    error: str = ""


# From a question to its answer.
Check = Callable[[Question], Decision]


class Authorizer:
    """The variable `authorizer`."""

    __slots__ = ("ask", "question")

    def __init__(self, ask: Check, question: Question | None = None) -> None:
        self.ask = ask
        self.question = question or Question()


class PathCheck(Authorizer):
    """A path outside the API."""

    __slots__ = ()


class GroupCheck(Authorizer):
    """An API group."""

    __slots__ = ()


class ResourceCheck(Authorizer):
    """A resource, maybe in a namespace, maybe with a name."""

    __slots__ = ()
