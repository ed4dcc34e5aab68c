"""Errors as in Kubernetes: a Status object with code, reason, details and causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.core.validation.fields import FieldError

# Upstream reports all errors; an object that is wrong everywhere must not get an answer many times its size.
_ERRORS_LENGTH_MAX = 256 * 1024


class StatusError(Exception):
    """An answer other than success. `status()` is the body to send."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}
        # Lets a client continue with a list that can no longer be consistent.
        self.continue_token = continue_token

    def status(self) -> dict[str, Any]:
        """The Status object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if not self.reason:
            del body["reason"]
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        told: dict[str, Any] = _as_text(body)
        return told


def _as_text(value: Any) -> Any:
    """A value that JSON can carry: invalid bytes of a request become U+FFFD, as in Go."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {name: _as_text(item) for name, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value


def _qualified(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def _details(group: str, resource: str, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if resource:
        details["kind"] = resource
    return details | {key: value for key, value in more.items() if value}


def not_found(group: str, resource: str, name: str) -> StatusError:
    """404 for an object."""
    message = f'{_qualified(group, resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=_details(group, resource, name))


def already_exists(group: str, resource: str, name: str) -> StatusError:
    """409 on create."""
    message = f'{_qualified(group, resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(group, resource, name))


def conflict(group: str, resource: str, name: str, why: str) -> StatusError:
    """409 on a write based on an old state."""
    message = f'Operation cannot be fulfilled on {_qualified(group, resource)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(group, resource, name))


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422 with all field errors, each once; if there are too many, the first ones and the number of the rest."""
    errors = tuple(dict.fromkeys(errors))
    shown = _first(errors)
    texts = [f"{error.field}: {error.message}" for error in shown]
    causes = [{"reason": e.type, "message": e.message, "field": e.field} for e in shown]
    if len(shown) < len(errors):
        texts.append(f"and {len(errors) - len(shown)} more errors")
    told = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{_qualified(group, kind)} "{name}" is invalid: {told}'
    return StatusError(422, "Invalid", message, details=_details(group, kind, name, causes=causes))


def _first(errors: Sequence[FieldError]) -> Sequence[FieldError]:
    """As many errors as an answer has room for, at least one."""
    length = 0
    for position, error in enumerate(errors):
        length += len(error.field) + len(error.message)
        if position and length > _ERRORS_LENGTH_MAX:
            return errors[:position]
    return errors


def forbidden(group: str, resource: str, name: str, why: str) -> StatusError:
    """403."""
    subject = f'{_qualified(group, resource)} "{name}"' if name else _qualified(group, resource)
    message = f"{subject} is forbidden: {why}" if resource else f"forbidden: {why}"
    return StatusError(403, "Forbidden", message, details=_details(group, resource, name))


def unauthorized() -> StatusError:
    """401."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    """410: a resourceVersion or continue token that is too old."""
    return StatusError(410, "Expired", message)


def unsupported_media_type(message: str) -> StatusError:
    """415."""
    return StatusError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> StatusError:
    """405."""
    text = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", text, details={})


def internal(message: str) -> StatusError:
    """500: our fault."""
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details=details)


def timeout(message: str, *, retry_after_s: int = 0, causes: Sequence[dict[str, str]] = ()) -> StatusError:
    """504: not now; clients may try again."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = list(causes)
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s else None
    return StatusError(504, "Timeout", f"Timeout: {message}", details=details, headers=headers)


def too_large_resource_version(asked: int, current: int) -> StatusError:
    """504: the client has seen a newer revision than this server."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    text = f"Too large resource version: {asked}, current: {current}"
    return timeout(text, retry_after_s=1, causes=[cause])


def too_large(limit: int) -> StatusError:
    """413."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_many_requests(why: str, retry_after_s: int = 1) -> StatusError:
    """429: more than there is room for now."""
    return StatusError(
        429,
        "TooManyRequests",
        f"Too many requests, please try again later: {why}",
        details={"retryAfterSeconds": retry_after_s},
        headers={"Retry-After": str(retry_after_s)},
    )


def unavailable(message: str) -> StatusError:
    """503: the store cannot be reached or written."""
    return StatusError(
        503, "ServiceUnavailable", message, details={"retryAfterSeconds": 1}, headers={"Retry-After": "1"}
    )


def path_not_found() -> StatusError:
    """404 for a path that leads nowhere."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})
