"""`allot convert`: converts manifests of any API generation to current Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from allot.cli.converting.conversion import Conversion, accept_option, convert_files, refuse_unless_usable, tell
from allot.cli.converting.file_changes import show_diff, write_file
from allot.cli.errors import Refused, Unreadable
from allot.cli.output import talk, write, write_table
from allot.cli.snapshots import need, read_snapshot, snapshot_options
from allot.core.advice.convert import Confidence, Options
from allot.core.advice.nearest import listed
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import DeviceClass, ResourceSlice
from allot.reading.snapshots import SnapshotSource

if TYPE_CHECKING:
    from allot.core.advice.planning.placements import PlacementAnswer

EXIT_NOT_PLACED = 1
_STDIN = "stdin"
_JSON = "json"


@click.command()
@click.argument("manifests", nargs=-1, required=True, metavar="FILE...")
@click.option("--write", "writes", is_flag=True, help="Change the files, if everything can be converted.")
@click.option("--diff", "diffs", is_flag=True, help="Print what would change instead of the result.")
@accept_option(Confidence.LIKELY)
@click.option(
    "--device-plugin",
    "--migrate",
    "migrate",
    is_flag=True,
    help="Also turn extended resources of device plugins (nvidia.com/gpu: 2) into claims. They also work unchanged: their driver's "
    "DeviceClass can map them.",
)
@click.option(
    "--gangs",
    is_flag=True,
    help="Also turn pod groups of other schedulers (scheduler-plugins, KAI, Volcano) into those of scheduling.k8s.io.",
)
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="Show for each pod of the converted manifests where it would be placed on the cluster, or on that of a dump (-f), or why not. "
    "The result is not printed.",
)
@snapshot_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", _JSON]),
    default="yaml",
    show_default=True,
    help="The converted manifests, or a report with them, the changes and the problems.",
)
def convert(
    manifests: tuple[str, ...],
    writes: bool,
    diffs: bool,
    accept: Confidence,
    migrate: bool,
    gangs: bool,
    checks: bool,
    source: SnapshotSource,
    output: str,
) -> int:
    """Convert manifests to resource.k8s.io/v1, and report what changed and why.

    FILE is YAML or JSON with objects of any kind, a directory, or - for stdin. All files are one input: a claim can refer to
    objects in other files. The result goes to stdout and keeps comments and layout of unchanged parts; each change goes to
    stderr with its line, its reason and how certain it is. A field that restricts what a workload gets is never dropped
    silently: it is in the result, or an error names it.

    The command converts ResourceClass, claims and parameters of Kubernetes 1.26 to 1.30 with vendors' parameter kinds, all later
    versions, pods that use `source:`, selectors in the CEL of 1.30 or that compare sizes as strings, names beside metadata, and
    dashes and quotes from a word processor.

    Exit code: 0 if everything is converted and, with --check, every pod would be placed; 1 if something cannot be
    converted or is not certain enough, or a pod would wait; 2 if a file is unreadable; 3 if the cluster of --check cannot be
    reached.

    \b
    Examples:
      allot convert old.yaml > new.yaml
      allot convert manifests/ --write
      allot convert claim.yaml parameters.yaml --diff
      allot convert deployment.yaml --device-plugin
      allot convert old.yaml -o json
      allot convert old.yaml --check -f dump.yaml
      kubectl get deployments -o yaml | allot convert -
    """
    conversion = convert_files(manifests, Options(migrate=migrate, gangs=gangs))
    if writes and any(file.name == _STDIN for file in conversion.files):
        raise Unreadable("--write cannot change stdin", "pass a file, or omit --write")
    if source.files and not checks:
        raise Unreadable("-f is the dump for --check", "pass manifests as arguments: allot convert old.yaml")
    is_usable = not conversion.errors
    answer = _checked(conversion, manifests, source) if checks and is_usable else None
    if output == _JSON:
        click.echo(msgspec.json.encode(_report(conversion, answer)))
    else:
        tell(conversion)
    refuse_unless_usable(conversion, accept, done="written")
    changed = [file for file in conversion.files if file.is_changed]
    if writes:
        for file in changed:
            write_file(Path(file.name), file.after.encode())
        talk(_total(conversion, len(changed)))
    elif diffs:
        for file in changed:
            show_diff(file.name, file.before, file.after)
    elif output != _JSON and answer is None:
        click.echo(_joined(conversion), nl=False)
    if answer is None:
        return 0
    if output != _JSON:
        _show(answer)
    return 0 if answer.are_all_placed else EXIT_NOT_PLACED


def _checked(conversion: Conversion, manifests: tuple[str, ...], source: SnapshotSource) -> PlacementAnswer:
    """What would become of the pods of the result."""
    # Imported late: the scheduler takes longer to load than most conversions take.
    from allot.core.advice.lint.source import subjects
    from allot.core.advice.planning.changes import ChangeError, with_assumed_capacity
    from allot.core.advice.planning.placements import placements_of
    from allot.core.model.codec import DecodeError
    from allot.core.model.convert import ConversionError
    from allot.reading.sources import read_source

    snapshot = read_snapshot(source)
    need(snapshot, Node, DeviceClass, ResourceSlice)
    snapshot, silent = with_assumed_capacity(snapshot)
    if silent:
        talk(f"note: {silent} nodes do not state CPU, memory and pods: assumed to be enough")
    results = [read_source(file.after.encode(), file.name) for file in conversion.files]
    values = [subject.value for result in results for subject in subjects(result)]
    try:
        return placements_of(values, snapshot)
    except (DecodeError, ConversionError) as error:
        raise Refused(f"{', '.join(manifests)}: {error}", "allot lint shows what is wrong with a manifest") from None
    except ChangeError as error:
        raise Refused(str(error)) from None


def _show(answer: PlacementAnswer) -> None:
    for note in answer.notes:
        talk(f"note: {note}")
    if not answer.pods:
        write("No pods in the manifests.")
        return
    write_table(("POD", "OF", "NODE"), [(pod.pod, pod.owner, pod.node or "none") for pod in answer.pods])
    waiting: dict[str, list[str]] = {}
    for pod in answer.pods:
        if not pod.node:
            waiting.setdefault(pod.reason, []).append(pod.pod)
    for reason, pods in waiting.items():
        write()
        # A cause from allot explain names its pod.
        is_told = f"{pods[0]} " in reason
        write(reason if is_told else f"{pods[0]}: {reason}", "red")
        if len(pods) > 1:
            write(f"  the same: {listed(pods[1:])}")


def _report(conversion: Conversion, answer: PlacementAnswer | None) -> dict[str, object]:
    return {
        **({} if answer is None else {"check": answer}),
        "changes": conversion.changes,
        "problems": conversion.problems,
        "files": [{"file": file.name, "changed": file.is_changed} for file in conversion.files],
        "documents": [document for file in conversion.files for document in file.documents],
    }


def _joined(conversion: Conversion) -> str:
    """All results as one stream."""
    texts = [file.after for file in conversion.files if file.after.strip()]
    parts = [text if index == 0 or text.startswith("---") else f"---\n{text}" for index, text in enumerate(texts)]
    return "".join(parts)


def _total(conversion: Conversion, files: int) -> str:
    changes = len(conversion.changes)
    if not files:
        return "nothing to change"
    return f"{changes} change{'s' if changes != 1 else ''} in {files} file{'s' if files != 1 else ''}"
