"""ValidatingAdmissionPolicy: policies that administrators write in CEL, and the bindings that put them into force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation
from allot.apiserver.admission.cases import Cases
from allot.apiserver.admission.objects import field, mapping, metadata, text
from allot.apiserver.errors import StatusError
from allot.apiserver.registry import Registry
from allot.apiserver.resources import Resource
from allot.core.policies.matching import (
    EXEMPT,
    EXEMPT_REVIEWS,
    MatchError,
    labels_of,
    selector_matches,
)
from allot.core.policies.validating import Denial, Policy

_GROUP = "admissionregistration.k8s.io"
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_FAILURES_MAX = 50
_COMPILED_MAX = 1000


class _ConfigurationError(Exception):
    """A policy or binding that cannot be used as it is."""


class ValidatingPolicies:
    """The plugin."""

    def __init__(self, lookup: Lookup, registry: Registry, authorize: Authorize) -> None:
        self._lookup = lookup
        self._registry = registry
        self._cases = Cases(lookup, registry, authorize)
        self._compiled: dict[str, tuple[str, Policy]] = {}

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG002
        """Everything but what would lock administrators out."""
        key = (resource.group, resource.plural)
        return key not in EXEMPT and key not in EXEMPT_REVIEWS

    async def validate(self, admission: Admission) -> None:
        """Ask every policy that is bound."""
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
            case = await self._cases.matched(admission, mapping(policy.spec.get("matchConstraints")))
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
                if isinstance(resources, dict) and await self._cases.matched(admission, resources) is None:
                    continue
                params = await self._params(admission, policy, mapping(binding.get("spec")))
            except (MatchError, _ConfigurationError) as error:
                if policy.fails:
                    refusals.append((policy.name, name, Denial(message=f"failed to configure binding: {error}")))
                continue
            for param in params:
                found = policy.evaluate(await self._cases.bindings(admission, case, param))
                for key, value in found.audit_annotations.items():
                    admission.audit_annotations[f"{policy.name}/{key}"] = value
                for denial in found.denials:
                    _act(admission, policy.name, binding, denial, refusals, failures)

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
