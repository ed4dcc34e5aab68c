"""Converts files: reads and repairs them, converts them together, and writes them back as text.

Shared by `allot convert` and `allot apply`. All files of a command are one input: a claim's parameters may be in a different file
than the claim.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click
import msgspec

from allot.cli.converting.rewriting import extent, rewritten, written
from allot.cli.errors import Refused, Unreadable
from allot.cli.output import talk
from allot.core.advice.convert import Change, Confidence, Converted, ConvertedDocument, Options, Problem, convert
from allot.core.advice.convert.changes import shown
from allot.core.advice.lint.finding import apply_edits
from allot.core.advice.lint.source import Flaw, Source, Written, path_text
from allot.core.advice.places import Path, nearest_place
from allot.core.advice.typography import pieces
from allot.reading.manifests import read_sources
from allot.reading.sources import read_source

Function = TypeVar("Function", bound=Callable[..., Any])

_NOTHING = "(nothing)"


class NotedChange(msgspec.Struct, frozen=True, rename="camel"):
    """A change with where it is."""

    file: str
    line: int
    column: int
    field: str
    rule: str
    old: str
    new: str
    why: str
    confidence: Confidence


class NotedProblem(msgspec.Struct, frozen=True, rename="camel"):
    """A problem with where it is."""

    file: str
    line: int
    column: int
    field: str
    rule: str
    severity: str
    message: str
    hint: str


class ConvertedFile(msgspec.Struct, frozen=True):
    """A file before and after."""

    name: str
    before: str
    after: str
    documents: tuple[Any, ...]

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after


class Conversion(msgspec.Struct, frozen=True):
    """The whole input, converted."""

    files: tuple[ConvertedFile, ...]
    changes: tuple[NotedChange, ...]
    problems: tuple[NotedProblem, ...]

    @property
    def errors(self) -> tuple[NotedProblem, ...]:
        """What leaves no usable result."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


def convert_files(paths: Sequence[str], options: Options) -> Conversion:
    """Every file, with all changes; Unreadable for a text that cannot be mended."""
    mended = [_mended(data, name) for name, data in read_sources(paths)]
    sources = [source for source, _, _ in mended]
    repairs = [change for _, _, found in mended for change in found]
    written_documents = [(source, document) for source in sources for document in source.documents]
    if not any(isinstance(document.value, dict) and "kind" in document.value for _, document in written_documents):
        raise Unreadable(f"{', '.join(paths)}: no objects: expected at least one with apiVersion and kind")
    result = convert([document.value for _, document in written_documents], options)
    files = _files(mended, result)
    changes = [_change(change, written_documents) for change in result.changes]
    problems = [_problem(problem, written_documents) for problem in result.problems]
    order = {source.name: number for number, source in enumerate(sources)}
    return Conversion(
        tuple(files),
        tuple(sorted((*repairs, *changes), key=lambda change: (order[change.file], change.line))),
        tuple(sorted(problems, key=lambda problem: (order[problem.file], problem.line))),
    )


# --- reading ---


def _mended(data: bytes, name: str) -> tuple[Source, str, list[NotedChange]]:
    """A text without word processor characters, the original, and the repairs."""
    source = read_source(data, name)
    before = source.text
    edits = [edit for flaw in source.flaws if flaw.fix is not None for edit in flaw.fix.edits]
    broken = [flaw for flaw in source.flaws if flaw.fix is None or not flaw.fix.edits]
    if broken:
        flaw = broken[0]
        hint = flaw.fix.text if flaw.fix is not None else None
        raise Unreadable(f"{name}: line {flaw.line}, column {flaw.column}: {flaw.message}", hint)
    if not edits:
        return source, before, []
    text, _ = apply_edits(before, edits)
    repairs = [_repair(flaw, name, before) for flaw in source.flaws]
    return read_source(text.encode(), name), before, repairs


def _repair(flaw: Flaw, name: str, text: str) -> NotedChange:
    assert flaw.fix is not None, "a flaw that is corrected has a fix"
    edit = flaw.fix.edits[0]
    return NotedChange(
        name,
        flaw.line,
        flaw.column,
        "",
        flaw.rule,
        text[edit.start : edit.end],
        edit.text,
        flaw.message,
        Confidence.CERTAIN,
    )


# --- texts ---


class _Outcome(msgspec.Struct, frozen=True):
    """The result for a document: new ones that it needs, and itself unless it was dropped."""

    document: Written
    needs: tuple[Any, ...]
    result: ConvertedDocument | None

    @property
    def values(self) -> tuple[Any, ...]:
        """What replaces it."""
        return (*self.needs, self.result.value) if self.result is not None else self.needs

    @property
    def is_same(self) -> bool:
        """Whether nothing changed."""
        return self.values == (self.document.value,)


def _files(mended: Sequence[tuple[Source, str, list[NotedChange]]], result: Converted) -> list[ConvertedFile]:
    outcomes = _outcomes([document for source, _, _ in mended for document in source.documents], result)
    files: list[ConvertedFile] = []
    for source, before, _ in mended:
        own = [next(outcomes) for _ in source.documents]
        values = tuple(value for outcome in own for value in outcome.values if value is not None)
        files.append(ConvertedFile(source.name, before, _text(source, own), values))
    return files


