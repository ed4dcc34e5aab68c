"""Kubernetes' authorizer library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from allot.core.cel.data.authorization import Authorizer, Decision, GroupCheck, PathCheck, ResourceCheck
from allot.core.cel.data.values import CelError, Value


def _path(authorizer: Authorizer, path: str) -> PathCheck:
    if not path:
        raise CelError("path must not be empty")
    return PathCheck(authorizer.ask, replace(authorizer.question, path=path))


def _group(authorizer: Authorizer, group: str) -> GroupCheck:
    return GroupCheck(authorizer.ask, replace(authorizer.question, group=group))


def _service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    if not namespace:
        raise CelError("Invalid service account namespace")
    if not name:
        raise CelError("Invalid service account name")
    return Authorizer(authorizer.ask, replace(authorizer.question, service_account=(namespace, name)))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource:
        raise CelError("resource must not be empty")
    return ResourceCheck(check.ask, replace(check.question, resource=resource))


def _with(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def changed(check: ResourceCheck, value: str) -> ResourceCheck:
        change: dict[str, Any] = {field: value}
        return ResourceCheck(check.ask, replace(check.question, **change))

    return changed


def _check(check: Authorizer, verb: str) -> Decision:
    return check.ask(replace(check.question, verb=verb))


OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    "authorizer_path": _path,
    "authorizer_group": _group,
    "authorizer_serviceaccount": _service_account,
    "groupcheck_resource": _resource,
    "resourcecheck_subresource": _with("subresource"),
    "resourcecheck_namespace": _with("namespace"),
    "resourcecheck_name": _with("name"),
    "authorizer_fieldselector": _with("field_selector"),
    "authorizer_labelselector": _with("label_selector"),
    "pathcheck_check": _check,
    "resourcecheck_check": _check,
    "decision_allowed": lambda decision: decision.allowed,
    "decision_reason": lambda decision: decision.reason,
    "decision_errored": lambda decision: bool(decision.error),
    "decision_error": lambda decision: decision.error,
}
