"""`allot lint`: check manifests before they reach a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import click
import msgspec

from allot.cli.converting.file_changes import show_diff, write_file
from allot.cli.errors import Unreadable
from allot.cli.gates import parse_gates
from allot.cli.linting.formats import as_json, as_sarif, github_line, text_lines, total
from allot.cli.linting.server_answers import ServerAnswers
from allot.cli.output import progress, talk, write, write_table
from allot.core.advice.lint.finding import Finding, Fix, Severity, apply_fixes
from allot.core.advice.lint.knowledge import Knowledge
from allot.core.advice.lint.linter import lint as find
from allot.core.advice.lint.rules import BY_NAME, RULES
from allot.core.advice.lint.source import Source, subjects
from allot.core.advice.nearest import did_you_mean
from allot.core.features import FeatureGates
from allot.reading.manifests import read_sources
from allot.reading.sources import read_source

EXIT_FOUND = 1
_STDIN = "stdin"
_SOMETHING_ELSE = ("not-an-object", Severity.NOTE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A fix may uncover something else; each round makes at least one change.
_ROUNDS_MAX = 10


class _Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def _show_rules(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        write_table(("RULE", "SEVERITY", "ABOUT"), [(rule.name, rule.severity.value, rule.what) for rule in RULES])
        context.exit()


def _known_rules(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    names = [name for value in values for name in value.split(",") if name]
    for name in names:
        if name not in BY_NAME:
            raise Unreadable(f"rule {name!r}: unknown rule", did_you_mean(name, BY_NAME))
    return frozenset(names)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--against",
    "--cluster",
    "against",
    multiple=True,
    metavar="live|FILE",
    help="Check names and devices against a cluster: live for the kubeconfig's, or a dump (a file or directory from kubectl get or "
    "allot snapshot). Repeatable.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME",
    help="Check devices against hardware, such as h100x8 or p4d.24xlarge. Repeatable.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="How to reach the cluster, for --against live.",
)
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig.")
@click.option("--fix", "fixes", is_flag=True, help="Make the safe changes in the files.")
@click.option("--diff", "diffs", is_flag=True, help="Show what --fix would change, without changing anything.")
@click.option(
    "--rule", "only", multiple=True, metavar="RULE", callback=_known_rules, help="Only this rule. Repeatable."
)
@click.option(
    "--ignore", "ignored", multiple=True, metavar="RULE", callback=_known_rules, help="Not this rule. Repeatable."
)
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.WARNING.value,
    show_default=True,
    help="The minimum severity for exit code 1.",
)
@click.option(
    "--feature-gates",
    "gates",
    metavar="GATES",
    default="all",
    show_default=True,
    callback=parse_gates,
    help="The server's feature gates: all, default (a stock 1.37 server), or changes such as DRAListTypeAttributes=true.",
)
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice([each.value for each in _Format]),
    default=_Format.TEXT.value,
    show_default=True,
    help="The output format.",
)
@click.option(
    "--list-rules",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_rules,
    help="List all rules and exit.",
)
def lint(
    files: tuple[str, ...],
    against: tuple[str, ...],
    profiles: tuple[str, ...],
    kubeconfig: Path | None,
    context: str,
    fixes: bool,
    diffs: bool,
    only: frozenset[str],
    ignored: frozenset[str],
    fail_on: str,
    gates: FeatureGates,
    output: str,
) -> int:
    """Check manifests: find everything that the API server would refuse, and manifests that it accepts but that cannot work.

    FILE is YAML or JSON with objects of any kind, a directory, or - for stdin. An unreadable document is a finding;
    the others are still checked. Checks that need devices use those of --against, --profile, and
    the ResourceSlices in the input.

    A comment `# allot-lint: ignore=RULE` on a line, or on the line before, suppresses a finding on that line.

    Exit code: 0 if there is no finding of the severity in --fail-on or worse, 1 if there is, 2 if a file is
    unreadable, 3 if the cluster cannot be reached.

    \b
    Examples:
      allot lint manifests/
      allot lint claim.yaml --profile h100x8
      allot lint . --against live --fail-on error
      allot lint claim.yaml --diff
      allot lint claim.yaml --fix
      helm template chart | allot lint - -o github
      allot lint . -o sarif > lint.sarif
    """
    # Imported late: drivers and clients take longer to load than help takes to print.
    from allot.cli.linting.knowledge import KnowledgeSource, read_knowledge

    source = KnowledgeSource(against=against, profiles=profiles, kubeconfig=kubeconfig, context=context)
    run = _Run(read_knowledge(source), ServerAnswers(gates), only, ignored)
    contents = dict(read_sources(files))
    if diffs and (fixes or _Format(output) is not _Format.TEXT):
        raise Unreadable("--diff shows changes as text", "omit --fix and -o")
    if fixes and _STDIN in contents:
        raise Unreadable("--fix cannot change stdin", "pass a file, or use --diff to see the changes")
    fixed = 0
    if fixes or diffs:
        changed, fixed = run.fixed(contents)
        for name, data in changed.items():
            if diffs:
                show_diff(name, contents[name].decode("utf-8-sig"), data.decode("utf-8-sig"))
            else:
                write_file(Path(name), data)
                contents[name] = data
    findings = run.findings(contents)
    if not run.objects and {(finding.rule, finding.severity) for finding in findings} == {_SOMETHING_ELSE}:
        raise Unreadable(f"{', '.join(files)}: no Kubernetes objects: expected at least one")
    _show(findings, len(contents), 0 if diffs else fixed, _Format(output), to_stderr=diffs)
    worst = Severity(fail_on).rank
    return EXIT_FOUND if any(finding.severity.rank <= worst for finding in findings) else 0


class _Run:
    """Lints the files as they are, and again after each round of fixes."""

    def __init__(
        self, knowledge: Knowledge, server: ServerAnswers, only: frozenset[str], ignored: frozenset[str]
    ) -> None:
        self._knowledge = knowledge
        self._server = server
        self._only = only
        self._ignored = ignored
        # The number of findings in the last run.
        self.objects = 0

    def findings(self, contents: dict[str, bytes]) -> list[Finding]:
        """The findings of the selected rules."""
        with progress("reading", len(contents)) as advance:
            sources: list[Source] = []
            for name, data in contents.items():
                sources.append(read_source(data, name))
                advance()
        self.objects = sum(1 for source in sources for _ in subjects(source))
        return [
            finding
            for finding in find(sources, self._knowledge, self._server)
            if (not self._only or finding.rule in self._only) and finding.rule not in self._ignored
        ]

    def fixed(self, contents: dict[str, bytes]) -> tuple[dict[str, bytes], int]:
        """The files that safe fixes change, and the number of changes."""
        current = dict(contents)
        count = 0
        for _ in range(_ROUNDS_MAX):
            fixes: dict[str, list[Fix]] = {}
            for finding in self.findings(current):
                if finding.fix is not None and finding.fix.edits:
                    fixes.setdefault(finding.source, []).append(finding.fix)
            if not fixes:
                break
            for name, wanted in fixes.items():
                mark = _BYTE_ORDER_MARK if current[name].startswith(_BYTE_ORDER_MARK) else b""
                text, made = apply_fixes(current[name].decode("utf-8-sig"), wanted)
                current[name] = mark + text.encode()
                count += made
        return {name: data for name, data in current.items() if data != contents[name]}, count


# --- output ---


def _show(findings: Sequence[Finding], files: int, fixed: int, output: _Format, *, to_stderr: bool) -> None:
    if output is _Format.JSON:
        click.echo(msgspec.json.encode(as_json(findings, files, fixed)))
    elif output is _Format.SARIF:
        click.echo(msgspec.json.format(msgspec.json.encode(as_sarif(findings)), indent=2))
    elif output is _Format.GITHUB:
        for finding in findings:
            click.echo(github_line(finding))
    else:
        for finding in findings:
            for line, colour in text_lines(finding):
                if to_stderr:
                    talk(line)
                else:
                    write(line, colour)
        talk(total(findings, files, fixed))
