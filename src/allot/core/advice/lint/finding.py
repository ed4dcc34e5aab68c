"""What lint finds: where, how bad, by which rule, what is wrong and what to do about it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How bad it is: it fails or does not do what it says; it probably does not; something to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Edit(msgspec.Struct, frozen=True):
    """A change of a text: what is between two offsets becomes something else."""

    start: int
    end: int
    text: str


class Fix(msgspec.Struct, frozen=True):
    """What to do. With edits it is safe to let a program do it."""

    text: str
    edits: tuple[Edit, ...] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. Lines and columns count from 1."""

    source: str
    line: int
    column: int
    severity: Severity
    rule: str
    message: str
    # Kind, namespace and name; empty when the text is no object.
    object: str = ""
    field: str = ""
    fix: Fix | None = None
    # The line of the field, where the finding is on a later line of its value; 0 if it is the same.
    field_line: int = 0

    @property
    def order(self) -> tuple[str, int, int, int, str, str]:
        """As they are shown."""
        return self.source, self.line, self.column, self.severity.rank, self.rule, self.message


def apply_edits(text: str, edits: list[Edit]) -> tuple[str, int]:
    """The text with the edits, and how many were made: of those that overlap only the first one."""
    parts: list[str] = []
    end = made = 0
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end, edit.text)):
        if edit.start < end or (made and edit.start == edit.end == end):
            continue
        parts += [text[end : edit.start], edit.text]
        end = edit.end
        made += 1
    return "".join([*parts, text[end:]]), made
