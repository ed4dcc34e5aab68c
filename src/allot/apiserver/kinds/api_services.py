"""APIServices: only the server says whether one is available; those without a Service always are."""

from __future__ import annotations

from collections.abc import Callable

from allot.apiserver.kinds.generic import GenericStrategy
from allot.apiserver.resources import Object, Resource
from allot.core.customresources.conditions import with_condition
from allot.core.lifecycle.api_services import LOCAL, is_local


class ApiServiceStrategy(GenericStrategy):
    """A new APIService has no status of its own, except that a local one is available at once."""

    def __init__(self, resource: Resource, now: Callable[[], str | None]) -> None:
        super().__init__(resource)
        self._now = now

    def prepare_create(self, object_: Object) -> Object:
        """A new APIService."""
        value = {**super().prepare_create(object_), "status": {}}
        return with_condition(value, LOCAL, self._now() or "") if is_local(value) else value
