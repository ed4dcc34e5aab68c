"""`allot convert`: manifests of any API generation as Kubernetes takes them today."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from allot.cli.converting.conversion import Conversion, accept_option, convert_files, refuse_unless_usable, tell
from allot.cli.converting.file_changes import show_diff, write_file
from allot.cli.errors import Unreadable
from allot.cli.output import talk
from allot.core.advice.convert import Confidence, Options

_STDIN = "stdin"
_JSON = "json"


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--write", "writes", is_flag=True, help="Change the files themselves, if everything can be converted.")
@click.option("--diff", "diffs", is_flag=True, help="Print what would change instead of the result.")
@accept_option(Confidence.LIKELY)
@click.option(
    "--device-plugin",
    "--migrate",
    "migrate",
    is_flag=True,
    help="Also turn extended resources of device plugins (nvidia.com/gpu: 2) into claims. They work as they are: their "
    "driver's device class may name them.",
)
@click.option(
    "--gangs",
    is_flag=True,
    help="Also turn pod groups of other schedulers (scheduler-plugins, KAI, Volcano) into those of scheduling.k8s.io.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", _JSON]),
    default="yaml",
    show_default=True,
    help="The converted manifests, or a report with them, the changes and the problems.",
)
def convert(
    files: tuple[str, ...], writes: bool, diffs: bool, accept: Confidence, migrate: bool, gangs: bool, output: str
) -> int:
    """Convert manifests to resource.k8s.io/v1, and say what changed and why.

    FILE is YAML or JSON with objects of any kind, a folder, or - for stdin. All files are one input: what a claim refers to
    may be in another one. The result is on stdout, with comments and layout where nothing changed; each change is on
    stderr with its line, its reason and how sure it is. A field that restricts what a workload gets is never dropped
    silently: it is in the result, or an error names it.

    Converted are ResourceClass, claims and parameters of Kubernetes 1.26 to 1.30 with vendors' parameter kinds, all later
    versions, pods that use `source:`, selectors in the CEL of 1.30 or that compare sizes as text, names beside metadata, and
    dashes and quotes that a word processor made.

    Exit code: 0 when everything is converted, 1 when something cannot be or is not sure enough, 2 when a file cannot be
    read.

    \b
    Examples:
      allot convert old.yaml > new.yaml
      allot convert manifests/ --write
      allot convert claim.yaml parameters.yaml --diff
      allot convert deployment.yaml --device-plugin
      allot convert old.yaml -o json
      kubectl get deployments -o yaml | allot convert -
    """
    conversion = convert_files(files, Options(migrate=migrate, gangs=gangs))
    if writes and any(file.name == _STDIN for file in conversion.files):
        raise Unreadable("stdin cannot be changed by --write", "give a file, or leave --write out")
    if output == _JSON:
        click.echo(msgspec.json.encode(_report(conversion)))
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
    elif output != _JSON:
        click.echo(_joined(conversion), nl=False)
    return 0


def _report(conversion: Conversion) -> dict[str, object]:
    return {
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
