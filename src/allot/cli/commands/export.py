"""`allot export`: writes a cluster's objects so that they can be applied to another cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from allot.cli.errors import Refused
from allot.cli.output import TERMINAL, OutputFormat, talk, write_value
from allot.cli.snapshots import connection_of, snapshot_options
from allot.core.advice.reapplying import DEFINITION, Choice, counted
from allot.core.advice.reapplying import export as exported
from allot.reading.snapshots import SnapshotSource, values_in

_DEFINITIONS = ("include", "only", "omit")


@click.command()
@snapshot_options
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only objects in this namespace.")
@click.option("--secrets", is_flag=True, help="Include Secrets; everybody who reads the output can read them.")
@click.option("--system", is_flag=True, help="Include kube-system, kube-public and kube-node-lease.")
@click.option("--finished", is_flag=True, help="Include finished pods and Jobs; if applied, they run again.")
@click.option(
    "--definitions",
    type=click.Choice(_DEFINITIONS),
    default="include",
    show_default=True,
    help="CustomResourceDefinitions: with the rest, alone, or not at all.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([OutputFormat.YAML.value, OutputFormat.JSON.value]),
    default=OutputFormat.YAML.value,
    show_default=True,
    help="YAML documents, or a line of JSON for each object.",
)
def export(
    source: SnapshotSource,
    namespace: str,
    secrets: bool,
    system: bool,
    finished: bool,
    definitions: str,
    output: str,
) -> None:
    """Write the objects of a cluster, or of a dump, so that they can be applied to another one.

    The output omits what a cluster adds: status, uids, names of nodes, addresses of Services, and everything that is recreated, such as pods of
    Deployments, claims of templates, ResourceSlices, tokens. Objects are in the order of their dependencies, CustomResourceDefinitions first.
    Objects that are omitted are reported on stderr.

    kubectl looks up all kinds before it applies anything, so apply the definitions first, or use allot apply.

    Exit codes: 0 done, 1 nothing is left, or nothing may be listed, 2 wrong usage or unreadable input,
    3 the cluster cannot be reached.

    \b
    Examples:
      allot export > cluster.yaml
      allot export | allot apply -f - --context prod
      allot export --definitions only | kubectl apply --server-side -f -
      allot export --definitions omit | kubectl apply --server-side -f -
      kubectl get all,claims -A -o yaml | allot export -f -
    """
    found = exported(_values(source, namespace), Choice(secrets=secrets, system=system, finished=finished))
    objects = [each for each in found.objects if definitions == "include" or _fits(each, definitions)]
    for why, kinds in counted(found.left_out):
        talk(f"note: left out, {why.value}: {kinds}")
    if not objects:
        raise Refused("nothing is left to apply")
    for each in objects:
        write_value(each, OutputFormat(output))


def _fits(object_: dict[str, Any], definitions: str) -> bool:
    return bool(object_["kind"] == DEFINITION) == (definitions == "only")


def _values(source: SnapshotSource, namespace: str) -> list[dict[str, Any]]:
    if source.files:
        found = values_in(source.files)
        return [each for each in found if not namespace or each["metadata"].get("namespace") == namespace]
    # Imported late, like everything that connects to clusters.
    from allot.reading.every_kind import fetch_every_kind

    return asyncio.run(fetch_every_kind(connection_of(source), TERMINAL, namespace))
