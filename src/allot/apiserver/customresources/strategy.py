"""The strategy of custom resources: pruning, defaults, their schema's rules, status and generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allot.apiserver.customresources.conversion_webhooks import ConversionWebhook
from allot.apiserver.kinds.generic import carried_over, errors_of, read_meta
from allot.apiserver.resources import Object, Resource, Strategy
from allot.core.customresources.list_types import check_list_types
from allot.core.customresources.openapi import check_value
from allot.core.customresources.rules import RuleTree, check_rules, rule_tree
from allot.core.schema import Schema, apply_defaults, prune
from allot.core.validation import formats
from allot.core.validation.fields import FieldError
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update


class CustomVersion:
    """One version of a custom resource: its schema as written, and what is derived from it."""

    __slots__ = ("_rules", "_rules_made", "defaults", "name", "raw", "schema", "shown")

    def __init__(self, name: str, raw: Mapping[str, Any], schema: Schema) -> None:
        self.name = name
        self.raw = raw
        self.schema = schema
        self._rules: RuleTree | None = None
        self._rules_made = False

    @property
    def rules(self) -> RuleTree | None:
        """The rules, compiled on first use, since objects of most kinds are never written."""
        if not self._rules_made:
            self._rules, self._rules_made = rule_tree(self.raw, root=True), True
        return self._rules

    def completed(self, object_: Object) -> Object:
        """The object with only known fields, and with defaults."""
        return apply_defaults(prune(object_, self.schema), self.schema)


def renamed(objects: Sequence[Object], api_version: str, webhook: ConversionWebhook | None) -> list[Object]:
    """Objects in another version: by the definition's webhook, or, if it has none, under another name."""
    if webhook is not None:
        return webhook.converted(objects, api_version)
    return [each if each.get("apiVersion") == api_version else {**each, "apiVersion": api_version} for each in objects]


class CustomStrategy(Strategy):
    """The strategy of one row. Objects are stored in the storage version, which differs from the row's by its name only, unless
    a webhook converts them."""

    def __init__(
        self, resource: Resource, version: CustomVersion, storage: CustomVersion, webhook: ConversionWebhook | None
    ) -> None:
        self._resource = resource
        self._version = version
        self._storage = storage
        self._webhook = webhook
        self._has_status = "status" in resource.subresources

    def read(self, object_: Object) -> Object:
        """The object as it was written, pruned and with defaults, in the storage version."""
        value = {**self._version.completed(object_), "kind": self._resource.kind}
        return self.current(value)

    def current(self, stored: Object) -> Object:
        """An object of any version in the current storage version."""
        (value,) = renamed((stored,), self._resource.storage_api_version, self._webhook)
        return value if self._webhook is None or value is stored else self._storage.completed(value)

    def prepare_create(self, object_: Object) -> Object:
        """A new object without a status, if status is a subresource."""
        value = dict(object_)
        if self._has_status:
            value.pop("status", None)
        value["metadata"] = {**value["metadata"], "generation": 1}
        return value

    def prepare_update(self, object_: Object, old: Object, subresource: str) -> Object:
        """A changed object with what it keeps."""
        meta = carried_over(object_["metadata"], old["metadata"], self._resource)
        if subresource == "status":
            kept = {name: old["metadata"][name] for name in old["metadata"]}
            kept |= {name: meta[name] for name in ("resourceVersion", "managedFields") if name in meta}
            value = {name: item for name, item in old.items() if name != "status"}
            if "status" in object_:
                value["status"] = object_["status"]
            return {**value, "metadata": kept}
        value = {**object_, "metadata": meta}
        if self._has_status:
            value.pop("status", None)
            if "status" in old:
                value["status"] = old["status"]
        if _content(value) != _content(old):
            generation = old["metadata"].get("generation")
            meta["generation"] = (generation if isinstance(generation, int) else 0) + 1
        return value

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new object."""
        found = check_object_meta(
            read_meta(object_),
            namespaced=self._resource.namespaced,
            name_format=formats.dns_subdomain,
            free_finalizers=True,
        )
        return (*errors_of(found), *self._content_errors(object_, None))

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:  # noqa: ARG002
        """All field errors of a changed object."""
        meta, old_meta = read_meta(object_), read_meta(old)
        found = check_object_meta(
            meta, namespaced=self._resource.namespaced, name_format=formats.path_segment, free_finalizers=True
        )
        found += check_object_meta_update(meta, old_meta, free_finalizers=True)
        return (*errors_of(found), *self._content_errors(object_, old))

    def _content_errors(self, object_: Object, old: Object | None) -> list[FieldError]:
        """Errors by the schema. Existing errors about unchanged values are ignored."""
        shown, before = self._as_written(object_), self._as_written(old) if old is not None else None
        raw = self._version.raw
        errors = _ratcheted(check_value(shown, raw), shown, before)
        errors += _ratcheted(check_list_types(shown, raw), shown, before)
        if errors:
            # Rules may rely on values that fit the schema.
            return errors
        return check_rules(self._version.rules, shown, before).errors

    def _as_written(self, object_: Object) -> Object:
        return renamed((object_,), self._resource.api_version, self._webhook)[0]

    def warnings(self, object_: Object) -> tuple[str, ...]:  # noqa: ARG002
        """None: field validation reports unknown fields."""
        return ()


def _content(object_: Object) -> Object:
    return {name: item for name, item in object_.items() if name not in ("metadata", "status", "apiVersion", "kind")}


def _ratcheted(errors: list[FieldError], new: Object, old: Object | None) -> list[FieldError]:
    """The errors without those about unchanged values."""
    if not errors or old is None:
        return errors
    return [error for error in errors if not _is_unchanged(error.field, new, old)]


def _is_unchanged(path: str, new: Any, old: Any) -> bool:
    """Whether the value at a path is unchanged; only members are followed, not list items."""
    for step in path.split("."):
        name = step.partition("[")[0]
        if not isinstance(new, dict) or not isinstance(old, dict) or name not in new or name not in old:
            return False
        new, old = new[name], old[name]
        if "[" in step:
            break
    return bool(new == old)
