"""`allot bench`: measures the speed of the control plane as Kubernetes measures its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from allot.bench.child import Failed, Options, run_in_child
from allot.bench.run import TIMEOUT_S, Measurement
from allot.bench.workloads import UnknownWorkload, Workload, find_workloads
from allot.bench.workloads import labels as all_labels
from allot.cli.errors import CommandError
from allot.cli.output import OutputFormat, talk, write, write_table

_COLUMNS = ("WORKLOAD", "PODS/S", "OVERALL", "P50 MS", "P99 MS", "µS/POD", "WRITES", "STEPS", "MEMORY", "KUBERNETES")


class BenchFailed(CommandError):
    """A workload could not be measured."""

    exit_code = 1


@click.group()
def bench() -> None:
    """Measure the control plane.

    \b
    Examples:
      allot bench scheduling --list
    """


@bench.command(short_help="Run Kubernetes' scheduler benchmark.")
@click.argument("patterns", nargs=-1, metavar="[WORKLOAD]...")
@click.option("--list", "lists", is_flag=True, help="List the workloads and exit.")
@click.option(
    "-l", "--label", "labels", multiple=True, type=click.Choice(all_labels()), help="Only workloads with this label."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice([OutputFormat.TABLE.value, OutputFormat.JSON.value]),
    default=OutputFormat.TABLE.value,
    show_default=True,
    help="The output format; json is a list of objects.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the databases in directories below this one.  [default: temporary directories]",
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a profile (cProfile) of the run to this file; for one workload.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="The maximum time for the pods of a step.",
)
def scheduling(
    patterns: tuple[str, ...],
    lists: bool,
    labels: tuple[str, ...],
    output: str,
    data_dir: Path | None,
    profile: Path | None,
    timeout: float,
) -> None:
    """Run workloads of Kubernetes' scheduler benchmark (scheduler_perf) for DRA, end to end: API server on a durable
    database, controllers, scheduler, and a client that creates the pods.

    WORKLOAD is a name as in --list, or a pattern: SchedulingWithResourceClaimTemplate/5000pods_500nodes, 'half_*',
    Partitionable. Each workload runs in a separate process. The column KUBERNETES is the threshold of Kubernetes' CI on 6 cores.

    \b
    Examples:
      allot bench scheduling --list
      allot bench scheduling SchedulingWithResourceClaimTemplate/5000pods_500nodes
      allot bench scheduling --label performance -o json
    """
    try:
        workloads = find_workloads(patterns, labels)
    except UnknownWorkload as error:
        hint = f"did you mean {error.nearest}?" if error.nearest else "allot bench scheduling --list shows all"
        raise click.UsageError(f"{error}; {hint}") from None
    if lists:
        _list(workloads, OutputFormat(output))
        return
    if not patterns and not labels:
        raise click.UsageError("name workloads, or select some with --label; --list shows all of them.")
    if profile is not None and len(workloads) != 1:
        raise click.UsageError(f"--profile is for one workload, but {len(workloads)} were selected.")
    options = Options(data_dir=data_dir, timeout_s=timeout, profile=profile)
    outcomes, failures = _run_all(workloads, options)
    _show(outcomes, OutputFormat(output))
    if failures:
        raise BenchFailed("; ".join(failures))


def _list(workloads: tuple[Workload, ...], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        rows = [{"workload": workload.full_name, "labels": workload.labels} for workload in workloads]
        write(msgspec.json.encode(rows).decode())
        return
    table = [
        (
            workload.full_name,
            str(workload.nodes_with_dra + workload.nodes_without_dra),
            str(workload.measure_pods),
            f"steady {workload.steady_seconds:g} s" if workload.is_steady else "burst",
            ",".join(workload.labels),
        )
        for workload in workloads
    ]
    write_table(("WORKLOAD", "NODES", "PODS", "MODE", "LABELS"), table)


def _run_all(workloads: tuple[Workload, ...], options: Options) -> tuple[list[Measurement], list[str]]:
    outcomes: list[Measurement] = []
    failures: list[str] = []
    for number, workload in enumerate(workloads, 1):
        with _bar(f"[{number}/{len(workloads)}] {workload.full_name}") as progress:
            try:
                outcomes.append(run_in_child(workload, options, progress))
            except Failed as failed:
                failures.append(f"{workload.full_name}: {failed}")
                talk(f"error: {failures[-1]}")
    return outcomes, failures


@contextmanager
def _bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """What is being done, on stderr: a bar on a terminal, a line per workload elsewhere."""
    if not sys.stderr.isatty():
        talk(title)
        yield lambda _what, _done, _total: None
        return
    # Imported late: it takes longer than most commands run.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as shown:
        task = shown.add_task(title, total=None)

        def move(what: str, done: int, total: int) -> None:
            shown.update(task, description=f"{title}: {what}", completed=done, total=total or None)

        yield move


def _show(outcomes: list[Measurement], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        click.echo(msgspec.json.encode(outcomes).decode())
        return
    if outcomes:
        write_table(_COLUMNS, [_row(outcome) for outcome in outcomes])


def _row(outcome: Measurement) -> tuple[str, ...]:
    latency = outcome.latency_milliseconds
    return (
        outcome.workload,
        f"{outcome.pods_per_second:,.0f}",
        f"{outcome.pods_per_second_overall:,.0f}",
        f"{latency.perc50:,.0f}" if latency else "-",
        f"{latency.perc99:,.0f}" if latency else "-",
        f"{outcome.processor_microseconds_per_pod:,.0f}",
        f"{outcome.writes_per_pod:.1f}",
        f"{outcome.search_steps_per_pod:.1f}",
        f"{outcome.peak_memory_mebibytes:,.0f} MiB",
        f">{outcome.floor:g}" if outcome.floor else "-",
    )
