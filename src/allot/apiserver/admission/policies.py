"""ValidatingAdmissionPolicy: administrators' policies in CEL, and their bindings."""

from __future__ import annotations

import msgspec

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object
from allot.apiserver.admission.bound_policies import BoundPolicies, Misconfigured
from allot.apiserver.admission.objects import field, metadata, text
from allot.apiserver.errors import StatusError
from allot.apiserver.registry import Registry
from allot.core.policies.validating import Denial, Policy

_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_FAILURES_MAX = 50


class ValidatingPolicies:
    """The plugin."""

    def __init__(self, lookup: Lookup, registry: Registry, authorize: Authorize) -> None:
        names = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
        self._bound = BoundPolicies(lookup, registry, authorize, *names, Policy)
        self.handles = self._bound.handles
        self.idle, self.idle_by = self._bound.idle, self._bound.idle_by

    async def validate(self, admission: Admission) -> None:
        """Evaluate every bound policy."""
        refusals: list[tuple[str, str, Denial]] = []
        failures: list[Object] = []
        async for found in self._bound.invocations(admission):
            policy = found.policy
            if isinstance(found, Misconfigured):
                if policy.fails:
                    refusals.append((policy.name, found.binding, Denial(message=found.message)))
                continue
            evaluated = found.policy.evaluate(await self._bound.cases.bindings(admission, found.case, found.param))
            for key, value in evaluated.audit_annotations.items():
                admission.audit_annotations[f"{policy.name}/{key}"] = value
            for denial in evaluated.denials:
                _act(admission, policy.name, found.binding, denial, refusals, failures)
        if failures:
            key = "validation.policy.admission.k8s.io/validation_failure"
            admission.audit_annotations[key] = msgspec.json.encode(failures[:_FAILURES_MAX]).decode()
        if refusals:
            raise _refusal(admission, *refusals[0])


def _act(
    admission: Admission,
    policy: str,
    binding: Object,
    denial: Denial,
    refusals: list[tuple[str, str, Denial]],
    failures: list[Object],
) -> None:
    """Take the actions that the binding specifies for a denial."""
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
