"""Regular expressions: RE2 syntax, linear time, with Go's messages for patterns that do not parse."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

from allot.core.cel.data.values import CelError

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False

# RE2's wording in C++ -> its wording in Go.
_GO_WORDING: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}


class PatternError(ValueError):
    """An invalid regular expression; the message is Go's."""


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    """The compiled pattern; PatternError if invalid."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        raise PatternError(_go_message(error)) from None
    except UnicodeEncodeError:
        raise PatternError(f"error parsing regexp: invalid UTF-8: `{pattern!a}`") from None


def _go_message(error: Exception) -> str:
    raw = error.args[0] if error.args else b""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    if text.startswith("trailing \\"):
        return "error parsing regexp: trailing backslash at end of expression: ``"
    kind, separator, fragment = text.partition(": ")
    kind = _GO_WORDING.get(kind, kind)
    return f"error parsing regexp: {kind}{separator}`{fragment}`" if separator else f"error parsing regexp: {kind}"


def compiled(pattern: str) -> Any:
    """The compiled pattern, for use while evaluating: CelError when it does not parse."""
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise CelError(str(error)) from None


def matches(pattern: Any, text: str) -> bool:
    """Whether the pattern matches anywhere."""
    try:
        return pattern.search(text) is not None
    except UnicodeEncodeError:
        raise CelError("invalid UTF-8 in string") from None


def find(pattern: Any, text: str) -> str:
    """The first match, or the empty string."""
    found = pattern.search(text)
    return found.group(0) if found else ""


def find_all(pattern: Any, text: str, limit: int) -> list[str]:
    """All matches as Go finds them, at most `limit` unless that is negative."""
    found: list[str] = []
    previous_end = -1
    for match in pattern.finditer(text):
        if 0 <= limit <= len(found):
            break
        start, end = match.span()
        # Go drops an empty match that touches the one before.
        if start == end == previous_end:
            continue
        found.append(match.group(0))
        previous_end = end
    return found
