"""Admission policies and their bindings: which of them apply to a request, and with which parameters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation
from allot.apiserver.admission.cases import Case, Cases
from allot.apiserver.admission.objects import field, metadata, text
from allot.apiserver.registry import Registry, run_for
from allot.apiserver.resources import Resource
from allot.core.json_objects import mapping
from allot.core.policies.conditions import Conditions
from allot.core.policies.matching import EXEMPT, EXEMPT_REVIEWS, MatchError, labels_of, selector_matches

_GROUP = "admissionregistration.k8s.io"
_COMPILED_MAX = 1000
_Policy = TypeVar("_Policy", bound=Conditions)


class Misconfigured(msgspec.Struct, frozen=True):
    """Why a policy or a binding cannot be used. binding: its name, empty if the policy is at fault."""

    policy: Conditions
    binding: str
    message: str


class Invocation(msgspec.Struct, Generic[_Policy], frozen=True):
    """A policy that applies to a request, with one of the parameters of a binding."""

    policy: _Policy
    binding: Object
    case: Case
    param: Object | None

    @property
    def binding_name(self) -> str:
        """The name of the binding."""
        return text(metadata(self.binding).get("name"))


class _ConfigurationError(Exception):
    """A misconfigured policy or binding."""


class BoundPolicies(Generic[_Policy]):
    """All policies of one kind."""

    def __init__(
        self,
        lookup: Lookup,
        registry: Registry,
        authorize: Authorize,
        plural: str,
        bindings: str,
        compile_: Callable[[Object], _Policy],
    ) -> None:
        """plural, bindings: the resources; compile_: compiles a policy."""
        self._lookup = lookup
        self._registry = registry
        self._plural = plural
        self._bindings = bindings
        self.idle_by = ((bindings, _GROUP),)
        self._compile = compile_
        self._compiled: dict[str, tuple[str, _Policy]] = {}
        self.cases = Cases(lookup, registry, authorize)

    @staticmethod
    def handles(resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG004
        """Everything except what could lock administrators out."""
        key = (resource.group, resource.plural)
        return key not in EXEMPT and key not in EXEMPT_REVIEWS

    def idle(self, namespace: str) -> bool:  # noqa: ARG002
        """Whether no policy is bound."""
        return self._lookup.known_list(self._bindings, _GROUP) == []

    async def invocations(self, admission: Admission) -> AsyncIterator[Invocation[_Policy] | Misconfigured]:
        """Every policy that matches the request, once per parameter of each binding."""
        by_policy: dict[str, list[Object]] = {}
        for binding in await self._lookup.list(self._bindings, _GROUP):
            by_policy.setdefault(text(field(binding, "spec", "policyName")), []).append(binding)
        if not by_policy:
            return
        for object_ in await self._lookup.list(self._plural, _GROUP):
            bindings = by_policy.get(text(metadata(object_).get("name")))
            if bindings:
                async for found in self._of_policy(admission, self._policy(object_), bindings):
                    yield found

    def _policy(self, object_: Object) -> _Policy:
        meta = metadata(object_)
        name, version = text(meta.get("name")), text(meta.get("resourceVersion"))
        found = self._compiled.get(name)
        if found is None or found[0] != version:
            if len(self._compiled) >= _COMPILED_MAX:
                # Deleted policies leave theirs behind.
                self._compiled.clear()
            found = self._compiled[name] = (version, self._compile(object_))
        return found[1]

    async def _of_policy(
        self, admission: Admission, policy: _Policy, bindings: Sequence[Object]
    ) -> AsyncIterator[Invocation[_Policy] | Misconfigured]:
        try:
            case = await self.cases.matched(admission, mapping(policy.spec.get("matchConstraints")))
        except MatchError as error:
            yield Misconfigured(policy, "", f"failed to configure policy: {error}")
            return
        if case is None:
            return
        for binding in bindings:
            try:
                resources = field(binding, "spec", "matchResources")
                if isinstance(resources, dict) and await self.cases.matched(admission, resources) is None:
                    continue
                params = await self._params(admission, policy, mapping(binding.get("spec")))
            except (MatchError, _ConfigurationError) as error:
                name = text(metadata(binding).get("name"))
                yield Misconfigured(policy, name, f"failed to configure binding: {error}")
                continue
            for param in params:
                yield Invocation(policy, binding, case, param)

    async def _params(
        self, admission: Admission, policy: _Policy, binding: Mapping[str, Any]
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
        return [await run_for(row, row.present, one) for one in found]
