"""Why a patch cannot be applied, with Kubernetes' HTTP code for it."""

from __future__ import annotations


class PatchError(ValueError):
    """A patch that does not fit. `code` is 400, 413, 422 or 500, `reason` Kubernetes' word for it.

    Where Kubernetes hides the cause behind a general text, `message` is that text and `cause` says what is wrong.
    """

    def __init__(self, code: int, reason: str, message: str, cause: str = "") -> None:
        super().__init__(f"{message}: {cause}" if cause else message)
        self.code = code
        self.reason = reason
        self.message = message
        self.cause = cause or message


def malformed(message: str) -> PatchError:
    """The patch itself is no patch: 400."""
    return PatchError(400, "BadRequest", message)


def too_large(message: str) -> PatchError:
    """The patch asks for too much: 413."""
    return PatchError(413, "RequestEntityTooLarge", f"Request entity is too large: {message}")


def unprocessable(cause: str) -> PatchError:
    """The patch does not fit the object: 422, where Kubernetes does not pass on the cause."""
    return PatchError(422, "Invalid", "the server rejected our request due to an error in our request", cause)


def internal(message: str) -> PatchError:
    """Kubernetes has no better answer than 500 for this, and clients know the text."""
    return PatchError(500, "", message)
