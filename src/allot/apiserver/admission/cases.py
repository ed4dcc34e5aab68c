"""Requests as policies and webhooks see them: matched against rules, in the version that the rules name, with everything that
expressions can ask about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object
from allot.apiserver.admission.objects import metadata, text
from allot.apiserver.kinds.schemas import builtin_schemas
from allot.apiserver.registry import Registry, run_for
from allot.apiserver.request import Attributes, User
from allot.apiserver.resources import Refused
from allot.core.cel.data.authorization import Authorizer, Decision, Question, ResourceCheck
from allot.core.policies.environment import namespace_value
from allot.core.policies.matching import Target, labels_of, matching_version, namespace_selected, object_selected
from allot.core.schema import FieldReport, Schema, check_fields, prune


class Case(msgspec.Struct, frozen=True):
    """A request as one policy sees it."""

    target: Target
    version: str
    new: Any
    old: Any


class Cases:
    """Determines what requests look like to rules and expressions."""

    def __init__(self, lookup: Lookup, registry: Registry, authorize: Authorize) -> None:
        self._lookup = lookup
        self._registry = registry
        self._authorize = authorize

    async def matched(self, admission: Admission, match: Mapping[str, Any]) -> Case | None:
        """The request as the rules match it; None if they do not."""
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
        new = await self._shown(admission, version, admission.object)
        return Case(target, version, new, await self._shown(admission, version, admission.old))

    async def _namespace_labels(self, admission: Admission, target: Target) -> Mapping[str, Any]:
        if target.is_namespace:
            return labels_of(admission.object or admission.old)
        return labels_of(await self._lookup.get("namespaces", "", "", target.namespace)) if target.namespace else {}

    async def _shown(self, admission: Admission, version: str, object_: Object | None) -> Object | None:
        """A stored object in another version; the kinds that subresources take stay as they are."""
        resource = admission.resource
        row = self._registry.find(resource.group, version, resource.plural)
        if object_ is None or row is None or object_.get("kind") not in (None, resource.kind):
            return object_
        return await run_for(row, row.present, object_)

    async def again(self, admission: Admission, case: Case) -> Case:
        """The case with the current object."""
        return msgspec.structs.replace(case, new=await self._shown(admission, case.version, admission.object))

    def schema_of(self, admission: Admission, case: Case) -> Schema | None:
        """The schema of the object as the case shows it; a subresource's may differ from the resource's."""
        kind = _kind(admission)
        resource = admission.resource
        if kind["kind"] != resource.kind:
            return builtin_schemas().for_kind(kind["group"], kind["version"], kind["kind"])
        row = self._registry.find(resource.group, case.version, resource.plural)
        return row.schema if row is not None else None

    async def stored(self, admission: Admission, case: Case, changed: Any) -> Object:
        """The object that a webhook or policy returned for a case, in the storage version; Refused if it cannot be
        read in that version."""
        if not isinstance(changed, dict) or (metadata(case.new) and not metadata(changed)):
            raise Refused("the patch leaves no object behind")
        resource = admission.resource
        row = self._registry.find(resource.group, case.version, resource.plural)
        schema, object_ = self.schema_of(admission, case), dict(changed)
        report = check_fields(object_, schema) if schema is not None else FieldReport()
        if report.wrong:
            raise Refused(report.wrong[0])
        if report.untidy and schema is not None:
            object_ = prune(object_, schema)
        if row is None or object_.get("kind") != resource.kind:
            return object_
        return await run_for(row, row.strategy.read, object_)

    async def bindings(self, admission: Admission, case: Case, params: Object | None = None) -> dict[str, Any]:
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
            "params": params,
            "namespaceObject": namespace_value(namespace),
            "request": admission_request(admission, case),
            "authorizer": authorizer,
            "authorizer.requestResource": ResourceCheck(authorizer.ask, question),
        }
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


def admission_request(admission: Admission, case: Case) -> dict[str, Any]:
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
    # Empty strings are omitted, as in JSON.
    return {name: value for name, value in found.items() if value != ""}


def _kind(admission: Admission) -> dict[str, str]:
    resource = admission.resource
    declared = resource.subresources.get(admission.subresource)
    if declared is not None and declared.kind:
        return {"group": declared.group, "version": declared.version or admission.version, "kind": declared.kind}
    return {"group": resource.group, "version": admission.version, "kind": resource.kind}
