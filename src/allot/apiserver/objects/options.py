"""The options of a request, from its query and, for deletions, its body.

Parses and validates ListOptions, CreateOptions, UpdateOptions, PatchOptions and DeleteOptions with Kubernetes' errors; knows
nothing of objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from allot.apiserver.errors import bad_request, invalid
from allot.core.validation.fields import FORBIDDEN, INVALID, NOT_SUPPORTED, REQUIRED, TOO_LONG, FieldError, quote

_META_GROUP = "meta.k8s.io"
_FIELD_MANAGER_LENGTH_MAX = 128
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64_MAX = 2**63 - 1
_VALUE_TOLD_MAX = 200

PROPAGATION_POLICIES = ("Background", "Foreground", "Orphan")
FIELD_VALIDATIONS = ("Ignore", "Strict", "Warn")


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a list or watch asks for."""

    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_seconds: int | None = None
    allow_watch_bookmarks: bool = False
    send_initial_events: bool | None = None


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a create, update or patch asks for."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool | None = None


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a deletion asks for."""

    dry_run: bool = False
    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    orphan_dependents: bool | None = None
    uid: str = ""
    resource_version: str = ""


# --- reading values of a query ---


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """A boolean of a query: everything except "false" and "0" is true, even a name without a value."""
    text = query.get(name)
    return None if text is None else text.lower() not in ("false", "0")


def number(query: Mapping[str, str], name: str) -> int | None:
    """An integer of a query; 400 for anything else."""
    text = query.get(name)
    if text is None or text == "":
        return None
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _INT64_MAX:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:100]}": invalid syntax')
    return int(text)


# --- list and watch ---


def list_options(query: Mapping[str, str], *, watch: bool) -> ListOptions:
    """The options of a list or watch; 400 and 422 as upstream."""
    if not query:
        return ListOptions()
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        limit=max(0, number(query, "limit") or 0),
        continue_token=query.get("continue", ""),
        timeout_seconds=number(query, "timeoutSeconds"),
        allow_watch_bookmarks=bool(flag(query, "allowWatchBookmarks")),
        send_initial_events=flag(query, "sendInitialEvents"),
    )
    errors = _watch_errors(options) if watch else _list_errors(options)
    if errors:
        raise invalid(_META_GROUP, "ListOptions", "", errors)
    return options


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    match = options.resource_version_match
    if options.send_initial_events is not None:
        errors.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if not match:
        return errors
    if not options.resource_version:
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(_forbidden("resourceVersionMatch", text))
    if options.continue_token:
        errors.append(_forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if match not in ("Exact", "NotOlderThan"):
        errors.append(_not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and options.resource_version == "0":
        text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        errors.append(_forbidden("resourceVersionMatch", text))
    return errors


def _watch_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []
    match = options.resource_version_match
    if options.send_initial_events is not None and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(_forbidden("resourceVersionMatch", text))
    if not match:
        return errors
    if options.send_initial_events is None:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(_forbidden("resourceVersionMatch", text))
    if match != "NotOlderThan":
        errors.append(_not_supported("resourceVersionMatch", match, ("NotOlderThan",)))
    if options.continue_token:
        errors.append(_forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    return errors


# --- writes ---


_KNOWN_OPTIONS_MAX = 1_000
_known_options: dict[tuple[Any, ...], WriteOptions] = {}


def write_options(query: Mapping[str, str], user_agent: str, verb: str, content_type: str = "") -> WriteOptions:
    """The options of a create, update or patch. verb names the kind of options in errors: Create, Update, Patch."""
    # A client sends the same with all its requests.
    key = (user_agent, verb, content_type, *query.items())
    known = _known_options.get(key)
    if known is None:
        known = _read_write_options(query, user_agent, verb, content_type)
        if len(_known_options) >= _KNOWN_OPTIONS_MAX:
            _known_options.clear()
        _known_options[key] = known
    return known


def _read_write_options(query: Mapping[str, str], user_agent: str, verb: str, content_type: str) -> WriteOptions:
    manager = query.get("fieldManager", "")
    validation = query.get("fieldValidation", "")
    dry_run, errors = _dry_run(query.get("dryRun"))
    force = flag(query, "force") if verb == "Patch" else None
    if verb == "Patch":
        if content_type == "application/apply-patch+yaml":
            if not manager:
                errors.append(FieldError("fieldManager", REQUIRED, "Required value: is required for apply patch"))
        elif force is not None:
            errors.append(_forbidden("force", "may not be specified for non-apply patch"))
    errors += _field_manager_errors(manager)
    if validation and validation not in FIELD_VALIDATIONS:
        errors.append(_not_supported("fieldValidation", validation, FIELD_VALIDATIONS))
    if errors:
        raise invalid(_META_GROUP, f"{verb}Options", "", errors)
    return WriteOptions(
        dry_run=dry_run,
        field_manager=manager or _manager_from(user_agent),
        field_validation=validation or "Warn",
        force=force,
    )


def _manager_from(user_agent: str) -> str:
    """The default name under which a client's changes are tracked: the start of its user agent."""
    start = user_agent.split("/", 1)[0]
    return "".join(letter for letter in start if letter.isprintable())[:_FIELD_MANAGER_LENGTH_MAX]