def _outcomes(documents: Sequence[Written], result: Converted) -> Iterator[_Outcome]:
    """The result of each document in turn. New ones precede the one that needs them."""
    needs: list[Any] = []
    by_origin: dict[int, tuple[tuple[Any, ...], ConvertedDocument]] = {}
    for converted in result.documents:
        if converted.origin is None:
            needs.append(converted.value)
        else:
            by_origin[converted.origin] = (tuple(needs), converted)
            needs = []
    for number, document in enumerate(documents):
        yield _Outcome(document, *by_origin.get(number, ((), None)))


def _text(source: Source, outcomes: Sequence[_Outcome]) -> str:
    if all(outcome.is_same for outcome in outcomes):
        return source.text
    return _with_line_ends_of(source.text, _changed_text(source.text, outcomes))


def _with_line_ends_of(before: str, made: str) -> str:
    """A file from Windows stays one."""
    if "\r\n" not in before or before.count("\r\n") != before.count("\n"):
        return made
    return made.replace("\r\n", "\n").replace("\n", "\r\n")


def _changed_text(text: str, outcomes: Sequence[_Outcome]) -> str:
    if text.lstrip()[:1] in ("{", "["):
        values = [value for outcome in outcomes for value in outcome.values]
        return "".join(f"{json.dumps(value, ensure_ascii=False, indent=2)}\n" for value in values)
    parts: list[str] = []
    left = [outcome for outcome in reversed(outcomes) if outcome.document.value is not None]
    for piece in pieces(text):
        end = piece.start + len(piece.text)
        is_document = bool(left) and left[-1].document.places[()].value[0] < end
        parts.append(_piece(text, piece.start, end, left.pop()) if is_document else piece.text)
    made = "".join(parts)
    # A text that ends without a line's end may mean just that, if it is the old one.
    ends_as_before = not made or made.endswith("\n") or outcomes[-1].is_same
    return made if ends_as_before else f"{made}\n"


def _piece(text: str, start: int, end: int, outcome: _Outcome) -> str:
    """One document with its separator and the comments around it."""
    document = outcome.document
    own_start, own_end = extent(text, document.places)
    before = text[start:own_start]
    separator = ""
    if before.startswith("---"):
        separator, line_end, before = before.partition("\n")
        separator += line_end
    new = "".join(f"{written(needed)}\n---\n" for needed in outcome.needs)
    if outcome.result is None:
        return ""
    body = rewritten(text, document.places, document.value, outcome.result.value)
    return f"{separator}{new}{before}{body}{text[own_end:end]}"


# --- places ---


def _change(change: Change, documents: Sequence[tuple[Source, Written]]) -> NotedChange:
    file, line, column = _place(change.document, change.path, documents)
    field = path_text(change.path)
    return NotedChange(file, line, column, field, change.rule, change.old, change.new, change.why, change.confidence)


def _problem(problem: Problem, documents: Sequence[tuple[Source, Written]]) -> NotedProblem:
    file, line, column = _place(problem.document, problem.path, documents)
    field = path_text(problem.path)
    return NotedProblem(file, line, column, field, problem.rule, problem.severity.value, problem.message, problem.hint)


def _place(document: int, path: Path, documents: Sequence[tuple[Source, Written]]) -> tuple[str, int, int]:
    source, found = documents[document]
    if not found.places:
        return source.name, found.line, 1
    place = nearest_place(found.places, path)
    return source.name, place.line, place.column


# --- telling ---


def tell(conversion: Conversion) -> None:
    """Every change and problem on stderr: where, old, new, why and how sure."""
    for change in conversion.changes:
        field = f"{change.field}: " if change.field else ""
        # The field already names the key.
        old = change.old.removeprefix(f"{_last_key(change.field)}: ")
        old, new = shown(old) or _NOTHING, shown(change.new) or _NOTHING
        talk(f"{change.file}:{change.line}: {field}{old} -> {new}")
        talk(f"    {change.why} ({change.confidence})")
    for problem in conversion.problems:
        field = f"{problem.field}: " if problem.field else ""
        talk(f"{problem.severity}: {problem.file}:{problem.line}: {field}{problem.message}")
        if problem.hint:
            talk(f"    {problem.hint}")


def _last_key(field: str) -> str:
    return field[field.rindex("[") + 1 : -1] if field.endswith("]") else field.rpartition(".")[2]


def refuse_unless_usable(conversion: Conversion, accepted: Confidence, *, done: str) -> None:
    """Refused if something cannot be converted, or only with less confidence than accepted."""
    if conversion.errors:
        count = len(conversion.errors)
        fields = "one field has" if count == 1 else f"{count} fields have"
        raise Refused(f"{fields} no equivalent; nothing was {done}", "change what the lines above name, and try again")
    doubtful = [change for change in conversion.changes if change.confidence.doubt > accepted.doubt]
    if doubtful:
        worst = max((change.confidence for change in doubtful), key=lambda confidence: confidence.doubt)
        changes = "one change is" if len(doubtful) == 1 else f"{len(doubtful)} changes are"
        raise Refused(f"{changes} less certain than {accepted}; nothing was {done}", f"--accept {worst} accepts them")


def accept_option(default: Confidence) -> Callable[[Function], Function]:
    """`--accept` for a command."""
    return click.option(
        "--accept",
        type=click.Choice([confidence.value for confidence in Confidence]),
        default=default.value,
        show_default=True,
        callback=lambda _context, _parameter, value: Confidence(value),
        help="The minimum confidence of a change: certain (the same meaning), likely (what must have been meant), or guess (one of several "
        "readings).",
    )
