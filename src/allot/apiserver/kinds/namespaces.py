"""Namespaces: they have separate finalizers, for their contents."""

from __future__ import annotations

from allot.apiserver.kinds.generic import GenericStrategy
from allot.apiserver.resources import Object


class NamespaceStrategy(GenericStrategy):
    """A deleted namespace is removed when it is empty; until then it is Terminating."""

    def prepare_delete(self, marked: Object, old: Object, asked: int | None, now: int) -> Object:  # noqa: ARG002
        """A namespace that is deleted."""
        if not self.is_held(old):
            return marked
        return {**marked, "status": {**(old.get("status") or {}), "phase": "Terminating"}}

    def is_held(self, object_: Object) -> bool:
        """Whether it has finalizers in its spec."""
        return bool((object_.get("spec") or {}).get("finalizers"))
