"""What a conversion changed and could not change, with fields as paths in the original document."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any

import msgspec

from allot.core.advice.places import Path

TEXT_CHARACTERS_MAX = 300
_PLAIN_TEXT = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_][A-Za-z0-9_./+-]*")


class Confidence(StrEnum):
    """How certain it is that the new form means the same as the old one."""

    # The old form is documented and the new one means the same.
    CERTAIN = "certain"
    # What the author must have meant.
    LIKELY = "likely"
    # One of several readings.
    GUESS = "guess"

    @property
    def doubt(self) -> int:
        """The higher, the less certain."""
        return tuple(Confidence).index(self)


class Severity(StrEnum):
    """Whether the result is usable despite a problem."""

    ERROR = "error"
    WARNING = "warning"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change, with readable texts of the old and new form; an empty text means absent."""

    rule: str
    document: int
    path: Path
    old: str
    new: str
    why: str
    confidence: Confidence


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something without a new form."""

    rule: str
    document: int
    path: Path
    severity: Severity
    message: str
    hint: str = ""


class Notes:
    """All notes of a conversion."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.problems: list[Problem] = []


class Notebook:
    """Notes about one object, which may be an item of a document's list."""

    def __init__(self, notes: Notes, document: int, prefix: Path) -> None:
        self._notes = notes
        self.document = document
        self.prefix = prefix

    def change(
        self,
        path: Path,
        old: Any,
        new: Any,
        why: str,
        *,
        rule: str,
        confidence: Confidence = Confidence.CERTAIN,
    ) -> None:
        """Notes a change; values are shown as text."""
        self._notes.changes.append(
            Change(
                rule=rule,
                document=self.document,
                path=(*self.prefix, *path),
                old=shown(old),
                new=shown(new),
                why=why,
                confidence=confidence,
            )
        )

    def error(self, path: Path, message: str, *, rule: str, hint: str = "") -> None:
        """Notes that there is no usable result."""
        self._problem(path, Severity.ERROR, message, rule, hint)

    def warning(self, path: Path, message: str, *, rule: str, hint: str = "") -> None:
        """Notes a warning for the author."""
        self._problem(path, Severity.WARNING, message, rule, hint)

    def _problem(self, path: Path, severity: Severity, message: str, rule: str, hint: str) -> None:
        problem = Problem(
            rule=rule,
            document=self.document,
            path=(*self.prefix, *path),
            severity=severity,
            message=message,
            hint=hint,
        )
        self._notes.problems.append(problem)


def shown(value: Any) -> str:
    """A value as one line of YAML: strings unquoted, None as an empty string."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = " ".join(value.split())
    elif isinstance(value, dict) and len(value) == 1:
        text = _flow(value)[1:-1]
    else:
        text = _flow(value)
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 1]}…"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_flow(item) for item in value)}]"
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
