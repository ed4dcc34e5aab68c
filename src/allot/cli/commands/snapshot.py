"""`allot snapshot`: writes everything that advice needs from a cluster into one file."""

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
    help="The output format; JSON is much faster to read again.",
)
@click.option(
    "--keep-annotations",
    is_flag=True,
    help="Keep all annotations except kubectl's copies of objects; review them before you share the snapshot.",
)
def snapshot(source: SnapshotSource, output: str, keep_annotations: bool) -> None:
    """Write what allot explain, top, tree, plan and lint need to know about a cluster to stdout.

    The snapshot contains pods, nodes, claims, templates, DeviceClasses, ResourceSlices, taint rules, priority classes, pod groups, volumes, disruption budgets,
    quotas, the owners of pods and events: you only need permission to list them. It does not read Secrets and ConfigMaps, and omits environment
    variables, commands, arguments and probes of containers, and annotations except those that explain needs. The order is always the same, so you can
    compare two snapshots.

    Exit codes: 0 done, 1 permission to list something important is missing, 2 wrong usage or unreadable input, 3 the cluster cannot be
    reached.

    \b
    Examples:
      allot snapshot > dump.yaml                    the cluster of the kubeconfig
      allot explain train-0 -f dump.yaml            query it, anywhere
      allot snapshot -o json --context prod > dump.json
      allot snapshot -f raw/ > dump.yaml            remove private data from a dump of kubectl
    """
    values = [redacted(value, keep_annotations=keep_annotations) for value in read_values(source)]
    values.sort(key=lambda value: _place(value))
    left_out = "" if keep_annotations else ", and unnecessary annotations (--keep-annotations)"
    talk(f"note: {len(values)} objects; left out: commands and environment of containers{left_out}")
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
