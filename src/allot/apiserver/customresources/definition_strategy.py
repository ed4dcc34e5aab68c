"""The strategy of CustomResourceDefinitions themselves."""

from __future__ import annotations

from allot.apiserver.kinds.generic import RESOURCE_VERSION_MISSING, carried_over, errors_of, read_meta
from allot.apiserver.resources import Object, Resource, Strategy
from allot.core.customresources.conditions import with_termination
from allot.core.customresources.definition import (
    check_definition,
    stored_versions,
    versions_of,
    with_definition_defaults,
)
from allot.core.customresources.string_formats import is_known_format
from allot.core.customresources.structural import any_schema
from allot.core.validation.fields import FieldError
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update
from allot.process.clock import rfc3339

# Number formats have no effect on values but are not mistakes.
_NUMBER_FORMATS = ("int32", "int64", "float", "double", "int-or-string", "")


class DefinitionStrategy(Strategy):
    """The strategy of CustomResourceDefinitions."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def read(self, object_: Object) -> Object:
        """With defaults."""
        return with_definition_defaults(object_)

    def prepare_create(self, object_: Object) -> Object:
        """Nothing is accepted yet; records the storage version."""
        return {
            **object_,
            "metadata": {**object_["metadata"], "generation": 1},
            "status": {"storedVersions": stored_versions(object_, ())},
        }

    def prepare_update(self, object_: Object, old: Object, subresource: str) -> Object:
        """Spec and status have different writers."""
        meta = carried_over(object_["metadata"], old["metadata"], self._resource)
        before = old.get("status") or {}
        if subresource == "status":
            return {**old, "metadata": meta, "status": object_.get("status") or {}}
        if object_.get("spec") != old.get("spec"):
            meta["generation"] = (old["metadata"].get("generation") or 0) + 1
        stored = stored_versions(object_, before.get("storedVersions") or ())
        return {**object_, "metadata": meta, "status": {**before, "storedVersions": stored}}

    def prepare_delete(self, marked: Object, old: Object, asked: int | None, now: int) -> Object:  # noqa: ARG002
        """A deleted definition has the condition Terminating until its objects are gone."""
        return marked if "deletionTimestamp" in old["metadata"] else with_termination(marked, rfc3339(now))

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new definition."""
        found = check_object_meta(read_meta(object_), namespaced=False, free_finalizers=True)
        return (*errors_of(found), *check_definition(object_))

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:
        """All field errors of a changed definition."""
        meta = read_meta(object_)
        if not meta.resource_version:
            return (RESOURCE_VERSION_MISSING,)
        found = errors_of(check_object_meta_update(meta, read_meta(old), free_finalizers=True))
        return found if subresource == "status" else (*found, *check_definition(object_, old))

    def warnings(self, object_: Object) -> tuple[str, ...]:
        """Unknown formats."""
        unknown: dict[str, None] = {}

        def note(schema: Object) -> bool:
            name = schema.get("format")
            if isinstance(name, str) and name not in _NUMBER_FORMATS and not is_known_format(name):
                unknown[name] = None
            return False

        for version in versions_of(object_):
            any_schema((version.get("schema") or {}).get("openAPIV3Schema") or {}, note)  # type: ignore[arg-type]
        return tuple(f'unrecognized format "{name}"' for name in unknown)
