"""ValidatingAdmissionPolicy: policies that administrators write in CEL, and the bindings that put them into force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation
from allot.apiserver.admission.objects import field, mapping, metadata, text
from allot.apiserver.errors import StatusError, invalid
from allot.apiserver.registry import Registry
from allot.apiserver.request import Attributes, User
from allot.apiserver.resources import Resource
from allot.core.cel.authorization import Authorizer, Decision, Question, ResourceCheck
from allot.core.policies.environment import namespace_value
from allot.core.policies.matching import (
    EXEMPT,
    EXEMPT_REVIEWS,
    MatchError,
    Target,
    labels_of,
    matching_version,
    namespace_selected,
    object_selected,
    selector_matches,
)
from allot.core.policies.validating import Denial, Policy

_GROUP = "admissionregistration.k8s.io"
_POLICIES = (_GROUP, "validatingadmissionpolicies")
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_FAILURES_MAX = 50
_COMPILED_MAX = 1000


class _ConfigurationError(Exception):
    """A policy or binding that cannot be used as it is."""


class _Case(msgspec.Struct, frozen=True):
    """A request as one policy sees it."""

    target: Target
    version: str
    new: Any
    old: Any


class ValidatingPolicies:
    """The plugin."""

    def __init__(self, lookup: Lookup, registry: Registry, authorize: Authorize) -> None:
        self._lookup = lookup
        self._registry = registry
        self._authorize = authorize
        self._compiled: dict[str, tuple[str, Policy]] = {}

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG002
        """Everything but what would lock administrators out; writes of policies are checked themselves."""
        key = (resource.group, resource.plural)
        return key == _POLICIES or (key not in EXEMPT and key not in EXEMPT_REVIEWS)

    async def validate(self, admission: Admission) -> None:
        """Ask every policy that is bound."""
        if admission.key == _POLICIES:
            _check_policy(admission)
            return
        bindings = await self._lookup.list("validatingadmissionpolicybindings", _GROUP)
        if not bindings:
            return
        by_policy: dict[str, list[Object]] = {}
        for binding in bindings:
            by_policy.setdefault(text(field(binding, "spec", "policyName")), []).append(binding)
        refusals: list[tuple[str, str, Denial]] = []
        failures: list[Object] = []
        for object_ in await self._lookup.list("validatingadmissionpolicies", _GROUP):
            bound = by_policy.get(text(metadata(object_).get("name")))
            if bound:
                await self._ask(admission, self._policy(object_), bound, refusals, failures)
        if failures:
            key = "validation.policy.admission.k8s.io/validation_failure"
            admission.audit_annotations[key] = msgspec.json.encode(failures[:_FAILURES_MAX]).decode()
        if refusals:
            raise _refusal(admission, *refusals[0])

    def _policy(self, object_: Object) -> Policy:
        meta = metadata(object_)
        name, version = text(meta.get("name")), text(meta.get("resourceVersion"))
        found = self._compiled.get(name)
        if found is None or found[0] != version:
            if len(self._compiled) >= _COMPILED_MAX:
                # Policies that are gone leave theirs behind.
                self._compiled.clear()
            found = self._compiled[name] = (version, Policy(object_))
        return found[1]

    async def _ask(
        self,
        admission: Admission,
        policy: Policy,
        bindings: Sequence[Object],
        refusals: list[tuple[str, str, Denial]],
        failures: list[Object],
    ) -> None:
        try:
            case = await self._matched(admission, mapping(policy.spec.get("matchConstraints")))
        except MatchError as error:
            if policy.fails:
                refusals.append((policy.name, "", Denial(message=f"failed to configure policy: {error}")))
            return
        if case is None:
            return
        for binding in bindings:
            name = text(metadata(binding).get("name"))
            try:
                resources = field(binding, "spec", "matchResources")
                if isinstance(resources, dict) and await self._matched(admission, resources) is None:
                    continue
                params = await self._params(admission, policy, mapping(binding.get("spec")))
            except (MatchError, _ConfigurationError) as error:
                if policy.fails:
                    refusals.append((policy.name, name, Denial(message=f"failed to configure binding: {error}")))
                continue
            for param in params:
                found = policy.evaluate(await self._bindings(admission, case, param, policy))
                for key, value in found.audit_annotations.items():
                    admission.audit_annotations[f"{policy.name}/{key}"] = value
                for denial in found.denials:
                    _act(admission, policy.name, binding, denial, refusals, failures)

    # --- matching ---

    async def _matched(self, admission: Admission, match: Mapping[str, Any]) -> _Case | None:
        """The request as the rules mean it; None if they mean others."""
        resource = admission.resource
        target = Target(
            operation=admission.operation,
            group=resource.group,
            version=admission.version,
            resource=resource.plural,
            subresource=admission.subresource,
            namespace=admission.namespace,
            name=admission.name or text(metadata(admission.object).get("name")),
        )
        versions = [
            row.resource.version
            for row in self._registry
            if (row.resource.group, row.resource.plural) == (resource.group, resource.plural)
        ]
        version = matching_version(match, target, versions)
        if version is None or not object_selected(match, admission.object, admission.old):
            return None
        if match.get("namespaceSelector"):
            labels = await self._namespace_labels(admission, target)
            if not namespace_selected(match, target, labels):
                return None
        new, old = self._shown(admission, version, admission.object), self._shown(admission, version, admission.old)
        return _Case(target, version, new, old)

    async def _namespace_labels(self, admission: Admission, target: Target) -> Mapping[str, Any]:
        if target.is_namespace:
            return labels_of(admission.object or admission.old)
        return labels_of(await self._lookup.get("namespaces", "", "", target.namespace)) if target.namespace else {}

    def _shown(self, admission: Admission, version: str, object_: Object | None) -> Object | None:
        """A stored object in another version; what a subresource takes stays as it is."""
        resource = admission.resource
        row = self._registry.find(resource.group, version, resource.plural)
        if object_ is None or row is None or object_.get("kind") not in (None, resource.kind):
            return object_
        return row.present(object_)

    # --- what expressions see ---

    async def _params(
        self, admission: Admission, policy: Policy, binding: Mapping[str, Any]
    ) -> Sequence[Object | None]:
        kind, reference = policy.spec.get("paramKind"), binding.get("paramRef")
        if not isinstance(kind, dict) or not isinstance(reference, dict):
            return (None,)
        group, _, version = text(kind.get("apiVersion")).rpartition("/")
        row = self._registry.of_kind(group, version, text(kind.get("kind")))
        if row is None:
            raise _ConfigurationError(f"paramKind kind `{kind.get('apiVersion')}, Kind={kind.get('kind')}` not known")
        namespace = text(reference.get("namespace"))
        if not row.resource.namespaced:
            if namespace:
                raise _ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        elif not namespace:
            namespace = admission.namespace
            if not namespace:
                raise _ConfigurationError(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
        plural, name = row.resource.plural, text(reference.get("name"))
        if name:
            one = await self._lookup.get(plural, group, namespace, name)
            found = [one] if one is not None else []
        else:
            every = await self._lookup.list(plural, group, namespace)
            found = [one for one in every if selector_matches(reference.get("selector"), labels_of(one))]
        if not found and reference.get("parameterNotFoundAction") == "Deny":
            raise _ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [row.present(one) for one in found]

    async def _bindings(
        self, admission: Admission, case: _Case, param: Object | None, policy: Policy
    ) -> dict[str, Any]:
        namespace = None
        if admission.namespace and not case.target.is_namespace:
            namespace = await self._lookup.get("namespaces", "", "", admission.namespace)
        authorizer = Authorizer(self._asker(admission.user))
        target = case.target
        question = Question(
            group=target.group,
            resource=target.resource,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
        )
        found: dict[str, Any] = {
            "object": case.new,
            "oldObject": case.old,
            "namespaceObject": namespace_value(namespace),
            "request": _request(admission, case),
            "authorizer": authorizer,
            "authorizer.requestResource": ResourceCheck(authorizer.ask, question),
        }
        if isinstance(policy.spec.get("paramKind"), dict):
            found["params"] = param
        return found

    def _asker(self, user: User) -> Any:
        known: dict[Question, Decision] = {}

        def ask(question: Question) -> Decision:
            if question not in known:
                known[question] = self._answer(user, question)
            return known[question]

        return ask

    def _answer(self, user: User, question: Question) -> Decision:
        if question.service_account is not None:
            namespace, name = question.service_account
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
            user = User(f"system:serviceaccount:{namespace}:{name}", groups=groups)
        verdict = self._authorize(
            Attributes(
                user=user,
                verb=question.verb,
                path=question.path,
                group=question.group,
                version="*" if question.resource else "",
                resource=question.resource,
                subresource=question.subresource,
                namespace=question.namespace,
                name=question.name,
                field_selector=question.field_selector,
                label_selector=question.label_selector,
            )
        )
        return Decision(verdict.allowed, verdict.reason)


def _check_policy(admission: Admission) -> None:
    """A policy whose expressions do not compile is refused."""
    new = admission.object
    if new is None or admission.subresource or admission.operation is Operation.DELETE:
        return
    if admission.old is not None and admission.old.get("spec") == new.get("spec"):
        return
    errors = Policy(new).errors()
    if errors:
        raise invalid(_GROUP, "ValidatingAdmissionPolicy", text(metadata(new).get("name")), errors)


def _act(
    admission: Admission,
    policy: str,
    binding: Object,
    denial: Denial,
    refusals: list[tuple[str, str, Denial]],
    failures: list[Object],
) -> None:
    """Do what the binding says is to be done about a denial."""
    name = text(metadata(binding).get("name"))
    actions = field(binding, "spec", "validationActions") or ["Deny"]
    for action in actions:
        if action == "Deny":
            refusals.append((policy, name, denial))
        elif action == "Warn":
            told = f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{name}': {denial.message}"
            admission.warnings.append(told)
        elif action == "Audit":
            failures.append(
                {
                    "message": denial.message,
                    "policy": policy,
                    "binding": name,
                    "expressionIndex": denial.index,
                    "validationActions": actions,
                }
            )


def _refusal(admission: Admission, policy: str, binding: str, denial: Denial) -> StatusError:
    bound = f" with binding '{binding}'" if binding else ""
    message = f"ValidatingAdmissionPolicy '{policy}'{bound} denied request: {denial.message}"
    error = admission.forbidden(message)
    error.reason = denial.reason
    error.code = _CODES.get(denial.reason, 422)
    error.details = {**(error.details or {}), "causes": [{"message": message}]}
    return error


def _request(admission: Admission, case: _Case) -> dict[str, Any]:
    resource, target = admission.resource, case.target
    kind = _kind(admission)
    user: dict[str, Any] = {
        "username": admission.user.name,
        "uid": admission.user.uid,
        "groups": list(admission.user.groups),
        "extra": {name: list(values) for name, values in admission.user.extra.items()},
    }
    found: dict[str, Any] = {
        "kind": {**kind, "version": case.version} if not admission.subresource else kind,
        "resource": {"group": resource.group, "version": case.version, "resource": resource.plural},
        "subResource": admission.subresource,
        "requestKind": kind,
        "requestResource": {"group": resource.group, "version": admission.version, "resource": resource.plural},
        "requestSubResource": admission.subresource,
        "name": target.name,
        "namespace": admission.namespace,
        "operation": str(admission.operation),
        "userInfo": {name: value for name, value in user.items() if value},
        "dryRun": admission.dry_run,
        "options": dict(admission.options) or None,
    }
    # Empty texts are left out, as in JSON.
    return {name: value for name, value in found.items() if value != ""}


def _kind(admission: Admission) -> dict[str, str]:
    resource = admission.resource
    declared = resource.subresources.get(admission.subresource)
    if declared is not None and declared.kind:
        return {"group": declared.group, "version": declared.version or admission.version, "kind": declared.kind}
    return {"group": resource.group, "version": admission.version, "kind": resource.kind}
