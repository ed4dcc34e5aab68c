"""`allot snapshot`: everything that advice needs to know of a cluster, as one file."""

from __future__ import annotations

import click

from allot.cli.output import OutputFormat, talk, write_value
from allot.cli.snapshots import read_values, snapshot_options
from allot.core.advice.redaction import redacted
from allot.reading.snapshots import SnapshotSource


@click.command()
@snapshot_options
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice([OutputFormat.YAML.value, OutputFormat.JSON.value]),
    default=OutputFormat.YAML.value,
    show_default=True,
    help="How to print it; JSON is much quicker to read again.",
)
@click.option(
    "--keep-annotations",
    is_flag=True,
    help="Keep all annotations but kubectl's copies of objects; look through them before you show them to somebody.",
)
def snapshot(source: SnapshotSource, output: str, keep_annotations: bool) -> None:
    """Write what allot explain, top, tree, plan and lint need to know of a cluster to stdout.

    Pods, nodes, claims, templates, device classes, slices, taint rules, priority classes, pod groups, volumes, disruption budgets,
    quotas, the owners of pods and events: listing them is all that is needed. Secrets and config maps are not read; environment
    variables, commands, arguments and probes of containers are left out, and annotations but those that explain needs. The order is always the same, so that two snapshots can be
    compared.

    Exit codes: 0 done, 1 the right to list something important is missing, 2 usage or input that cannot be read, 3 cluster not
    reachable.

    \b
    Examples:
      allot snapshot > dump.yaml                    the cluster of the kubeconfig
      allot explain train-0 -f dump.yaml            ask it, anywhere
      allot snapshot -o json --context prod > dump.json
      allot snapshot -f raw/ > dump.yaml            what kubectl wrote, without what is private
    """
    values = [redacted(value, keep_annotations=keep_annotations) for value in read_values(source)]
    values.sort(key=lambda value: _place(value))
    left_out = "" if keep_annotations else ", and annotations that are not needed (--keep-annotations)"
    talk(f"note: {len(values)} objects; left out: what containers run and their environment{left_out}")
    write_value({"apiVersion": "v1", "kind": "List", "items": values}, OutputFormat(output))


def _place(value: dict[str, object]) -> tuple[str, str, str, str]:
    metadata = value.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return (
        str(value.get("apiVersion", "")),
        str(value.get("kind", "")),
        str(names.get("namespace", "")),
        str(names.get("name", "")),
    )
