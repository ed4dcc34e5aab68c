"""CustomResourceDefinitions: defaults, and everything that can be wrong with one.

Not covered: webhook conversion's client configuration beyond its presence, and the approval
annotation of Kubernetes' own groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from allot.core.customresources.field_paths import PathError, field_path
from allot.core.customresources.openapi import check_value
from allot.core.customresources.rule_costs import check_costs
from allot.core.customresources.rules import RuleTree, check_rules, compile_rules
from allot.core.customresources.structural import any_schema, below, check_structural, combinations
from allot.core.validation import formats
from allot.core.validation.fields import (
    FieldError,
    Finding,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)

Object = Mapping[str, Any]
Schema = Mapping[str, Any]

SELECTABLE_FIELDS_MAX = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
# What the root of a schema may say if the status is a part of its own, as upstream names it.
_ROOT_FIELDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems "
    "MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations"
)
_ROOT_NAMES = frozenset(
    (
        *(name[0].lower() + name[1:] for name in _ROOT_FIELDS.split()),
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    )
)
_UNSET: tuple[Any, ...] = (None, [], {}, "", False)
_UNSUPPORTED = ("definitions", "dependencies", "patternProperties", "id", "$ref", "additionalItems", "$schema")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def versions_of(definition: Object) -> list[Mapping[str, Any]]:
    """spec.versions."""
    return _objects(_mapping(definition.get("spec")).get("versions"))


def storage_version(definition: Object) -> str:
    """The version in which objects are stored; empty if none is marked."""
    return next((_text(one.get("name")) for one in versions_of(definition) if one.get("storage") is True), "")


def is_condition_true(definition: Object, type_: str) -> bool:
    """Whether a condition of a definition holds."""
    conditions = _objects(_mapping(definition.get("status")).get("conditions"))
    return any(one.get("type") == type_ and one.get("status") == "True" for one in conditions)


def with_definition_defaults(definition: Object) -> dict[str, Any]:
    """The definition with names and conversion filled in."""
    spec = dict(_mapping(definition.get("spec")))
    names = dict(_mapping(spec.get("names")))
    kind = _text(names.get("kind"))
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    spec["names"] = names
    if not isinstance(spec.get("conversion"), dict):
        spec["conversion"] = {"strategy": "None"}
    return {**definition, "spec": spec}


def stored_versions(definition: Object, before: Sequence[str]) -> list[str]:
    """status.storedVersions after a write."""
    present = storage_version(definition)
    return [*before, present] if present and present not in before else list(before)


# --- validation ---


def check_definition(definition: Object, old: Object | None = None) -> list[FieldError]:
    """Everything wrong with the spec of a definition, its metadata apart from the rule for its name left out."""
    spec = _mapping(definition.get("spec"))
    found: list[Finding] = []
    found += _check_name(definition, spec) + _check_group(spec)
    found += _one_of("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
    versions = versions_of(definition)
    before = {_text(one.get("name")): one.get("schema") for one in versions_of(old)} if old is not None else {}
    for position, version in enumerate(versions):
        known = before.get(_text(version.get("name")))
        found += _check_version(version, f"spec.versions[{position}]", _mapping(known).get("openAPIV3Schema"))
    found += _check_versions(versions) + _check_names(spec) + _check_conversion(spec)
    if spec.get("preserveUnknownFields") is True:
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        found.append(invalid("spec.preserveUnknownFields", True, text))
    if old is not None:
        found += _check_change(spec, _mapping(old.get("spec")), established=is_condition_true(old, "Established"))
    found += _check_stored_versions(definition, versions)
    return [finding.error for finding in found]


def _check_name(definition: Object, spec: Object) -> list[Finding]:
    name = _text(_mapping(definition.get("metadata")).get("name"))
    wanted = f"{_text(_mapping(spec.get('names')).get('plural'))}.{_text(spec.get('group'))}"
    return [invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')] if name != wanted else []


def _check_group(spec: Object) -> list[Finding]:
    group = _text(spec.get("group"))
    if not group:
        return [required("spec.group")]
    messages = formats.dns_subdomain(group)
    if messages:
        return [invalid("spec.group", group, ",".join(messages))]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _one_of(path: str, value: Any, accepted: Sequence[str]) -> list[Finding]:
    if not value:
        return [required(path)]
    return [] if value in accepted else [not_supported(path, str(value), accepted)]


def _label(value: str) -> list[str]:
    messages = [] if _LABEL.fullmatch(value) else [_LABEL_TEXT]
    return [*messages, "must be no more than 63 bytes"] if len(value) > 63 else messages


def _check_versions(versions: Sequence[Object]) -> list[Finding]:
    names = [_text(one.get("name")) for one in versions]
    found: list[Finding] = []
    if len(set(names)) != len(names):
        found.append(invalid("spec.versions", names, "must contain unique version names"))
    if sum(1 for one in versions if one.get("storage") is True) != 1:
        found.append(invalid("spec.versions", names, "must have exactly one version marked as storage version"))
    return found


def _check_names(spec: Object) -> list[Finding]:
    names = _mapping(spec.get("names"))
    found = [
        required(f"spec.names.{name}") for name in ("plural", "singular", "kind", "listKind") if not names.get(name)
    ]
    for name in ("plural", "singular"):
        messages = _label(_text(names.get(name))) if names.get(name) else []
        if messages:
            found.append(invalid(f"spec.names.{name}", names[name], ",".join(messages)))
    for name in ("kind", "listKind"):
        messages = _label(_text(names.get(name)).lower()) if names.get(name) else []
        if messages:
            text = f"may have mixed case, but should otherwise match: {','.join(messages)}"
            found.append(invalid(f"spec.names.{name}", names[name], text))
    for listed in ("shortNames", "categories"):
        for position, one in enumerate(names.get(listed) or ()):
            messages = _label(_text(one))
            if messages:
                found.append(invalid(f"spec.names.{listed}[{position}]", one, ",".join(messages)))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    return found


def _check_conversion(spec: Object) -> list[Finding]:
    conversion = spec.get("conversion")
    if not isinstance(conversion, dict):
        return []
    path = "spec.conversion"
    found = _one_of(f"{path}.strategy", conversion.get("strategy"), ("None", "Webhook"))
    webhook = _mapping(conversion.get("webhook"))
    if conversion.get("strategy") == "Webhook":
        if not isinstance(webhook.get("clientConfig"), dict):
            text = "required when strategy is set to Webhook"
            found.append(required(f"{path}.webhookClientConfig", text))
        if not webhook.get("conversionReviewVersions"):
            found.append(required(f"{path}.conversionReviewVersions"))
    elif webhook:
        text = "should not be set when strategy is not set to Webhook"
        found.append(forbidden(f"{path}.webhookClientConfig", text))
    return found


def _check_change(spec: Object, old: Object, *, established: bool) -> list[Finding]:
    places = [("group",), ("names", "plural")]
    if established:
        places += [("scope",), ("names", "kind")]
    found: list[Finding] = []
    for place in places:
        new, before = spec.get(place[0]), old.get(place[0])
        if len(place) == 2:
            new, before = _mapping(new).get(place[1]), _mapping(before).get(place[1])
        if new != before:
            found.append(invalid(".".join(("spec", *place)), new, "field is immutable"))
    return found


def _check_stored_versions(definition: Object, versions: Sequence[Object]) -> list[Finding]:
    path = "status.storedVersions"
    stored = _mapping(definition.get("status")).get("storedVersions") or []
    names = [_text(one.get("name")) for one in versions]
    if not stored:
        return [invalid(path, stored, "must have at least one stored version")]
    found: list[Finding] = []
    for position, one in enumerate(stored):
        if one not in names:
            text = (
                f"missing from spec.versions; {one} was previously a storage version, and must remain in spec.versions "
                f"until a storage migration ensures no data remains persisted in {one} and removes {one} from "
                "status.storedVersions"
            )
            found.append(invalid(f"{path}[{position}]", one, text))
    return found


# --- one version ---


def _check_version(version: Object, path: str, old_schema: Any) -> list[Finding]:
    found: list[Finding] = []
    name = _text(version.get("name"))
    messages = _label(name)
    if messages:
        found.append(invalid(f"{path}.name", name, ",".join(messages)))
    warning = version.get("deprecationWarning")
    if warning is not None and version.get("deprecated") is not True:
        found.append(invalid(f"{path}.deprecationWarning", warning, "can only be set for deprecated versions"))
    schema = _mapping(version.get("schema")).get("openAPIV3Schema")
    subresources = _mapping(version.get("subresources"))
    if isinstance(schema, dict):
        place, status = f"{path}.schema.openAPIV3Schema", "status" in subresources
        found += _check_schema(schema, place, status=status, unchanged=schema == old_schema)
    else:
        found.append(required(f"{path}.schema.openAPIV3Schema"))
        schema = {}
    scale = subresources.get("scale")
    if isinstance(scale, dict):
        found += _check_scale(scale, f"{path}.subresources.scale")
    for position, column in enumerate(_objects(version.get("additionalPrinterColumns"))):
        found += _check_column(column, f"{path}.additionalPrinterColumns[{position}]")
    return found + _check_selectable(_objects(version.get("selectableFields")), schema, f"{path}.selectableFields")


def _check_scale(scale: Object, path: str) -> list[Finding]:
    found: list[Finding] = []
    for name, start, wanted in (
        ("specReplicasPath", ".spec.", True),
        ("statusReplicasPath", ".status.", True),
        ("labelSelectorPath", "", False),
    ):
        value = _text(scale.get(name))
        starts = (start,) if start else (".spec.", ".status.")
        if not value:
            found += [required(f"{path}.{name}")] if wanted else []
        elif not value.startswith(starts):
            told = f"should be a json path under {start.removesuffix('.') if start else 'either .spec or .status'}"
            found.append(invalid(f"{path}.{name}", value, told))
    return found


def _check_column(column: Object, path: str) -> list[Finding]:
    found = [] if column.get("name") else [required(f"{path}.name")]
    listed = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("type"):
        found.append(required(f"{path}.type", listed))
    elif column["type"] not in _COLUMN_TYPES:
        found.append(invalid(f"{path}.type", column["type"], listed))
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        found.append(invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not column.get("jsonPath"):
        found.append(required(f"{path}.JSONPath"))
    elif not _text(column["jsonPath"]).startswith("."):
        found.append(invalid(f"{path}.JSONPath", column["jsonPath"], "must be a simple json path starting with ."))
    return found


def _check_selectable(fields: Sequence[Object], schema: Schema, path: str) -> list[Finding]:
    found: list[Finding] = []
    known: set[str] = set()
    for position, one in enumerate(fields):
        place, written = f"{path}[{position}].jsonPath", _text(one.get("jsonPath"))
        if not written:
            found.append(required(place))
            continue
        try:
            read = field_path(written, schema, allow_index=False)
        except PathError as error:
            found.append(invalid(place, written, f"is an invalid path: {error}"))
            continue
        if read.steps[:1] == ("metadata",):
            found.append(invalid(place, written, "must not point to fields in metadata"))
        if read.schema.get("type") not in ("string", "boolean", "integer"):
            text = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
            found.append(invalid(place, written, text))
        if read.path in known:
            found.append(duplicate(place, written))
        known.add(read.path)
    if len(known) > SELECTABLE_FIELDS_MAX:
        found.append(too_many(path, len(known), SELECTABLE_FIELDS_MAX))
    return found


# --- schemas ---


def check_schema(schema: Schema, path: str) -> list[FieldError]:
    """What is wrong with a schema that belongs to no definition."""
    return [finding.error for finding in _check_schema(schema, path, status=False, unchanged=False)]


def _check_schema(schema: Schema, path: str, *, status: bool, unchanged: bool) -> list[Finding]:
    """unchanged: it was accepted before; what its rules cost no longer matters."""
    found: list[Finding] = []
    if status and any(name not in _ROOT_NAMES and value not in _UNSET for name, value in schema.items()):
        text = (
            f"only [{_ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource is enabled"
        )
        found.append(invalid(path, dict(schema), text))
    if schema.get("nullable") is True:
        found.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structural = [Finding(error) for error in check_structural(schema, path)]
    found += structural
    defaults = [] if structural else _check_defaults(schema, path, root=True)
    found += defaults
    openapi, rules = _check_nodes(schema, path, root=True, old_forbidden="", nested=False)
    found += openapi
    if openapi or structural or defaults:
        return found
    return found + rules + ([] if unchanged else check_costs(schema, path))


def _check_nodes(
    schema: Schema, path: str, *, root: bool, old_forbidden: str, nested: bool
) -> tuple[list[Finding], list[Finding]]:
    """What is wrong with a schema and those inside it: with its shape, and with its rules."""
    found = _check_node(schema, path)
    rules = [] if nested else _check_rules(schema, path, root=root, old_forbidden=old_forbidden)
    found += _check_rule_texts(schema, path)
    for place, one in below(schema):
        keyed = schema.get("x-kubernetes-list-type") == "map"
        inside = old_forbidden or (path if place == "items" and not keyed else "")
        more, more_rules = _check_nodes(one, f"{path}.{place}", root=False, old_forbidden=inside, nested=nested)
        found, rules = found + more, rules + more_rules
    for place, one in combinations(schema):
        more, _ = _check_nodes(one, f"{path}.{place}", root=False, old_forbidden=old_forbidden, nested=True)
        found += more
    return found, rules


def _check_node(schema: Schema, path: str) -> list[Finding]:
    found: list[Finding] = []
    type_ = _text(schema.get("type"))
    if type_ and type_ not in (*_TYPES, "null"):
        found.append(not_supported(f"{path}.type", type_, _TYPES))
    if type_ == "null":
        found.append(forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
    for name in _UNSUPPORTED:
        if schema.get(name):
            found.append(forbidden(f"{path}.{name}", f"{name} is not supported"))
    if schema.get("uniqueItems") is True:
        found.append(
            forbidden(
                f"{path}.uniqueItems",
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            )
        )
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        found.append(
            forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        )
    elif schema.get("additionalProperties") is False:
        found.append(forbidden(f"{path}.additionalProperties", "additionalProperties cannot be set to false"))
    if isinstance(schema.get("items"), list):
        found.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        found.append(invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"))
    return found + _check_kind_of_map(schema, type_, path) + _check_kind_of_list(schema, type_, path)


def _check_kind_of_map(schema: Schema, type_: str, path: str) -> list[Finding]:
    kind = schema.get("x-kubernetes-map-type")
    if kind is None:
        return []
    found: list[Finding] = []
    if type_ != "object":
        text = "must be object if x-kubernetes-map-type is specified"
        found.append(invalid(f"{path}.type", type_, text) if type_ else required(f"{path}.type", text))
    if kind not in ("atomic", "granular"):
        found.append(not_supported(f"{path}.x-kubernetes-map-type", str(kind), ("atomic", "granular")))
    return found


def _check_kind_of_list(schema: Schema, type_: str, path: str) -> list[Finding]:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    place = f"{path}.x-kubernetes-list-type"
    found: list[Finding] = []
    if kind is not None and type_ != "array":
        text = "must be array if x-kubernetes-list-type is specified"
        found.append(invalid(f"{path}.type", type_, text) if type_ else required(f"{path}.type", text))
    if kind is not None and kind not in ("atomic", "set", "map"):
        found.append(not_supported(place, str(kind), ("atomic", "set", "map")))
    if keys and kind != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        found.append(required(place, text) if kind is None else invalid(place, kind, text))
    items = schema.get("items")
    if kind == "set" and isinstance(items, dict):
        found += _check_set_items(items, path)
    if kind == "map":
        found += _check_map_items(items, keys, path)
    if kind in ("set", "map") and isinstance(items, dict) and items.get("nullable") is True:
        found.append(forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {kind}"))
    return found


def _check_set_items(items: Schema, path: str) -> list[Finding]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "array" and items.get("x-kubernetes-list-type") not in (None, "atomic"):
        return [invalid(f"{path}.items.x-kubernetes-list-type", items["x-kubernetes-list-type"], text)]
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        return [invalid(f"{path}.items.x-kubernetes-map-type", items.get("x-kubernetes-map-type"), text)]
    return []


def _check_map_items(items: Any, keys: Sequence[Any], path: str) -> list[Finding]:
    found: list[Finding] = []
    place = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        found.append(required(place, "must not be empty if x-kubernetes-list-type is map"))
    if not isinstance(items, dict):
        return [*found, required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")]
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        return [*found, invalid(f"{path}.items.type", _text(items.get("type")), text)]
    properties, needed = _mapping(items.get("properties")), items.get("required") or []
    if len(set(keys)) != len(keys):
        found.append(invalid(place, list(keys), "must not contain duplicate entries"))
    for key in keys:
        below_key = f"{path}.items.properties[{key}]"
        one = properties.get(key)
        if not isinstance(one, dict):
            found.append(invalid(place, list(keys), "entries must all be names of item properties"))
            continue
        if one.get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            found.append(invalid(f"{below_key}.type", _text(one.get("type")), text))
        if key not in needed and one.get("default") is None:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            found.append(required(f"{below_key}.default", text))
        if one.get("nullable") is True:
            found.append(
                forbidden(
                    f"{below_key}.nullable", "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
                )
            )
    return found


# --- defaults and rules ---


def _check_defaults(schema: Schema, path: str, *, root: bool = False) -> list[Finding]:
    """Defaults have to be valid themselves."""
    found: list[Finding] = []
    if schema.get("default") is not None:
        errors = check_value(schema["default"], schema)
        errors += check_rules(RuleTree(schema), schema["default"]).errors if not errors else []
        for error in errors:
            place = f"{path}.default" if error.field == "<nil>" else f"{path}.default.{error.field}"
            found.append(Finding(FieldError(place, error.type, error.message)))
    for place, one in below(schema):
        if root and place in ("properties[metadata]", "properties[apiVersion]", "properties[kind]"):
            name = place.removeprefix("properties[").removesuffix("]")
            if any_schema(one, lambda inner: inner.get("default") is not None):
                found.append(forbidden(f"{path}.{place}.default", f"must not be set in top-level {name}"))
            continue
        found += _check_defaults(one, f"{path}.{place}")
    return found


def _check_rule_texts(schema: Schema, path: str) -> list[Finding]:
    found: list[Finding] = []
    for position, rule in enumerate(_objects(schema.get("x-kubernetes-validations"))):
        place = f"{path}.x-kubernetes-validations[{position}]"
        written, message = _text(rule.get("rule")).strip(), _text(rule.get("message"))
        if not written:
            found.append(required(f"{place}.rule", "rule is not specified"))
        elif message and not message.strip():
            found.append(invalid(f"{place}.message", message, "must be non-empty if specified"))
        elif _has_line_break(message.strip()):
            found.append(invalid(f"{place}.message", message, "must not contain line breaks"))
        elif _has_line_break(written) and not message:
            found.append(required(f"{place}.message", "message must be specified if rule contains line breaks"))
        if rule.get("reason") and rule["reason"] not in _REASONS:
            found.append(not_supported(f"{place}.reason", str(rule["reason"]), _REASONS))
        where = rule.get("fieldPath")
        if isinstance(where, str) and where:
            try:
                field_path(where, schema)
            except PathError:
                found.append(invalid(f"{place}.fieldPath", where, "must be a valid path"))
    return found


def _has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text


def _check_rules(schema: Schema, path: str, *, root: bool, old_forbidden: str) -> list[Finding]:
    found: list[Finding] = []
    for position, rule in enumerate(compile_rules(schema, root=root)):
        place = f"{path}.x-kubernetes-validations[{position}]"
        if rule.problem:
            found.append(invalid(f"{place}.rule", dict(rule.source), rule.problem))
        if rule.message_problem:
            found.append(invalid(f"{place}.messageExpression", dict(rule.source), rule.message_problem))
        if rule.uses_old and old_forbidden:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {old_forbidden}"
            found.append(invalid(f"{place}.rule", rule.source["rule"], text))
        if rule.program is not None and not rule.uses_old and rule.source.get("optionalOldSelf") is not None:
            text = "may not be set if oldSelf is not used in rule"
            found.append(invalid(f"{place}.optionalOldSelf", rule.source["optionalOldSelf"], text))
    return found
