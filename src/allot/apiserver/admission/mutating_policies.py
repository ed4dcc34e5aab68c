"""MutatingAdmissionPolicy: policies in CEL that change what is written.

The original object determines which policies apply; each mutation sees the result of the previous ones.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation, Rounds
from allot.apiserver.admission.bound_policies import BoundPolicies, Invocation, Misconfigured
from allot.apiserver.admission.objects import metadata, text
from allot.apiserver.errors import StatusError, internal, unavailable
from allot.apiserver.objects.fieldchecks import strict_text
from allot.apiserver.registry import Registry
from allot.apiserver.resources import Refused, Resource
from allot.core.policies.conditions import Conditions, EvaluationFailed
from allot.core.policies.mutating import JSON_PATCH, MutatingPolicy, Mutation
from allot.core.schema import Schema, check_fields

_PLUGIN = "MutatingAdmissionPolicy"


class MutatingPolicies:
    """The plugin."""

    def __init__(self, lookup: Lookup, registry: Registry, authorize: Authorize) -> None:
        names = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
        self._bound = BoundPolicies(lookup, registry, authorize, *names, MutatingPolicy)
        self.idle, self.idle_by = self._bound.idle, self._bound.idle_by

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Requests with an object that can be changed."""
        return operation is not Operation.DELETE and self._bound.handles(resource, subresource, operation)

    async def mutate(self, admission: Admission) -> None:
        """Apply every bound policy, in order of name."""
        found = [each async for each in self._bound.invocations(admission)]
        rounds = admission.rounds_of(_PLUGIN)
        rounds.begin(admission)
        refusals: list[tuple[Conditions, str, str, str]] = [
            (each.policy, each.binding, each.message, "Forbidden") for each in found if isinstance(each, Misconfigured)
        ]
        for each in found:
            if isinstance(each, Invocation):
                problems = await self._invoke(admission, each, rounds)
                refusals += [(each.policy, each.binding_name, problem, "Invalid") for problem in problems]
        rounds.end(admission)
        refusals = [each for each in refusals if each[0].fails]
        if refusals:
            raise _refusal(admission, refusals)

    async def _invoke(self, admission: Admission, found: Invocation[MutatingPolicy], rounds: Rounds) -> list[str]:
        """Apply a policy's mutations; returns what went wrong."""
        cases, policy = self._bound.cases, found.policy
        case = await cases.again(admission, found.case)
        bindings = await cases.bindings(admission, case, found.param)
        try:
            if not policy.meets_conditions(bindings):
                return []
        except EvaluationFailed as error:
            return [str(error)]
        key = _key(found)
        if rounds.skips(admission, key):
            return []
        before, problems = admission.object, []
        for mutation in policy.mutations if before is not None else ():
            schema = cases.schema_of(admission, case)
            if schema is None:
                raise _unknown_kind(bindings["request"]["kind"])
            bindings["object"] = (await cases.again(admission, case)).new
            try:
                changed = _mutated(policy, mutation, bindings, schema)
                if changed is not bindings["object"]:
                    admission.object = await cases.stored(admission, case, changed)
            except (EvaluationFailed, Refused) as error:
                problems.append(str(error))
        rounds.invoked(admission, key, before, if_needed=policy.is_reinvoked)
        return problems


def _mutated(policy: MutatingPolicy, mutation: Mutation, bindings: dict[str, Any], schema: Schema) -> Object:
    changed = policy.mutated(mutation, bindings, schema)
    if mutation.patch_type == JSON_PATCH and changed is not bindings["object"]:
        # An apply has been checked against the schema; a patch can say anything.
        report = check_fields(changed, schema)
        if report.wrong or report.strict_errors:
            raise internal(report.wrong[0] if report.wrong else strict_text(report.strict_errors))
    return changed


def _key(found: Invocation[MutatingPolicy]) -> str:
    meta = metadata(found.param)
    return f"{found.policy.name}/{found.binding_name}/{text(meta.get('namespace'))}/{text(meta.get('name'))}"


def _unknown_kind(kind: Object) -> StatusError:
    """503: a definition's schema is available only a moment later."""
    shown = f"{kind['group']}/{kind['version']}, Kind={kind['kind']}"
    late = "There can be a delay between when CustomResourceDefinitions are created and when they are available."
    return unavailable(f"Resource kind {shown} not found. {late}")


def _refusal(admission: Admission, refusals: list[tuple[Conditions, str, str, str]]) -> StatusError:
    """403 with the first policy's message, and all of them as causes."""
    told = [
        f"policy '{policy.name}' with binding '{binding}' denied request: {why}"
        if binding
        else f'policy "{policy.name}" denied request: {why}'
        for policy, binding, why, _ in refusals
    ]
    error = admission.forbidden("")
    error.message, error.reason = told[0], refusals[0][3]
    error.details = {**(error.details or {}), "causes": [{"message": each} for each in told]}
    return error
