"""Kinds that are answered but not stored: access reviews, token reviews, "who am I", and the older form of bindings."""

from __future__ import annotations

from typing import Any

from allot.apiserver.access import reviews
from allot.apiserver.access.object_getter import ObjectGetter
from allot.apiserver.access.setup import Access
from allot.apiserver.access.token_requests import request_token
from allot.apiserver.admission.attributes import Operation
from allot.apiserver.aside import size_of
from allot.apiserver.errors import method_not_allowed
from allot.apiserver.handlers import bindings
from allot.apiserver.objects import objectmeta
from allot.apiserver.objects.bodies import read_object
from allot.apiserver.objects.fieldchecks import TOKEN_REQUEST, checked_fields, read_part
from allot.apiserver.objects.options import write_options
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiObject, ApiRequest
from allot.apiserver.server_context import ServerContext

Object = dict[str, Any]


class Reviews:
    """Answers reviews."""

    def __init__(self, access: Access, lookup: ObjectGetter) -> None:
        self._access = access
        self._lookup = lookup

    async def answer(self, context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
        """POST of something that is not stored."""
        resource, access = served.resource, self._access
        if resource.kind == "Binding":
            return await bindings.bind(context, served, request)
        options = write_options(request.query, request.user_agent, "Create")
        review, warnings = await context.aside.run(
            size_of(request.body), _read, context, served, request, options.field_validation
        )
        review = objectmeta.in_namespace(review, request.namespace, namespaced=resource.namespaced)
        review = {**review, "metadata": review.get("metadata") or {}}
        match resource.kind:
            case "SelfSubjectAccessReview":
                told = reviews.self_subject_access_review(access.authorizer, review, request.user)
            case "SubjectAccessReview":
                told = reviews.subject_access_review(access.authorizer, review)
            case "LocalSubjectAccessReview":
                told = reviews.local_subject_access_review(access.authorizer, review, request.namespace)
            case "SelfSubjectRulesReview":
                told = reviews.self_subject_rules_review(access.authorizer, review, request.user)
            case "SelfSubjectReview":
                told = reviews.self_subject_review(review, request.user, context.clock)
            case "TokenReview":
                told = await reviews.token_review(access.authenticator, review, access.tokens.audiences)
            case _:
                raise method_not_allowed()
        return ApiObject(object=told, status=201, warnings=warnings)

    async def token(self, context: ServerContext, served: Served, request: ApiRequest) -> ApiObject:
        """POST of a TokenRequest to a service account."""
        options = write_options(request.query, request.user_agent, "Create")
        body, told = await context.aside.run(
            size_of(request.body), read_part, request, served, context.registry, TOKEN_REQUEST, options.field_validation
        )
        access = self._access
        admitted, warnings = await context.admission.admit(
            request, Operation.CREATE, served.resource, body, None, subresource="token"
        )
        assert admitted is not None, "admission of a create keeps an object"
        issued = await request_token(
            access.tokens, self._lookup, context.clock, request.namespace, request.name, admitted
        )
        return ApiObject(object=issued, status=201, warnings=(*told, *warnings))


def _read(
    context: ServerContext, served: Served, request: ApiRequest, validation: str
) -> tuple[Object, tuple[str, ...]]:
    return checked_fields(read_object(request, served, context.registry), served, validation)
