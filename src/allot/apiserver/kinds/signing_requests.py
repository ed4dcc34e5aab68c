"""Certificate signing requests: only the server sets who requested them, and when they were decided."""

from __future__ import annotations

from collections.abc import Callable

from allot.apiserver.kinds.generic import GenericStrategy
from allot.apiserver.resources import Object, Resource
from allot.core.access.attributes import User
from allot.core.validation.builtin.certificates import with_times
from allot.core.validation.builtin.values import members

_REQUESTER = ("username", "uid", "groups", "extra")


class SigningRequestStrategy(GenericStrategy):
    """Requests carry the user who created them, whatever the client sends; conditions get the server's time."""

    def __init__(self, resource: Resource, now: Callable[[], str | None]) -> None:
        super().__init__(resource)
        self._now = now

    def with_requester(self, object_: Object, user: User) -> Object:
        """A new request with its requester."""
        spec = {name: value for name, value in members(object_, "spec").items() if name not in _REQUESTER}
        told = {
            "username": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
        }
        return {**object_, "spec": spec | {name: value for name, value in told.items() if value}}

    def prepare_update(self, object_: Object, old: Object, subresource: str) -> Object:
        """A changed request."""
        value = super().prepare_update(object_, old, subresource)
        now = self._now() if subresource else None
        return with_times(value, old, now) if now else value
