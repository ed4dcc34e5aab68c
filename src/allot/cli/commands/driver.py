"""`allot driver`: create a new driver, and test whether it does what the kubelet expects."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from allot.apiserver.assembly import Settings
from allot.cli.errors import Refused, Unreadable
from allot.cli.output import OutputFormat, output_option, progress, talk, write, write_table, write_value
from allot.client.errors import ApiError
from allot.controlplane.plane import control_plane
from allot.driver.conformance.bench import Bench, CheckFailed, Needs
from allot.driver.conformance.checks import ALL_CHECKS
from allot.driver.conformance.kit import Check, CheckStatus, Finding, run_checks
from allot.driver.conformance.process import ProcessError, command_of, describe
from allot.driver.skeleton import SkeletonError, write_skeleton
from allot.installation.definitions import install
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.reading.documents import parse_documents
from allot.store.memory import MemoryStore

_COLOURS = {CheckStatus.PASS.value: "green", CheckStatus.FAIL.value: "red", CheckStatus.SKIP.value: "yellow"}


@click.group()
def driver() -> None:
    """Write drivers for devices: create one, and test any driver that is written with allot.driver.

    \b
    Examples:
      allot driver new dice.example.com            a working driver with its test and its manifests
      allot driver test examples/drivers/dice.py   check that it does what the kubelet expects
    """


@driver.command(short_help="Create a working driver to start from.")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write it; must not exist, or must be empty.  [default: the first part of the name]",
)
@click.option(
    "--controller", is_flag=True, help="For devices that are not on a node until a controller attaches them to one."
)
def new(name: str, directory: Path | None, controller: bool) -> None:
    """Create a working driver named NAME, with a test and the manifests for a cluster.

    NAME is the driver's name in the API, a DNS name such as dice.example.com.

    \b
    Examples:
      allot driver new dice.example.com
      allot driver new dice.example.com --directory drivers/dice
      allot driver new fabric.example.com --controller
    """
    target = directory or Path(name.partition(".")[0] or name)
    try:
        files = write_skeleton(name, target, with_controller=controller)
    except SkeletonError as error:
        raise Unreadable(str(error)) from None
    for path in files:
        write(str(path))
    # Checks need devices that the driver itself publishes.
    talk(f"next: see {target / 'README.md'}" if controller else f"next: allot driver test {target / 'driver.py'}")


@driver.command(short_help="Check the behavior of a driver.", context_settings={"ignore_unknown_options": True})
@click.argument("module")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--only", default="", metavar="TEXT", help="Only checks whose group or name contains this.")
@click.option("--list", "lists", is_flag=True, help="Show the checks without running them.")
@click.option(
    "--whole-claims", is_flag=True, help="A claim of this driver must hold all its devices, as with TPU drivers."
)
@click.option(
    "--needs",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="What the driver's claims require: objects and parameters, in YAML (see the page of this command).",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Use and keep this directory: sockets, checkpoint, CDI files, the driver's log.",
)
@output_option
def test(
    module: str,
    arguments: tuple[str, ...],
    only: str,
    lists: bool,
    whole_claims: bool,
    needs: Path | None,
    keep: Path | None,
    output: OutputFormat,
) -> None:
    """Run the driver in MODULE, a Python file or an importable name, and check that it does what the kubelet expects.

    The driver runs in a separate process, with an API server and a kubelet of this command. ARGUMENTS after `--` are
    passed to the driver. Exit code 0: no check failed.

    \b
    Examples:
      allot driver test dice/driver.py
      allot driver test dice/driver.py --only health
      allot driver test allot.devices.gpu -- --profile h100x8
    """
    checks = [check for check in ALL_CHECKS if only in check.group or only in check.name]
    if not checks:
        raise Unreadable(f"--only {only!r}: no check contains this in its name", "--list shows them")
    if lists:
        _show_list(checks, output)
        return
    if module.endswith(".py") and not Path(module).is_file():
        raise Unreadable(f"driver {module}: no such file")
    command = (*command_of(module), *arguments)
    needed = _read_needs(needs) if needs is not None else Needs()
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Unreadable(f"--keep {keep}: the directory is not empty")
        findings = _run(_examine(command, keep.resolve(), checks, whole_claims, needed, output))
    else:
        # A short path: sockets below it have at most 107 characters.
        with tempfile.TemporaryDirectory(prefix="allot-") as folder:
            findings = _run(_examine(command, Path(folder), checks, whole_claims, needed, output))
    _conclude(module, findings, output)


def _run(work: Coroutine[Any, Any, list[Finding]]) -> list[Finding]:
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        # An exception that ends the command, such as a closed output pipe, arrives wrapped by the server's task group.
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def _examine(
    command: Sequence[str],
    folder: Path,
    checks: Sequence[Check],
    whole_claims: bool,
    needs: Needs,
    output: OutputFormat,
) -> list[Finding]:
    try:
        description = await describe(command)
    except ProcessError as error:
        raise Unreadable(str(error)) from None
    if description.has_controller:
        raise Unreadable(
            f"driver {description.name}: its devices come from a controller, but the checks need devices that the driver publishes itself",
            "see docs/guides/write-a-driver.md on testing a driver with a controller",
        )
    findings = []
    settings = Settings(directory=folder / "pki", port=0)
    async with control_plane(settings, MemoryStore()) as plane:
        kubeconfig = folder / "admin.kubeconfig"
        plane.server.access.write_admin_kubeconfig(kubeconfig, plane.server.url)
        bench = Bench(
            plane.client(),
            kubeconfig,
            folder,
            command,
            description,
            SystemIds(),
            whole_claims=whole_claims,
            needs=needs,
        )
        try:
            if needs.objects:
                # allot's own kinds can be among them.
                await install(plane.client(), SystemClock())
            await bench.set_up()
            with progress("checks", len(checks), writes=output is not OutputFormat.TABLE) as advance:
                async for finding in run_checks(bench, checks, SystemClock()):
                    findings.append(finding)
                    advance()
                    if output is not OutputFormat.TABLE:
                        write_value(msgspec.to_builtins(finding), output)
        except (ApiError, CheckFailed) as error:
            raise Unreadable(f"--needs: {error}") from None
        finally:
            await bench.close()
    return findings


def _read_needs(path: Path) -> Needs:
    """A document for each object, and one with a list `parameters`. Unreadable."""
    objects, parameters = [], []
    for document in parse_documents(path.read_bytes(), str(path)):
        value = document.value
        if isinstance(value, dict) and set(value) == {"parameters"} and isinstance(value["parameters"], list):
            parameters += value["parameters"]
        elif isinstance(value, dict) and _is_object(value):
            objects.append(value)
        else:
            expected = "expected objects with apiVersion, kind and metadata.name, or a list `parameters`"
            raise Unreadable(f"--needs {path}: {expected}")
    return Needs(objects=tuple(objects), parameters=tuple(parameters))


def _is_object(value: dict[str, Any]) -> bool:
    metadata = value.get("metadata")
    named = isinstance(metadata, dict) and isinstance(metadata.get("name"), str)
    return named and isinstance(value.get("apiVersion"), str) and isinstance(value.get("kind"), str)


def _conclude(module: str, findings: Sequence[Finding], output: OutputFormat) -> None:
    if output is OutputFormat.TABLE:
        rows = [[each.group, each.name, each.verdict.value, each.reason] for each in findings]
        write_table(("GROUP", "CHECK", "RESULT", "REASON"), rows, _COLOURS)
    counts = Counter(finding.verdict for finding in findings)
    talk(f"{counts[CheckStatus.PASS]} passed, {counts[CheckStatus.FAIL]} failed, {counts[CheckStatus.SKIP]} skipped")
    if counts[CheckStatus.FAIL]:
        raise Refused(f"driver {module}: {counts[CheckStatus.FAIL]} of {len(findings)} checks failed")


def _show_list(checks: Sequence[Check], output: OutputFormat) -> None:
    if output is OutputFormat.TABLE:
        write_table(("GROUP", "CHECK"), [[check.group, check.name] for check in checks])
        return
    for check in checks:
        write_value({"group": check.group, "name": check.name}, output)
