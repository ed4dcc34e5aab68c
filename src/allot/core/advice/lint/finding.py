"""A finding: place, severity, rule, what is wrong and how to fix it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """error: fails, or does not do what it says; warning: probably so; note: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Edit(msgspec.Struct, frozen=True, order=True):
    """A change of a text: a new text between two offsets."""

    start: int
    end: int
    text: str


class Fix(msgspec.Struct, frozen=True):
    """How to fix it. A fix with edits is safe to apply automatically."""

    text: str
    edits: tuple[Edit, ...] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem. Lines and columns count from 1."""

    source: str
    line: int
    column: int
    severity: Severity
    rule: str
    message: str
    # Kind, namespace and name; empty if the text is not an object.
    object: str = ""
    field: str = ""
    fix: Fix | None = None
    # The line of the field if the finding is on a later line of its value; 0 if they are the same.
    field_line: int = 0

    @property
    def order(self) -> tuple[str, int, int, int, str, str]:
        """The display order."""
        return self.source, self.line, self.column, self.severity.rank, self.rule, self.message


def apply_fixes(text: str, fixes: Iterable[Fix]) -> tuple[str, int]:
    """The text with the fixes, and how many were applied: only the first of overlapping fixes, and each as a whole."""
    taken: list[tuple[int, int]] = []
    edits: list[Edit] = []
    made = 0
    for wanted in sorted(dict.fromkeys(fix.edits for fix in fixes if fix.edits)):
        spans = [(edit.start, edit.end) for edit in wanted]
        if all(_is_free(taken, span) for span in spans):
            for span in spans:
                insort(taken, span)
            edits += wanted
            made += 1
    return apply_edits(text, edits)[0], made


def _is_free(taken: list[tuple[int, int]], span: tuple[int, int]) -> bool:
    """Whether a change overlaps no other."""
    index = bisect_left(taken, span)
    before, after = taken[index - 1 : index], taken[index : index + 1]
    return all(end <= span[0] and (start, end) != span for start, end in before) and all(
        start >= span[1] and (start, end) != span for start, end in after
    )


def apply_edits(text: str, edits: list[Edit]) -> tuple[str, int]:
    """The text with the edits, and how many were applied: only the first of overlapping edits."""
    parts: list[str] = []
    end = made = 0
    for edit in sorted(set(edits), key=lambda edit: (edit.start, edit.end, edit.text)):
        if edit.start < end or (made and edit.start == edit.end == end):
            continue
        parts += [text[end : edit.start], edit.text]
        end = edit.end
        made += 1
    return "".join([*parts, text[end:]]), made
