"""`allot demo`: guided demonstrations, each on its own cluster."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allot.cli.demos.catalogue import demos
from allot.cli.demos.script import Demo
from allot.cli.errors import Unreadable
from allot.cli.output import OutputFormat, output_option, write_table, write_value
from allot.yaml_values.writer import yaml_text

if TYPE_CHECKING:
    from rich.console import Console

_DEFAULT = "one-gpu"
_WIDTH = 110


@click.command()
@click.argument("name", default=_DEFAULT, metavar="[NAME]")
@click.option("--list", "lists", is_flag=True, help="List the demonstrations and exit.")
@click.option("--pause", "pauses", is_flag=True, help="Wait for Enter before each step.")
@click.option("--keep", is_flag=True, help="Keep everything at the end, and print how to use it.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Use this cluster, which must have the nodes that the demonstration needs.  [default: its own cluster]",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.svg",
    help="Also write the output as a picture of a terminal.",
)
@output_option
def demo(
    name: str,
    lists: bool,
    pauses: bool,
    keep: bool,
    kubeconfig: Path | None,
    record: Path | None,
    output: OutputFormat,
) -> None:
    """Show what Dynamic Resource Allocation does: start a cluster with simulated devices, and explain and run every
    step. You only need allot; the command uses kubectl if it is installed.

    \b
    Examples:
      allot demo                  two pods, one GPU
      allot demo --list
      allot demo mig --pause
      allot demo gang --keep
    """
    if lists:
        _list(output)
        return
    chosen = demos().get(name)
    if chosen is None:
        raise Unreadable(
            f"demonstration {name!r}: expected one of {', '.join(demos())}", "allot demo --list shows them"
        )
    # Imported late: it takes longer than most commands run.
    from rich.console import Console

    fits_a_terminal = record is None and sys.stdout.isatty()
    console = Console(record=record is not None, highlight=False, width=None if fits_a_terminal else _WIDTH)
    _check(chosen, kubeconfig)
    with _folder(chosen, keep) as folder:
        if kubeconfig is not None:
            _play(chosen, console, folder, kubeconfig.absolute(), pauses, is_foreign=True, clears=not keep)
        else:
            with _cluster(chosen, console, folder, keep) as own:
                _play(chosen, console, folder, own, pauses)
        _end(chosen, console, folder if keep and kubeconfig is None else None)
    if record is not None:
        _save(console, record, f"allot demo {name}")


def _check(chosen: Demo, kubeconfig: Path | None) -> None:
    """Whether it can be played here."""
    from allot.cli.demos.commands import missing_programs

    missing = missing_programs(chosen)
    if missing:
        raise Unreadable(
            f"demonstration {chosen.name}: needs {' and '.join(missing)}, which this machine does not have"
        )
    if chosen.document and kubeconfig is not None:
        raise Unreadable(
            f"demonstration {chosen.name}: its document uses the namespace default, which other clusters use for other things",
            "omit --kubeconfig to run it on its own cluster",
        )


def _save(console: Console, record: Path, title: str) -> None:
    from rich._export_format import CONSOLE_SVG_FORMAT

    # A picture that fetches fonts from elsewhere would not be one.
    own = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console.save_svg(str(record), title=title, code_format=own)


def _list(output: OutputFormat) -> None:
    if output is OutputFormat.TABLE:
        write_table(("NAME", "WHAT IT SHOWS"), [[each.name, each.title] for each in demos().values()])
    else:
        for each in demos().values():
            write_value({"name": each.name, "title": each.title}, output)


@contextmanager
def _folder(chosen: Demo, keep: bool) -> Iterator[Path]:
    """A folder with the manifests of the demonstration."""
    from allot.cli.demos.stage import manifests_of

    folder = Path(tempfile.mkdtemp(prefix=f"allot-demo-{chosen.name}-"))
    try:
        for manifest in manifests_of(chosen):
            shutil.copy(manifest, folder)
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _cluster(chosen: Demo, console: Console, folder: Path, keep: bool) -> Iterator[Path]:
    """The kubeconfig of a temporary cluster, which ends with the demonstration."""
    kubeconfig, data = folder / "kubeconfig", folder / "data"
    started = ["up", "--detach", "--port", "0", "--feature-gates", chosen.feature_gates]
    for option, name, values in (("--node", "nodes", chosen.nodes), ("--pool", "pools", chosen.pools)):
        if values:
            (folder / f"allot-{name}.yaml").write_text(yaml_text({name: list(values)}))
            started += [option, f"allot-{name}.yaml"]
    if chosen.time_factor != 1.0:
        started += ["--time-factor", f"{chosen.time_factor:g}"]
    try:
        with console.status("starting a cluster"):
            said = _allot(folder, *started, "--data-dir", str(data), "--kubeconfig", str(kubeconfig))
        if chosen.document:
            _check_machine(chosen, said)
        yield kubeconfig
    finally:
        if not keep:
            _allot(folder, "down", "--data-dir", str(data), check=False)


def _check_machine(chosen: Demo, said: str) -> None:
    """Documents need programs in pods, which not every kernel allows. said: the output of `allot up`."""
    from allot.cli.demos.stage import DemoFailed

    for line in said.splitlines():
        if "this machine allows no " in line:
            raise DemoFailed(
                f"demonstration {chosen.name}: {line.partition(': ')[2]}", "docs/guides/sandbox.md has the causes"
            )


def _allot(folder: Path, *arguments: str, check: bool = True) -> str:
    """Its output."""
    done = subprocess.run(
        [sys.executable, "-m", "allot", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if check and done.returncode:
        from allot.cli.demos.stage import DemoFailed

        raise DemoFailed(f"allot {arguments[0]}: {done.stderr.strip().removeprefix('error: ')}")
    return done.stderr


def _play(
    chosen: Demo,
    console: Console,
    folder: Path,
    kubeconfig: Path,
    pauses: bool,
    *,
    is_foreign: bool = False,
    clears: bool = False,
) -> None:
    from allot.cli.demos.commands import Commands
    from allot.cli.demos.stage import Stage
    from allot.cli.snapshots import connection_of
    from allot.client.api import Client
    from allot.client.http import HttpTransport
    from allot.process.clock import SystemClock
    from allot.process.ids import SystemIds
    from allot.reading.snapshots import SnapshotSource

    clock = SystemClock()
    connection = connection_of(SnapshotSource(kubeconfig=kubeconfig))

    async def play() -> None:
        client = Client(HttpTransport(connection, clock, SystemIds(), environ=os.environ, user_agent="allot-demo"))
        try:
            commands = Commands(chosen, folder, kubeconfig, client)
            console.rule(f"[bold]{chosen.title}", align="left")
            if chosen.document:
                console.print(f"the steps of {chosen.document}", style="dim", soft_wrap=True)
            if not commands.has_kubectl:
                console.print(
                    "kubectl is not installed: its commands are shown, and allot's own client runs them", style="dim"
                )
            stage = Stage(console, commands, client, clock, _wait_for_enter if pauses else None)
            if is_foreign:
                await stage.refuse_if_in_use(chosen)
            try:
                await stage.play(chosen)
            finally:
                if clears:
                    await stage.clear(chosen)
        finally:
            await client.close()

    asyncio.run(play())


def _wait_for_enter() -> None:
    click.pause("")


def _end(chosen: Demo, console: Console, kept: Path | None) -> None:
    console.print()
    console.rule("[bold]what to try next", align="left")
    if kept is not None:
        console.print(f"export KUBECONFIG={kept / 'kubeconfig'}", soft_wrap=True)
        console.print(f"allot down --data-dir {kept / 'data'}   stops the cluster", soft_wrap=True)
    every = list(demos().values())
    following = every[(every.index(chosen) + 1) % len(every)]
    rows = (
        (f"allot demo {following.name}", following.title),
        ("allot demo --list", "all demonstrations"),
        ("allot up", "a cluster to play with: 8 simulated H100s"),
        ("allot explain pod/NAME", "why a pod waits, on any cluster"),
    )
    width = max(len(command) for command, _ in rows)
    for command, meaning in rows:
        console.print(f"  [cyan]{command:<{width}}[/cyan]   {meaning}")
