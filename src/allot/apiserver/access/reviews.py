"""Access questions as objects: subject access reviews, rules reviews, token reviews, "who am I".

Each function takes the posted object and returns the answer. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from allot.apiserver.access.authentication import Authenticator
from allot.apiserver.access.authorizer import Authorizer
from allot.apiserver.access.service_account_tokens import InvalidToken
from allot.apiserver.errors import bad_request, invalid
from allot.core.access.attributes import Attributes, User
from allot.core.validation import fields
from allot.core.validation.fields import FieldError
from allot.process.clock import Clock

Object = dict[str, Any]

AUTHORIZATION = "authorization.k8s.io"
_SPEC_DEPTH_MAX = 8

_Spec = TypeVar("_Spec", bound=msgspec.Struct)


class _Requirement(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    raw_selector: str = ""
    requirements: tuple[_Requirement, ...] = ()


class _ResourceAttributes(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: _Selector | None = None
    label_selector: _Selector | None = None


class _NonResourceAttributes(msgspec.Struct, frozen=True):
    path: str = ""
    verb: str = ""


class _AccessSpec(msgspec.Struct, frozen=True, rename="camel"):
    resource_attributes: _ResourceAttributes | None = None
    non_resource_attributes: _NonResourceAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


class _RulesSpec(msgspec.Struct, frozen=True):
    namespace: str = ""


class _TokenSpec(msgspec.Struct, frozen=True):
    token: str = ""
    audiences: tuple[str, ...] = ()


# --- subject access reviews ---


def subject_access_review(authorizer: Authorizer, review: Object) -> Object:
    """May this user do that?"""
    spec = _spec(review, _AccessSpec)
    _refuse(review, [*_spec_errors(spec), *_subject_errors(spec), *_metadata_errors(review, "must be empty")])
    return _reviewed(authorizer, review, spec, User(spec.user, spec.uid, spec.groups, spec.extra))


def local_subject_access_review(authorizer: Authorizer, review: Object, namespace: str) -> Object:
    """May this user do that in the namespace of the review?"""
    spec = _spec(review, _AccessSpec)
    errors = [*_spec_errors(spec), *_subject_errors(spec)]
    errors += _metadata_errors(review, "must be empty except for namespace", "namespace")
    if spec.resource_attributes is not None and spec.resource_attributes.namespace != namespace:
        path, value = "spec.resourceAttributes.namespace", spec.resource_attributes.namespace
        errors.append(fields.invalid(path, value, "must match metadata.namespace").error)
    if spec.non_resource_attributes is not None:
        value = msgspec.to_builtins(spec.non_resource_attributes)
        errors.append(fields.invalid("spec.nonResourceAttributes", value, "disallowed on this kind of request").error)
    _refuse(review, errors)
    return _reviewed(authorizer, review, spec, User(spec.user, spec.uid, spec.groups, spec.extra))


def self_subject_access_review(authorizer: Authorizer, review: Object, user: User) -> Object:
    """May I do that?"""
    spec = _spec(review, _AccessSpec)
    _refuse(review, [*_spec_errors(spec), *_metadata_errors(review, "must be empty")])
    return _reviewed(authorizer, review, spec, user)


def _reviewed(authorizer: Authorizer, review: Object, spec: _AccessSpec, user: User) -> Object:
    problems: list[str] = []
    asked = spec.resource_attributes
    if asked is not None:
        attributes = Attributes(
            user=user,
            verb=asked.verb,
            group=asked.group,
            version=asked.version or "*",
            resource=asked.resource,
            subresource=asked.subresource,
            namespace=asked.namespace,
            name=asked.name,
            field_selector=_selector_text(asked.field_selector, "fieldSelector", problems),
            label_selector=_selector_text(asked.label_selector, "labelSelector", problems),
        )
    else:
        path = spec.non_resource_attributes
        assert path is not None, "checked before"
        attributes = Attributes(user=user, verb=path.verb, path=path.path)
    decision = authorizer.authorize(attributes)
    status: Object = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    if problems:
        status["evaluationError"] = "; ".join(problems)
    return review | {"status": status}


def _selector_text(selector: _Selector | None, field: str, problems: list[str]) -> str:
    """The selector as text; requirements that are not understood are omitted, which only asks for more access."""
    if selector is None:
        return ""
    if not selector.requirements:
        return selector.raw_selector
    found: list[str] = []
    for requirement in selector.requirements:
        sign = {"In": "=", "NotIn": "!="}.get(requirement.operator)
        if sign is not None and len(requirement.values) == 1:
            found.append(f"{requirement.key}{sign}{requirement.values[0]}")
    if len(found) < len(selector.requirements) and field == "fieldSelector":
        how = "partially ignored" if found else "ignored"
        problems.append(f"spec.resourceAttributes.{field} {how} due to parse error")
    return ",".join(found)


def self_subject_rules_review(authorizer: Authorizer, review: Object, user: User) -> Object:
    """What may I do in this namespace?"""
    namespace = _spec(review, _RulesSpec).namespace
    if not namespace:
        raise bad_request("no namespace on request")
    rules, failures = authorizer.rules_for(user, namespace)
    status: Object = {
        "resourceRules": [
            {key: value for key, value in rule.as_object().items() if key != "nonResourceURLs"}
            for rule in rules
            if rule.resources
        ],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
            for rule in rules
            if rule.non_resource_urls
        ],
        "incomplete": any(failure.startswith("node authorizer") for failure in failures),
    }
    if failures:
        status["evaluationError"] = failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]"
    return {"kind": review["kind"], "apiVersion": review["apiVersion"], "metadata": {}, "spec": {}, "status": status}


# --- authentication ---


def self_subject_review(review: Object, user: User, clock: Clock) -> Object:
    """Who am I?"""
    return {
        "kind": review["kind"],
        "apiVersion": review["apiVersion"],
        "metadata": {"creationTimestamp": clock.now()},
        "status": {"userInfo": user_info(user)},
    }


async def token_review(authenticator: Authenticator, review: Object, audiences: tuple[str, ...]) -> Object:
    """Whose token is this? audiences: the server's own, used if the review names none."""
    spec = _spec(review, _TokenSpec)
    if not spec.token:
        raise bad_request("token is required for TokenReview in authentication")
    wanted = spec.audiences or audiences
    status: Object = {}
    try:
        found = await authenticator.authenticate_token(spec.token, wanted)
    except InvalidToken as error:
        status["error"] = f"[invalid bearer token, {error}]"
    else:
        if found is None:
            status["error"] = "invalid bearer token"
        else:
            status |= {"authenticated": True, "user": user_info(found.user), "audiences": list(found.audiences)}
    if "user" not in status:
        status["user"] = {}
    return review | {"status": status}


