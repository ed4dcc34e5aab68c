"""`allot apply`: convert what is safe, lint, then apply on the server side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from allot.cli.converting.conversion import Conversion, accept_option, convert_files, refuse_unless_usable, tell
from allot.cli.errors import Refused, Unreadable
from allot.cli.gates import parse_gates
from allot.cli.output import OutputFormat, talk, write, write_value
from allot.core.advice.convert import Confidence, Options
from allot.core.features import FeatureGates

if TYPE_CHECKING:
    from allot.cli.converting.applying import Applied
    from allot.core.advice.lint.knowledge import Knowledge
    from allot.reading.snapshots import SnapshotSource

EXIT_REFUSED = 1


@click.command()
@click.option(
    "-f",
    "--filename",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="YAML or JSON with objects of any kind, a directory, or - for stdin. Repeatable.",
)
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace of objects without one.")
@accept_option(Confidence.CERTAIN)
@click.option("--gangs", is_flag=True, help="Also convert pod groups of other schedulers, like allot convert --gangs.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    show_default=True,
    help="client: only convert and lint; server: the server checks, but changes nothing.",
)
@click.option("--force-conflicts", is_flag=True, help="Take over fields that others have set.")
@click.option("--lint/--no-lint", "lints", default=True, show_default=True, help="Stop if allot lint finds an error.")
@click.option(
    "--feature-gates",
    "gates",
    metavar="GATES",
    default="all",
    callback=parse_gates,
    help="The server's feature gates, for lint.  [default: all]",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="How to reach the cluster.  [default: as in kubectl: $KUBECONFIG, ~/.kube/config, or in the cluster]",
)
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["name", "json"]),
    default="name",
    show_default=True,
    help="How to print the result.",
)
def apply(
    files: tuple[str, ...],
    namespace: str,
    accept: Confidence,
    gangs: bool,
    dry_run: str,
    force_conflicts: bool,
    lints: bool,
    gates: FeatureGates,
    kubeconfig: Path | None,
    context: str,
    output: str,
) -> int:
    """Apply manifests of any API version: convert what is safe, stop at errors, and apply the rest to the cluster.

    Each change to a manifest is reported on stderr; the files stay unchanged. The command uses server-side apply (field
    manager allot), in the order of dependencies: definitions, namespaces, classes, templates, claims, pods. If the server
    refuses an object, the others are still applied.

    Lint uses the cluster's DeviceClasses, devices, claims and templates, if you may list them.

    Exit code: 0 if everything is applied, 1 if something is not, 2 if a file is unreadable, 3 if the cluster
    cannot be reached.

    \b
    Examples:
      allot apply -f manifests/
      allot apply -f pod.yaml -f claim.yaml -n team-a
      allot apply -f old.yaml --accept likely
      allot apply -f pod.yaml --dry-run=server
      helm template chart | allot apply -f -
    """
    conversion = convert_files(files, Options(gangs=gangs))
    tell(conversion)
    refuse_unless_usable(conversion, accept, done="applied")
    # Imported late, as the linter is: both take longer to load than help takes to print.
    from allot.cli.converting.applying import Settings, apply_objects, in_order, not_applied
    from allot.cli.snapshots import connection_of
    from allot.reading.snapshots import SnapshotSource

    cluster = connection = None
    if dry_run != "client":
        cluster = SnapshotSource(kubeconfig=kubeconfig, context=context, home=namespace)
        connection = connection_of(cluster, hint="set a kubeconfig with --kubeconfig; --dry-run=client needs none")
    if lints:
        _refuse_what_lint_finds(conversion, gates, cluster, connection.namespace if connection else namespace)
    objects = in_order(_objects(conversion, namespace))
    if connection is None:
        results = [not_applied(value) for value in objects]
    else:
        settings = Settings(connection.namespace, dry_run == "server", force_conflicts)
        results = asyncio.run(apply_objects(objects, connection, settings))
    _show(results, dry_run, output)
    return EXIT_REFUSED if any(applied.result == "failed" for applied in results) else 0


def _refuse_what_lint_finds(
    conversion: Conversion, gates: FeatureGates, cluster: SnapshotSource | None, namespace: str
) -> None:
    from allot.cli.linting.formats import text_lines
    from allot.cli.linting.server_answers import ServerAnswers
    from allot.core.advice.lint.finding import Severity
    from allot.core.advice.lint.linter import lint
    from allot.reading.sources import read_source

    sources = [read_source(file.after.encode(), file.name) for file in conversion.files]
    if namespace:
        sources = [msgspec.structs.replace(source, namespace=namespace) for source in sources]
    findings = lint(sources, _knowledge(cluster), ServerAnswers(gates))
    for finding in findings:
        if finding.severity is not Severity.NOTE:
            for line, _ in text_lines(finding):
                talk(line)
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    if errors:
        found = "an error" if errors == 1 else f"{errors} errors"
        raise Refused(
            f"lint found {found}; nothing was applied", "--no-lint applies everything that the server accepts"
        )


def _knowledge(cluster: SnapshotSource | None) -> Knowledge:
    """What lint checks against: without permission to list the cluster, nothing."""
    from allot.cli.linting.config_checks import CONFIG_CHECKS
    from allot.cli.linting.knowledge import live_knowledge
    from allot.core.advice.lint.knowledge import Knowledge
    from allot.reading.errors import Denied

    if cluster is not None:
        try:
            return live_knowledge(cluster)
        except Denied as error:
            talk(f"note: lint cannot use the cluster: {error.message}")
    return Knowledge(config_checks=CONFIG_CHECKS)


# --- objects ---


def _objects(conversion: Conversion, namespace: str) -> list[dict[str, Any]]:
    """Every object of the input, with lists replaced by their items; none may be in a namespace other than the requested one."""
    found: list[dict[str, Any]] = []
    pending = [value for file in conversion.files for value in file.documents]
    for value in pending:
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str) or not value.get("apiVersion"):
            raise Unreadable("a document is not an object: expected apiVersion and kind")
        items = value.get("items")
        if value["kind"].endswith("List") and isinstance(items, list):
            # The loop continues with what is added here.
            pending += items
            continue
        metadata = value.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise Unreadable(f"{value['kind']} has no metadata.name: applying needs one")
        own = metadata.get("namespace")
        if namespace and own and own != namespace:
            raise Unreadable(
                f"{value['kind']} {metadata['name']} is for namespace {own}: expected {namespace}, the namespace of -n"
            )
        found.append(value)
    return found


def _show(results: Sequence[Applied], dry_run: str, output: str) -> None:
    if output == "json":
        write_value({"objects": msgspec.to_builtins(results)}, OutputFormat.JSON)
        return
    suffix = {"client": " (dry run)", "server": " (server dry run)"}.get(dry_run, "")
    for applied in results:
        if applied.result == "failed":
            talk(f"error: {applied.resource}/{applied.name}: {applied.message}")
        else:
            write(f"{applied.resource}/{applied.name} {applied.result}{suffix}")
