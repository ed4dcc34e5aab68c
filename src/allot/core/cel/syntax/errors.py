"""Compile-time issues of CEL expressions, with their place in the source, and the display text.

The display text is that of cel-go (message, the line of source, a caret under the column), because Kubernetes puts it
verbatim into API errors. Knows nothing of grammar or types.
"""

from __future__ import annotations

import msgspec

# Upstream shows at most this many issues, then says how many were omitted.
ISSUES_SHOWN_MAX = 100
# A longer line is not repeated under the message; counted in UTF-8 bytes.
SNIPPET_BYTES_MAX = 16_384


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """One issue. Line and column count from 1; without a place they are -1 and 0, as upstream prints them."""

    message: str
    offset: int = -1
    line: int = -1
    column: int = 0


class CelCompileError(ValueError):
    """An expression that does not compile. `str(error)` is what Kubernetes shows after "compilation failed: "."""

    def __init__(self, source: str, issues: tuple[Issue, ...], left_out: int = 0) -> None:
        self.source = source
        self.issues = issues
        self.left_out = left_out
        super().__init__(_display(source, issues, left_out))


class Issues:
    """Collects issues while an expression is compiled; keeps only as many as are shown."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._issues: list[Issue] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def report(self, offset: int, message: str) -> None:
        """Record an issue at an offset in code points; -1 means no location."""
        self._count += 1
        if self._count > ISSUES_SHOWN_MAX:
            return
        if offset < 0:
            self._issues.append(Issue(message=message))
            return
        if not self._source:
            # An empty expression has no columns to count and no line to show, as upstream.
            self._issues.append(Issue(message=message, offset=0, line=1, column=0))
            return
        line_start = self._source.rfind("\n", 0, offset) + 1
        line = self._source.count("\n", 0, line_start) + 1
        self._issues.append(Issue(message=message, offset=offset, line=line, column=offset - line_start + 1))

    def raise_any(self) -> None:
        """Raise what was collected, in source order, if there is anything."""
        if self._count:
            ordered = tuple(sorted(self._issues, key=lambda issue: (issue.line, issue.column)))
            raise CelCompileError(self._source, ordered, self._count - len(ordered))


def _display(source: str, issues: tuple[Issue, ...], left_out: int) -> str:
    lines = source.split("\n")
    shown = [_display_issue(issue, lines) for issue in issues]
    if left_out:
        shown.append(f"{left_out} more errors were truncated")
    return "\n".join(shown)


def _display_issue(issue: Issue, lines: list[str]) -> str:
    head = f"ERROR: <input>:{issue.line}:{issue.column}: {issue.message}"
    if not 1 <= issue.line <= len(lines) or not issue.column:
        return head
    line = lines[issue.line - 1]
    if len(line.encode(errors="replace")) > SNIPPET_BYTES_MAX:
        return head
    line = line.replace("\t", " ")
    before, at = line[: issue.column - 1], line[issue.column - 1 : issue.column]
    # Full-width dots and caret keep the marker aligned below characters outside ASCII.
    dots = "".join("." if char.isascii() else "．" for char in before)
    caret = "^" if at.isascii() else "＾"
    return f"{head}\n | {line}\n | {dots}{caret}"