def user_info(user: User) -> Object:
    """A user in the form used in objects."""
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


# --- reading what was posted ---


def _spec(review: Object, kind: type[_Spec]) -> _Spec:
    try:
        return msgspec.convert(_present(review.get("spec"), _SPEC_DEPTH_MAX) or {}, kind)
    except msgspec.ValidationError as error:
        told, version = review.get("kind", ""), str(review.get("apiVersion", "")).rpartition("/")[2]
        raise bad_request(f'{told} in version "{version}" cannot be handled as a {told}: spec: {error}') from error


def _present(value: Any, depth: int) -> Any:
    """The value without nulls, which mean the same as absent."""
    if depth == 0:
        raise bad_request("spec is nested too deep")
    if isinstance(value, dict):
        return {key: _present(item, depth - 1) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_present(item, depth - 1) for item in value]
    return value


def _spec_errors(spec: _AccessSpec) -> list[FieldError]:
    errors: list[FieldError] = []
    if (spec.resource_attributes is None) == (spec.non_resource_attributes is None):
        given = spec.non_resource_attributes
        value = None if given is None else {key: text for key, text in msgspec.to_builtins(given).items() if text}
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(fields.invalid("spec", value, detail).error)
    if spec.resource_attributes is not None:
        errors += _selector_errors(spec.resource_attributes.field_selector, "spec.resourceAttributes.fieldSelector")
        errors += _selector_errors(spec.resource_attributes.label_selector, "spec.resourceAttributes.labelSelector")
    return errors


def _subject_errors(spec: _AccessSpec) -> list[FieldError]:
    if spec.user or spec.groups:
        return []
    return [fields.invalid("spec.user", spec.user, "at least one of user or group must be specified").error]


def _selector_errors(selector: _Selector | None, path: str) -> list[FieldError]:
    if selector is None:
        return []
    if selector.raw_selector and selector.requirements:
        detail = "may not specified at the same time as requirements"
        return [fields.invalid(f"{path}.rawSelector", selector.raw_selector, detail).error]
    if not selector.raw_selector and not selector.requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        return [fields.required(f"{path}.requirements", detail).error]
    return []


def _metadata_errors(review: Object, detail: str, *allowed: str) -> list[FieldError]:
    metadata = review.get("metadata")
    if not isinstance(metadata, dict):
        return []
    given = {key: value for key, value in metadata.items() if value and key not in ("managedFields", *allowed)}
    return [fields.invalid("metadata", metadata, detail).error] if given else []


def _refuse(review: Object, errors: list[FieldError]) -> None:
    if errors:
        raise invalid(AUTHORIZATION, review.get("kind", ""), "", errors)