def _field_manager_errors(manager: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(manager.encode()) > _FIELD_MANAGER_LENGTH_MAX:
        message = f"Too long: may not be more than {_FIELD_MANAGER_LENGTH_MAX} bytes"
        errors.append(FieldError("fieldManager", TOO_LONG, message))
    for position, letter in enumerate(manager):
        if not letter.isprintable():
            text = f"Invalid value: {_quoted(manager)}: invalid character U+{ord(letter):04X} (at position {position})"
            errors.append(FieldError("fieldManager", INVALID, text))
            break
    return errors


def _dry_run(given: object) -> tuple[bool, list[FieldError]]:
    values = [given] if isinstance(given, str) else given or []
    if not isinstance(values, list):
        values = [str(values)]
    wrong = [value for value in values if value != "All"]
    if wrong:
        return False, [_not_supported("dryRun", str(wrong[0]), ("All",))]
    return bool(values), []


# --- deletions ---


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteBody(msgspec.Struct, frozen=True, rename="camel"):
    kind: str | None = ""
    api_version: str | None = ""
    grace_period_seconds: int | None = None
    preconditions: _Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None
    # Not served, but not text either.
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None


def delete_options(query: Mapping[str, str], body: dict[str, Any] | None) -> DeleteOptions:
    """The options of a deletion: the body if there is one, the query otherwise, as upstream."""
    if body:
        try:
            given = msgspec.convert(body, _DeleteBody)
        except msgspec.ValidationError as error:
            raise bad_request(
                f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: json: {error}'
            ) from None
        if given.kind and given.kind != "DeleteOptions":
            raise bad_request("decoded object cannot be converted to DeleteOptions")
    else:
        orphan, uid, version = flag(query, "orphanDependents"), query.get("uid"), query.get("resourceVersion")
        given = _DeleteBody(
            grace_period_seconds=number(query, "gracePeriodSeconds"),
            orphan_dependents=orphan,
            propagation_policy=query.get("propagationPolicy"),
            dry_run=[query["dryRun"]] if "dryRun" in query else None,
            preconditions=_Preconditions(uid, version) if uid or version else None,
        )
    return _checked_delete_options(given)


def _checked_delete_options(given: _DeleteBody) -> DeleteOptions:
    dry_run, errors = _dry_run(given.dry_run)
    policy = given.propagation_policy
    if policy is not None and given.orphan_dependents is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(FieldError("propagationPolicy", INVALID, f"Invalid value: {_quoted(policy)}: {text}"))
    if policy is not None and policy not in PROPAGATION_POLICIES:
        errors.append(_not_supported("propagationPolicy", policy, (*PROPAGATION_POLICIES, "nil")))
    if errors:
        raise invalid(_META_GROUP, "DeleteOptions", "", errors)
    grace = given.grace_period_seconds
    return DeleteOptions(
        dry_run=dry_run,
        # Kubernetes treats a negative period as one second.
        grace_period_seconds=1 if grace is not None and grace < 0 else grace,
        propagation_policy=policy or "",
        orphan_dependents=given.orphan_dependents,
        uid=(given.preconditions and given.preconditions.uid) or "",
        resource_version=(given.preconditions and given.preconditions.resource_version) or "",
    )


def _forbidden(field: str, text: str) -> FieldError:
    return FieldError(field, FORBIDDEN, f"Forbidden: {text}")


def _not_supported(field: str, value: str, supported: tuple[str, ...]) -> FieldError:
    told = ", ".join(f'"{text}"' for text in supported)
    return FieldError(field, NOT_SUPPORTED, f"Unsupported value: {_quoted(value)}: supported values: {told}")


def _quoted(value: str) -> str:
    return quote(value[:_VALUE_TOLD_MAX])
