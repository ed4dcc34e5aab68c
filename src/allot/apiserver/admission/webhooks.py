"""Admission webhooks: external programs that change or refuse objects.

Webhooks are called one by one, in the order of their configurations' names. A mutating webhook that requests reinvocation is called a
second time if the object was changed after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation
from allot.apiserver.admission.cases import Case, Cases, admission_request
from allot.apiserver.admission.objects import metadata, sequence, text
from allot.apiserver.admission.webhook_calls import CallFailed, WebhookAnswer, WebhookCalls
from allot.apiserver.errors import StatusError, bad_request, internal
from allot.apiserver.registry import Registry
from allot.apiserver.resources import Refused, Resource
from allot.core.patching.errors import PatchError
from allot.core.patching.json_patch import json_patch
from allot.core.policies.conditions import Conditions, EvaluationFailed
from allot.core.policies.matching import EXEMPT, EXEMPT_REVIEWS, MatchError
from allot.process.ids import Ids

_GROUP = "admissionregistration.k8s.io"
_HARMLESS = ("None", "NoneOnDryRun")


class _Webhooks:
    """What both kinds of webhooks have in common."""

    plural = ""

    def __init__(self, lookup: Lookup, registry: Registry, authorize: Authorize, ids: Ids, calls: WebhookCalls) -> None:
        self._lookup = lookup
        self.idle_by = ((self.plural, _GROUP),)
        self._calls = calls
        self._registry = registry
        self._cases = Cases(lookup, registry, authorize)
        self._ids = ids

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG002
        """Everything except what could lock administrators out."""
        key = (resource.group, resource.plural)
        return key not in EXEMPT and key not in EXEMPT_REVIEWS

    def idle(self, namespace: str) -> bool:  # noqa: ARG002
        """Whether there are no webhooks."""
        return self._lookup.known_list(self.plural, _GROUP) == []

    async def _all(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Every webhook with its unique key."""
        return [
            (f"{text(metadata(configuration).get('name'))}/{index}", webhook)
            for configuration in await self._lookup.list(self.plural, _GROUP)
            for index, webhook in enumerate(sequence(configuration.get("webhooks")))
            if isinstance(webhook, dict)
        ]

    async def _one(self, admission: Admission, webhook: Mapping[str, Any]) -> bool:
        """Call a webhook; returns whether the request matched it."""
        name = text(webhook.get("name"))
        try:
            case = await self._matched(admission, webhook)
            if case is None:
                return False
            if admission.dry_run and webhook.get("sideEffects") not in _HARMLESS:
                raise bad_request(f"admission webhook {name!r} does not support dry run".replace("'", '"'))
            answer = await self._calls.call(webhook, self._review(admission, case))
            for key, value in answer.audit_annotations.items():
                admission.audit_annotations[f"{name}/{key}"] = value
            admission.warnings.extend(answer.warnings)
            if not answer.allowed:
                raise _denial(name, answer)
            await self._use(admission, case, answer)
        except (CallFailed, MatchError, EvaluationFailed) as error:
            if webhook.get("failurePolicy") != "Ignore":
                raise internal(f'failed calling webhook "{name}": {error}') from error
        return True

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

    async def _use(self, admission: Admission, case: Case, answer: WebhookAnswer) -> None:
        """Process a webhook's approval."""


class MutatingWebhooks(_Webhooks):
    """MutatingWebhookConfigurations."""

    plural = "mutatingwebhookconfigurations"

    async def mutate(self, admission: Admission) -> None:
        """Let webhooks change the object."""
        rounds = admission.rounds_of(self.plural)
        rounds.begin(admission)
        for key, webhook in await self._all():
            before = admission.object
            if not rounds.skips(admission, key) and await self._one(admission, webhook):
                rounds.invoked(admission, key, before, if_needed=webhook.get("reinvocationPolicy") == "IfNeeded")
        rounds.end(admission)

    async def _use(self, admission: Admission, case: Case, answer: WebhookAnswer) -> None:
        if answer.patch is None or case.new is None:
            return
        try:
            admission.object = await self._cases.stored(admission, case, json_patch(case.new, answer.patch))
        except (PatchError, Refused) as error:
            raise CallFailed(str(error)) from error


class ValidatingWebhooks(_Webhooks):
    """ValidatingWebhookConfigurations."""

    plural = "validatingwebhookconfigurations"

    async def validate(self, admission: Admission) -> None:
        """Let webhooks refuse the object."""
        for _, webhook in await self._all():
            await self._one(admission, webhook)


@lru_cache(maxsize=256)
def _conditions(encoded: bytes) -> Conditions:
    """The matchConditions of a webhook, compiled."""
    return Conditions({"spec": {"matchConditions": msgspec.json.decode(encoded)}})


def _denial(name: str, answer: WebhookAnswer) -> StatusError:
    why = f": {answer.message or answer.reason}" if answer.message or answer.reason else " without explanation"
    code = answer.code if 400 <= answer.code < 600 else 403
    message = f'admission webhook "{name}" denied the request{why}'
    return StatusError(code, answer.reason or ("Forbidden" if code == 403 else ""), message)
