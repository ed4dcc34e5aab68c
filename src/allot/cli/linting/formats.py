"""Output formats for findings: text, JSON, GitHub annotations, SARIF 2.1.0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from allot import __version__
from allot.core.advice.lint.finding import Finding, Severity
from allot.core.advice.lint.rules import RULES

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def text_lines(finding: Finding) -> list[tuple[str, str | None]]:
    """Colored text lines."""
    about = f"{finding.object}: " if finding.object else ""
    place = f"{finding.source}:{finding.line}:{finding.column}"
    message = " ".join(finding.message.split("\n"))
    lines: list[tuple[str, str | None]] = [
        (f"{place}: {finding.severity}: {about}{message} [{finding.rule}]", _COLOURS[finding.severity])
    ]
    if finding.fix is not None:
        first, *others = finding.fix.text.split("\n")
        lines += [(f"    fix: {first}", None), *((f"         {line}", None) for line in others)]
    return lines


def total(findings: Sequence[Finding], files: int, fixed: int) -> str:
    """One summary line."""
    counts = Counter(finding.severity for finding in findings)
    parts = [_counted(counts[severity], severity.value) for severity in Severity if counts[severity]]
    said = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else "nothing found"
    fixable = sum(finding.fix is not None and bool(finding.fix.edits) for finding in findings)
    extra = f"; --fix can fix {fixable}" if fixable else ""
    done = f"{_counted(fixed, 'change')} made; " if fixed else ""
    return f"{done}{said} in {_counted(files, 'file')}{extra}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def as_json(findings: Sequence[Finding], files: int, fixed: int) -> dict[str, Any]:
    """JSON."""
    counts = Counter(finding.severity for finding in findings)
    return {
        "findings": [_finding_json(finding) for finding in findings],
        "summary": {
            "files": files,
            "errors": counts[Severity.ERROR],
            "warnings": counts[Severity.WARNING],
            "notes": counts[Severity.NOTE],
            "fixed": fixed,
        },
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    fix = finding.fix
    return {
        "file": finding.source,
        "line": finding.line,
        "column": finding.column,
        "severity": finding.severity.value,
        "rule": finding.rule,
        "object": finding.object,
        "field": finding.field,
        "message": finding.message,
        "fix": None
        if fix is None
        else {
            "text": fix.text,
            "edits": [{"start": edit.start, "end": edit.end, "text": edit.text} for edit in fix.edits],
        },
    }


def github_line(finding: Finding) -> str:
    """A workflow command, which GitHub shows as an annotation of the line."""
    command = "notice" if finding.severity is Severity.NOTE else finding.severity.value
    place = f"file={_property(finding.source)},line={finding.line},col={finding.column}"
    fix = f"\nfix: {finding.fix.text}" if finding.fix is not None else ""
    return f"::{command} {place},title={_property(finding.rule)}::{_data(finding.message + fix)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """A SARIF log of one run."""
    positions = {rule.name: index for index, rule in enumerate(RULES)}
    driver = {
        "name": "allot lint",
        "version": __version__,
        "informationUri": "https://pypi.org/project/allot/",
        "rules": [
            {
                "id": rule.name,
                "shortDescription": {"text": rule.what},
                "defaultConfiguration": {"level": rule.severity.value},
            }
            for rule in RULES
        ],
    }
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, positions[finding.rule]) for finding in findings],
            }
        ],
    }


def _sarif_result(finding: Finding, rule_index: int) -> dict[str, Any]:
    uri = {"uri": finding.source.replace("\\", "/").replace(" ", "%20")}
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": uri,
            "region": {"startLine": finding.line, "startColumn": finding.column},
        }
    }
    if finding.object:
        location["logicalLocations"] = [
            {"name": finding.object, "fullyQualifiedName": f"{finding.object}: {finding.field}"}
        ]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.severity.value,
        "message": {"text": finding.message},
        "locations": [location],
    }
    fix = finding.fix
    if fix is not None and fix.edits:
        replacements = [
            {
                "deletedRegion": {"charOffset": edit.start, "charLength": edit.end - edit.start},
                "insertedContent": {"text": edit.text},
            }
            for edit in fix.edits
        ]
        change = {"artifactLocation": uri, "replacements": replacements}
        result["fixes"] = [{"description": {"text": fix.text}, "artifactChanges": [change]}]
    elif fix is not None:
        result["message"] = {"text": f"{finding.message}\nfix: {fix.text}"}
    return result
