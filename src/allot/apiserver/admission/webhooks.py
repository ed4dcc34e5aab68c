"""Admission webhooks: programs elsewhere that change or refuse objects.

Webhooks are asked one after the other, in the order of their configurations' names. A mutating webhook is not asked again when
a later one has changed the object (reinvocationPolicy IfNeeded is treated as Never).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation
from allot.apiserver.admission.cases import Case, Cases, admission_request
from allot.apiserver.admission.objects import metadata, sequence, text
from allot.apiserver.admission.webhook_calls import CallFailed, WebhookAnswer, call
from allot.apiserver.errors import StatusError, bad_request, internal
from allot.apiserver.registry import Registry
from allot.apiserver.resources import Refused, Resource
from allot.core.patching.errors import PatchError
from allot.core.patching.json_patch import json_patch
from allot.core.policies.matching import EXEMPT, EXEMPT_REVIEWS, MatchError
from allot.core.policies.validating import EvaluationFailed, Policy
from allot.process.ids import Ids

_GROUP = "admissionregistration.k8s.io"
_HARMLESS = ("None", "NoneOnDryRun")


class _Webhooks:
    """What both kinds of webhooks have in common."""

    plural = ""

    def __init__(self, lookup: Lookup, registry: Registry, authorize: Authorize, ids: Ids) -> None:
        self._lookup = lookup
        self._registry = registry
        self._cases = Cases(lookup, registry, authorize)
        self._ids = ids

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG002
        """Everything but what would lock administrators out."""
        key = (resource.group, resource.plural)
        return key not in EXEMPT and key not in EXEMPT_REVIEWS

    def idle(self, namespace: str) -> bool:  # noqa: ARG002
        """Whether there are no webhooks."""
        return self._lookup.known_list(self.plural, _GROUP) == []

    async def _each(self, admission: Admission) -> None:
        for configuration in await self._lookup.list(self.plural, _GROUP):
            for webhook in sequence(configuration.get("webhooks")):
                if isinstance(webhook, dict):
                    await self._one(admission, webhook)

    async def _one(self, admission: Admission, webhook: Mapping[str, Any]) -> None:
        name = text(webhook.get("name"))
        try:
            case = await self._matched(admission, webhook)
            if case is None:
                return
            if admission.dry_run and webhook.get("sideEffects") not in _HARMLESS:
                raise bad_request(f"admission webhook {name!r} does not support dry run".replace("'", '"'))
            answer = await call(self._lookup, webhook, self._review(admission, case))
            for key, value in answer.audit_annotations.items():
                admission.audit_annotations[f"{name}/{key}"] = value
            admission.warnings.extend(answer.warnings)
            if not answer.allowed:
                raise _denial(name, answer)
            self._use(admission, case, answer)
        except (CallFailed, MatchError, EvaluationFailed) as error:
            if webhook.get("failurePolicy") != "Ignore":
                raise internal(f'failed calling webhook "{name}": {error}') from error

    async def _matched(self, admission: Admission, webhook: Mapping[str, Any]) -> Case | None:
        rules = {
            "resourceRules": webhook.get("rules") or [{}],
            "matchPolicy": webhook.get("matchPolicy"),
            "namespaceSelector": webhook.get("namespaceSelector"),
            "objectSelector": webhook.get("objectSelector"),
        }
        case = await self._cases.matched(admission, rules)
        if case is None or not webhook.get("matchConditions"):
            return case
        policy = _conditions(msgspec.json.encode(webhook["matchConditions"]))
        return case if policy.meets_conditions(await self._cases.bindings(admission, case)) else None

    def _review(self, admission: Admission, case: Case) -> Object:
        request = {"uid": self._ids.new_uid(), **admission_request(admission, case)}
        request |= {"object": case.new, "oldObject": case.old}
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    def _use(self, admission: Admission, case: Case, answer: WebhookAnswer) -> None:
        """What to do with a webhook's consent."""


class MutatingWebhooks(_Webhooks):
    """MutatingWebhookConfigurations."""

    plural = "mutatingwebhookconfigurations"

    async def mutate(self, admission: Admission) -> None:
        """Let webhooks change the object."""
        await self._each(admission)

    def _use(self, admission: Admission, case: Case, answer: WebhookAnswer) -> None:
        if answer.patch is None or case.new is None:
            return
        try:
            changed = json_patch(case.new, answer.patch)
        except PatchError as error:
            raise CallFailed(str(error)) from error
        admission.object = self._as_stored(admission, case, changed)

    def _as_stored(self, admission: Admission, case: Case, changed: Any) -> Object:
        if not isinstance(changed, dict) or not metadata(changed):
            raise CallFailed("received invalid webhook response: the patch leaves no object behind")
        resource = admission.resource
        row = self._registry.find(resource.group, case.version, resource.plural)
        if row is None or changed.get("kind") != resource.kind:
            return changed
        try:
            return row.strategy.read(changed)
        except Refused as error:
            raise CallFailed(str(error)) from error


class ValidatingWebhooks(_Webhooks):
    """ValidatingWebhookConfigurations."""

    plural = "validatingwebhookconfigurations"

    async def validate(self, admission: Admission) -> None:
        """Let webhooks refuse the object."""
        await self._each(admission)


@lru_cache(maxsize=256)
def _conditions(encoded: bytes) -> Policy:
    """The matchConditions of a webhook, compiled: a policy that has nothing else."""
    return Policy({"spec": {"matchConditions": msgspec.json.decode(encoded)}})


def _denial(name: str, answer: WebhookAnswer) -> StatusError:
    why = f": {answer.message or answer.reason}" if answer.message or answer.reason else " without explanation"
    code = answer.code if 400 <= answer.code < 600 else 403
    message = f'admission webhook "{name}" denied the request{why}'
    return StatusError(code, answer.reason or ("Forbidden" if code == 403 else ""), message)
