"""Errors of API servers, and of reaching them.

ApiError                    any unsuccessful answer; carries code, reason, details and the request
├── BadRequest              400
├── Unauthorized            401
├── Forbidden               403
├── NotFound                404
├── MethodNotAllowed        405
├── Conflict                409, the object has changed (or server-side apply found another owner)
├── AlreadyExists           409 on create
├── Gone                    410, a resourceVersion or continue token that is no longer kept
├── UnsupportedMediaType    415
├── Invalid                 422, with the field errors in `causes`
├── TooManyRequests         429
├── ServerFault             500 and above
│   └── ResourceVersionTooLarge   504, the server has not reached that version yet
├── UnexpectedAnswer        the answer is not from a Kubernetes API server
└── Unreachable             no answer at all
    └── DeadlineExceeded    none in time
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Kubernetes' own texts are shorter; a proxy's error page is not.
_TEXT_LENGTH_MAX = 1000


class ApiError(Exception):
    """An unsuccessful answer. code is 0 if there was none."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        request: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.request = request
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.request}: {self.message}" if self.request else self.message

    @property
    def causes(self) -> tuple[Mapping[str, Any], ...]:
        """The individual errors: field, reason and message of each."""
        causes = self.details.get("causes")
        return tuple(cause for cause in causes if isinstance(cause, dict)) if isinstance(causes, list) else ()


class BadRequest(ApiError):
    """400: the server does not understand the request."""


class Unauthorized(ApiError):
    """401: the server does not accept the client's credentials."""


class Forbidden(ApiError):
    """403: the client may not do that."""


class NotFound(ApiError):
    """404: no such object or resource."""


class MethodNotAllowed(ApiError):
    """405: the resource does not support that verb."""


class Conflict(ApiError):
    """409: the object has changed since it was read."""


class AlreadyExists(ApiError):
    """409: an object with that name exists."""


class Gone(ApiError):
    """410: the requested version is no longer available; list again."""


class UnsupportedMediaType(ApiError):
    """415: the server does not accept this media type."""


class Invalid(ApiError):
    """422: the object is refused; see `causes`."""


class TooManyRequests(ApiError):
    """429: retry later (`retry_after_s`)."""


class ServerFault(ApiError):
    """500 and above: a fault of the server."""


class ResourceVersionTooLarge(ServerFault):
    """504: the server has not seen that resourceVersion yet."""


class UnexpectedAnswer(ApiError):
    """The answer is not from a Kubernetes API server."""


class Unreachable(ApiError):
    """No answer: the network, TLS or the server failed. A write may or may not have happened."""


class DeadlineExceeded(Unreachable):
    """No answer in time."""


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "BadRequest": BadRequest,
    "Conflict": Conflict,
    "Expired": Gone,
    "Forbidden": Forbidden,
    "Gone": Gone,
    "Invalid": Invalid,
    "MethodNotAllowed": MethodNotAllowed,
    "NotFound": NotFound,
    "TooManyRequests": TooManyRequests,
    "Unauthorized": Unauthorized,
    "UnsupportedMediaType": UnsupportedMediaType,
}

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
}


def error_from_answer(code: int, body: object, request: str, retry_after_s: float | None = None) -> ApiError:
    """The error for an answer: from its Status object, or from the code if something else answered."""
    if not isinstance(body, dict) or not is_status(body):
        made = _class_of(code, "", "", ())
        return made(_text_of(code, body), code=code, request=request, retry_after_s=retry_after_s)
    reason, details, message = body.get("reason"), body.get("details"), body.get("message")
    reason = reason if isinstance(reason, str) else ""
    details = details if isinstance(details, dict) else {}
    own_code = body.get("code")
    code = own_code if isinstance(own_code, int) and own_code else code
    message = message if isinstance(message, str) and message else reason or f"status {code}"
    seconds, causes = details.get("retryAfterSeconds"), details.get("causes")
    if retry_after_s is None and isinstance(seconds, int):
        retry_after_s = float(seconds)
    made = _class_of(code, reason, message, causes if isinstance(causes, list) else ())
    return made(message, code=code, reason=reason, details=details, request=request, retry_after_s=retry_after_s)


def is_status(body: object) -> bool:
    """Whether a JSON value is a Status object."""
    return isinstance(body, dict) and body.get("kind") == "Status" and body.get("apiVersion") == "v1"


def _class_of(code: int, reason: str, message: str, causes: list[Any] | tuple[Any, ...]) -> type[ApiError]:
    too_large = any(isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes)
    # Servers before 1.19 gave no cause.
    if too_large or (code == 504 and message.startswith("Too large resource version")):
        return ResourceVersionTooLarge
    found = _BY_REASON.get(reason) or _BY_CODE.get(code)
    if found is not None:
        return found
    return ServerFault if code >= 500 else ApiError


def _text_of(code: int, body: object) -> str:
    """The text of an answer that is not a Status: a proxy's page, or empty."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else "" if body is None else str(body)
    text = " ".join(text.split())
    if len(text) > _TEXT_LENGTH_MAX:
        text = text[:_TEXT_LENGTH_MAX] + "..."
    return f"status {code}: {text}" if text else f"status {code}"
