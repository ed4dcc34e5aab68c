"""TokenRequest: a service account's token on demand (`serviceaccounts/token`), perhaps bound to a pod, node or secret."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.access.object_getter import ObjectGetter
from allot.apiserver.access.service_account_tokens import UNBOUND, Binding, ServiceAccountTokens
from allot.apiserver.errors import bad_request, conflict, invalid, not_found
from allot.core.validation import fields
from allot.core.validation.fields import FieldError
from allot.process.clock import Clock, rfc3339

Object = dict[str, Any]

GROUP = "authentication.k8s.io"
SECONDS_DEFAULT = 3600
SECONDS_MIN = 600
SECONDS_MAX = 1 << 32
# The lifetime that projected volumes ask for by default. Such tokens live a year, so that old clients which read their token
# once keep working; the token records when it should have been renewed.
PROJECTED_SECONDS = 3607
EXTENDED_SECONDS = 365 * 24 * 3600


class _Reference(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str | None = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    audiences: tuple[str, ...] | None = ()
    expiration_seconds: int | None = SECONDS_DEFAULT
    bound_object_ref: _Reference | None = None
    attestations: dict[str, list[str]] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str | None = ""
    namespace: str | None = ""
    uid: str | None = ""


class _TokenRequest(msgspec.Struct, frozen=True):
    metadata: _Metadata | None = None
    spec: _Spec | None = None


async def request_token(
    tokens: ServiceAccountTokens, lookup: ObjectGetter, clock: Clock, namespace: str, name: str, body: Object
) -> Object:
    """The TokenRequest with its token, for the service account of the path."""
    request = _read(body)
    metadata, spec = request.metadata or _Metadata(), request.spec or _Spec()
    _check_place(metadata, namespace, name)
    account = await lookup.get("serviceaccounts", "", namespace, name)
    if account is None:
        raise not_found("", "serviceaccounts", name)
    uid = account["metadata"].get("uid", "")
    if metadata.uid and metadata.uid != uid:
        raise conflict(
            GROUP,
            "TokenRequest",
            name,
            f"the UID in the token request ({metadata.uid}) does not match the UID of the service account ({uid})",
        )
    seconds = SECONDS_DEFAULT if spec.expiration_seconds is None else spec.expiration_seconds
    audiences = tuple(spec.audiences or ()) or tokens.audiences
    errors = _spec_errors(spec, seconds)
    if errors:
        raise invalid(GROUP, "TokenRequest", "", errors)
    binding = await _binding(lookup, namespace, name, spec.bound_object_ref)
    extended = binding.pod is not None and seconds == PROJECTED_SECONDS and set(audiences) <= set(tokens.audiences)
    now = int(clock.seconds())
    token = tokens.issue(
        account, audiences, EXTENDED_SECONDS if extended else seconds, binding, seconds if extended else 0
    )
    answered: Object = {"audiences": list(audiences), "expirationSeconds": seconds}
    answered["boundObjectRef"] = (body.get("spec") or {}).get("boundObjectRef")
    return {
        "kind": "TokenRequest",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": rfc3339(now)},
        "spec": answered,
        "status": {"token": token, "expirationTimestamp": rfc3339(now + seconds)},
    }


def _read(body: Object) -> _TokenRequest:
    try:
        return msgspec.convert(body, _TokenRequest)
    except msgspec.ValidationError as error:
        raise bad_request(f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}') from error


def _check_place(metadata: _Metadata, namespace: str, name: str) -> None:
    """What the body says about the service account must match the path."""
    for field, given, expected in (("name", metadata.name, name), ("namespace", metadata.namespace, namespace)):
        if given and given != expected:
            detail = f"must match the service account {field} if specified"
            error = fields.invalid(f"metadata.{field}", given, detail).error
            raise invalid(GROUP, "TokenRequest", name, [error])


def _spec_errors(spec: _Spec, seconds: int) -> list[FieldError]:
    found: list[FieldError] = []
    path = "spec.expirationSeconds"
    if seconds < SECONDS_MIN:
        found.append(fields.invalid(path, seconds, "may not specify a duration less than 10 minutes").error)
    if seconds > SECONDS_MAX:
        found.append(fields.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds").error)
    if spec.attestations:
        detail = "attestations may only be specified with a webhook bound object reference"
        return [fields.invalid("spec.attestations", spec.attestations, detail).error]
    return found


async def _binding(lookup: ObjectGetter, namespace: str, account: str, reference: _Reference | None) -> Binding:
    """What the token is bound to, all of which must exist with the expected uid."""
    if reference is None:
        return UNBOUND
    group, _, version = reference.api_version.rpartition("/")
    if group or reference.kind not in ("Pod", "Node", "Secret"):
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={reference.kind}")
    plural = {"Pod": "pods", "Node": "nodes", "Secret": "secrets"}[reference.kind]
    object_ = await lookup.get(plural, "", "" if reference.kind == "Node" else namespace, reference.name)
    if object_ is None:
        raise not_found("", plural, reference.name)
    binding = Binding(**{reference.kind.lower(): object_})
    if reference.kind == "Pod":
        binding = await _pod_binding(lookup, account, object_)
    uid = object_["metadata"].get("uid", "")
    if reference.uid and reference.uid != uid:
        raise conflict(
            "",
            reference.kind,
            reference.name,
            f"the UID in the bound object reference ({reference.uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated",
        )
    return binding


async def _pod_binding(lookup: ObjectGetter, account: str, pod: Object) -> Binding:
    spec = pod.get("spec") or {}
    if spec.get("serviceAccountName") != account:
        raise bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        )
    node = spec.get("nodeName")
    if not node:
        return Binding(pod=pod)
    # The name alone is still useful if the Node object is gone.
    return Binding(pod=pod, node=await lookup.get("nodes", "", "", node) or {"metadata": {"name": node}})
