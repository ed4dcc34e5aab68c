"""From texts to findings: runs every topic on everything, then drops what the author ignores."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from allot.core.advice.lint import (
    comparisons,
    compute_classes,
    evaluation,
    names,
    pods,
    queues,
    requests,
    rollouts,
    satisfiable,
    selectors,
    server,
)
from allot.core.advice.lint.context import Context, Server
from allot.core.advice.lint.finding import Finding, Severity
from allot.core.advice.lint.knowledge import Knowledge
from allot.core.advice.lint.old_forms import OldForms
from allot.core.advice.lint.rules import BY_NAME
from allot.core.advice.lint.source import Source, subjects
from allot.core.advice.snapshot import NotInSnapshots, read_object
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.meta import APIStruct

_IGNORE = re.compile(r"#\s*allot-lint:\s*ignore=([a-z, -]+)")
_IDENTITY = ("apiVersion", "kind")
_COMMENT_LINE = re.compile(r"\s*#")

# What the input itself says about its cluster.
_TELLING = frozenset(("DeviceClass", "ResourceSlice", "DeviceTaintRule", "Node"))
_TOPICS: tuple[Callable[[Context], None], ...] = (
    selectors.check,
    comparisons.check,
    evaluation.check,
    names.check,
    requests.check,
    satisfiable.check,
    pods.check,
    queues.check,
    compute_classes.check,
    rollouts.check,
)


def lint(sources: Sequence[Source], knowledge: Knowledge, api_server: Server) -> tuple[Finding, ...]:
    """All findings, in the order of the texts."""
    found = [subject for source in sources for subject in subjects(source)]
    context = Context(found, knowledge, api_server)
    server.check(context, OldForms(sources))
    context.knowledge = knowledge.with_examples(_told(context))
    for topic in _TOPICS:
        topic(context)
    findings = [*_flaws(sources), *_no_objects(sources), *context.findings]
    ignored = {source.name: _ignored(source.text) for source in sources}
    order = {source.name: index for index, source in enumerate(sources)}
    kept = [finding for finding in findings if not _is_ignored(finding, ignored.get(finding.source, {}))]
    return tuple(sorted(dict.fromkeys(kept), key=lambda finding: (order[finding.source], finding.order)))


def _told(context: Context) -> Iterator[APIStruct]:
    """Objects of the input that describe the cluster."""
    for subject in context.subjects:
        if subject.kind in _TELLING and id(subject) not in context.refused:
            try:
                yield read_object(subject.value)
            except (DecodeError, ConversionError, NotInSnapshots):
                continue


def _no_objects(sources: Iterable[Source]) -> Iterator[Finding]:
    """Documents that are not Kubernetes objects."""
    for source in sources:
        for document in source.documents:
            missing, severity = _missing(document.value)
            if missing:
                yield Finding(
                    source=source.name,
                    line=document.line,
                    column=1,
                    severity=severity,
                    rule="not-an-object",
                    message=missing,
                )


def _missing(value: object) -> tuple[str, Severity]:
    """Why a document is not an object. Chart values and program settings are YAML too, so this is not an error by itself."""
    error = BY_NAME["not-an-object"].severity
    if not isinstance(value, dict):
        text = "the document is not a mapping: expected a Kubernetes object with apiVersion and kind"
        return ("" if value is None else text), error
    for field in _IDENTITY:
        if not isinstance(value.get(field), str | None):
            return f"{field} is {json.dumps(value[field], default=str)}: expected a string", error
    absent = [field for field in _IDENTITY if not value.get(field)]
    if len(absent) == len(_IDENTITY):
        return "ignored: not a Kubernetes object, because it has neither apiVersion nor kind", Severity.NOTE
    return (f"{absent[0]} is missing: expected a Kubernetes object" if absent else ""), error


def _flaws(sources: Iterable[Source]) -> Iterable[Finding]:
    for source in sources:
        for flaw in source.flaws:
            yield Finding(
                source=source.name,
                line=flaw.line,
                column=flaw.column,
                severity=BY_NAME[flaw.rule].severity,
                rule=flaw.rule,
                message=flaw.message,
                fix=flaw.fix,
            )


# --- what is ignored ---


def _ignored(text: str) -> dict[int, frozenset[str]]:
    """Ignored rules by line: those named in a comment on the line, or in the comment lines right before it."""
    if "allot-lint:" not in text:
        return {}
    found: dict[int, frozenset[str]] = {}
    waiting: frozenset[str] = frozenset()
    for number, line in enumerate(text.split("\n"), 1):
        match = _IGNORE.search(line)
        named = frozenset(match[1].replace(" ", "").split(",")) if match else frozenset()
        if _COMMENT_LINE.match(line):
            waiting |= named
            continue
        if named | waiting:
            found[number] = named | waiting
        waiting = frozenset()
    return found


def _is_ignored(finding: Finding, ignored: dict[int, frozenset[str]]) -> bool:
    rules = ignored.get(finding.line, frozenset()) | ignored.get(finding.field_line, frozenset())
    return finding.rule in rules or "all" in rules
