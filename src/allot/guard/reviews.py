"""AdmissionReviews of claim status: decodes requests and encodes answers. Decides nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.allocation.devices import ClaimID

_KIND = "AdmissionReview"
_API_VERSION = "admission.k8s.io/v1"


class BadReview(Exception):
    """Not an AdmissionReview of a claim's status, with the reason."""


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """A device of an allocation, with the fields that the ledger needs."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(name="shareID", default=None)
    admin_access: bool | None = None
    consumed_capacity: dict[str, str | int | float] | None = None


class _Devices(msgspec.Struct, frozen=True):
    results: list[Result] | None = None


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Devices | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Status(msgspec.Struct, frozen=True):
    allocation: dict[str, Any] | None = None


class _Claim(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status | None = None


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    resource: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource: _Resource = _Resource()
    sub_resource: str = ""
    operation: str = ""
    name: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A write of a claim's status. base: the version of the claim that it replaces."""

    uid: str
    claim: ClaimID = ClaimID("", "")
    base: int = 0
    allocation: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    is_dry_run: bool = False
    # Whether the guard does not judge this write.
    is_foreign: bool = False


_review = msgspec.json.Decoder(_Review)
_claim = msgspec.json.Decoder(_Claim | None)


def parse_review(body: bytes) -> Asked:
    """The decoded request; BadReview if it is invalid."""
    try:
        review = _review.decode(body)
        if review.kind != _KIND or review.api_version != _API_VERSION:
            raise BadReview(f"expected {_API_VERSION} {_KIND}, got {review.api_version} {review.kind}")
        request = review.request
        what = (request.resource.group, request.resource.resource, request.sub_resource, request.operation)
        if what != ("resource.k8s.io", "resourceclaims", "status", "UPDATE"):
            return Asked(uid=request.uid, is_foreign=True)
        new, old = _claim.decode(request.object), _claim.decode(request.old_object)
        if new is None or old is None:
            raise BadReview("expected object and oldObject in an update of a claim's status")
        allocation = new.status.allocation if new.status is not None else None
        msgspec.convert(allocation, _Allocation | None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadReview(str(error)) from None
    if not old.metadata.resource_version.isdecimal():
        raise BadReview(f"oldObject.metadata.resourceVersion: expected a number, got {old.metadata.resource_version!r}")
    return Asked(
        uid=request.uid,
        claim=ClaimID(request.namespace, request.name),
        base=int(old.metadata.resource_version),
        allocation=allocation,
        before=old.status.allocation if old.status is not None else None,
        is_dry_run=bool(request.dry_run),
    )


def allowed(uid: str, *warnings: str) -> bytes:
    """The answer that allows a write."""
    return _answer({"uid": uid, "allowed": True, **({"warnings": list(warnings)} if warnings else {})})


def refused(uid: str, text: str) -> bytes:
    """The answer that refuses it. Conflict, as from allot's API server: a retry with a newer view may succeed."""
    status = {"status": "Failure", "message": text, "reason": "Conflict", "code": 409}
    return _answer({"uid": uid, "allowed": False, "status": status})


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": _API_VERSION, "kind": _KIND, "response": response})
