"""Forms of older API versions, found by converting, so that each finding names the new form."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.convert.changes import Change, Problem
from allot.core.advice.convert.changes import Severity as ConversionSeverity
from allot.core.advice.convert.converting import convert
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.source import Source, Subject
from allot.core.advice.places import Path

# Covered by other rules.
# A change of a request as a whole, which moves each of its fields.
_WHOLE_REQUEST = "flat-request"
_TOLD_ELSEWHERE = frozenset(("apiVersion", "kind", "expression"))


class OldForms:
    """What converting the input changes, by object."""

    def __init__(self, sources: Sequence[Source]) -> None:
        documents = [document for source in sources for document in source.documents]
        self._numbers = {id(document): number for number, document in enumerate(documents)}
        converted = convert([document.value for document in documents])
        self._changes: dict[int, list[Change]] = {}
        self._problems: dict[int, list[Problem]] = {}
        for change in converted.changes:
            self._changes.setdefault(change.document, []).append(change)
        for problem in converted.problems:
            self._problems.setdefault(problem.document, []).append(problem)

    def changes(self, subject: Subject) -> list[tuple[Path, Change]]:
        """Changes of one object, with paths in it."""
        found = self._changes.get(self._numbers.get(id(subject.document), -1), ())
        return [(path, change) for change in found for path in _within(subject, change.path)]

    def problems(self, subject: Subject) -> list[tuple[Path, Problem]]:
        """What cannot be converted in one object, with paths in it."""
        found = self._problems.get(self._numbers.get(id(subject.document), -1), ())
        return [(path, problem) for problem in found for path in _within(subject, problem.path)]

    def advice(self, subject: Subject, path: Path) -> str:
        """The new form of a field, and why; empty if unknown."""
        found = [
            change
            for at, change in self.changes(subject)
            if at[: len(path)] == path or (at == path[:-1] and change.rule == _WHOLE_REQUEST)
        ]
        reasons = dict.fromkeys(change.why for change in found)
        return "; ".join((*reasons, new_form(found[-1]))) if found else ""


def _within(subject: Subject, path: Path) -> list[Path]:
    length = len(subject.path)
    return [path[length:]] if path[:length] == subject.path else []


def report_old_forms(context: Context, forms: OldForms, subject: Subject) -> None:
    """Everything in an object of a version that is no longer served."""
    for path, change in forms.changes(subject):
        if path and path[-1] not in _TOLD_ELSEWHERE:
            context.report(subject, "old-form", path, f"{change.old} is the old form: {change.why}", new_form(change))
    for path, problem in forms.problems(subject):
        is_error = problem.severity is ConversionSeverity.ERROR
        context.report(
            subject,
            "old-form",
            path,
            problem.message,
            problem.hint or None,
            severity=Severity.ERROR if is_error else Severity.WARNING,
        )


def new_form(change: Change) -> str:
    """The fix."""
    sure = "" if change.confidence == "certain" else f" ({change.confidence})"
    return f"allot convert writes {change.new}{sure}" if change.new else f"allot convert removes it{sure}"
