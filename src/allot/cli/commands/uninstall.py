"""`allot uninstall`: removes parts that `allot install` installed."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from allot.cli.durations import duration_option
from allot.cli.errors import Refused
from allot.cli.installing import Target, on_cluster, target_options
from allot.cli.output import talk, write
from allot.installation.applying import PARTS, Cluster
from allot.installation.chart_rendering import named


@click.command()
@click.argument("parts", nargs=-1, metavar="[PART]...", type=click.Choice(PARTS))
@target_options
@click.option(
    "--definitions",
    "with_definitions",
    is_flag=True,
    help="Also remove the definitions of queues and groups, with all objects of these kinds.",
)
@click.option("--force", is_flag=True, help="Remove even if devices are in use, or a scheduler relies on the guard.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@duration_option("--timeout", default="2m", help_="The maximum time for pods to terminate.")
def uninstall(
    parts: tuple[str, ...], target: Target, with_definitions: bool, force: bool, dry_run: bool, timeout: float
) -> None:
    """Remove parts that allot install has installed, or all of them: {parts}.

    If allot install created the namespace, it is removed with the last part. Definitions of queues and groups stay, because deleting a
    definition deletes all objects of its kind. Files of drivers on nodes stay (KUBELET_ROOT/plugins/DRIVER, CDI files); the kubelet removes their ResourceSlices.

    Exit code: 0 done, 1 something is in use, there is nothing to remove, or the cluster refuses, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot uninstall --dry-run
      allot uninstall scheduler guard
      allot uninstall --definitions
    """
    chosen = parts or PARTS

    async def work(cluster: Cluster, _client: Any) -> None:
        if dry_run:
            for _, object_ in await cluster.present(chosen):
                write(named(object_))
            return
        if not force:
            await cluster.check_unused(chosen)
        count = await cluster.remove(chosen, with_definitions=with_definitions, timeout_s=timeout)
        if not count:
            release = target.release
            raise Refused(f"release {release.name!r} has no objects in namespace {release.namespace!r}")

    asyncio.run(on_cluster(target, work, talk))


uninstall.help = (uninstall.help or "").replace("{parts}", ", ".join(PARTS))
