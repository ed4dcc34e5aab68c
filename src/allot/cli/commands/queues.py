"""`allot queues`: the tree of queues, what each deserves, gets, holds and waits for."""

from __future__ import annotations

import click
import msgspec

from allot.cli.errors import Refused
from allot.cli.live import show_live, watch_option
from allot.cli.output import OutputFormat, output_option, write, write_table, write_value
from allot.cli.snapshots import read_snapshot, snapshot_options
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.usage.queues import QueueUsage, is_of_interest, queue_usage
from allot.core.advice.what_if import WhatIfCluster
from allot.reading.snapshots import SnapshotSource

_INDENT = "  "


@click.command()
@click.argument("name", required=False, metavar="[NAME]", default="")
@watch_option
@snapshot_options
@output_option
def queues(source: SnapshotSource, name: str, watch: bool, output: OutputFormat) -> None:
    """What queues of teams deserve, get, hold and wait for.

    Queues are those of KAI-Scheduler (scheduling.run.ai) and Volcano (scheduling.volcano.sh). DESERVED is guaranteed, LIMIT is never
    exceeded, FAIR SHARE is what belongs to the queue now, given what all ask for; PENDING is asked for and not there yet. With a
    NAME, that queue with its jobs, and why those that wait do not start.

    Exit code: 0 done, 1 there is no such queue, 2 the input cannot be read, 3 the cluster cannot be reached.

    \b
    Examples:
      allot queues                       the whole tree
      allot queues -w                    kept up to date
      allot queues research              one queue and its jobs
      allot queues -f dump.yaml -o json
    """

    def show(snapshot: Snapshot) -> None:
        rows = queue_usage(WhatIfCluster(snapshot))
        if name:
            rows = [msgspec.structs.replace(row, depth=0) for row in rows if row.name == name]
            if not rows:
                raise Refused(f'queue "{name}" does not exist')
        if output is not OutputFormat.TABLE:
            write_value({"queues": [msgspec.to_builtins(row) for row in rows]}, output)
            return
        if not rows:
            write("There are no queues.")
            return
        _write(rows)
        if name:
            _write_jobs(rows[0])

    if watch:
        show_live(source, show)
    else:
        show(read_snapshot(source))


def _write(rows: list[QueueUsage]) -> None:
    table: list[tuple[str, ...]] = []
    for row in rows:
        shown = [each for each in row.resources if is_of_interest(each)] or list(row.resources[:1])
        for index, each in enumerate(shown):
            first = (f"{_INDENT * row.depth}{row.name}", str(row.priority)) if index == 0 else ("", "")
            unit = each.unit if each.unit != each.resource else ""
            resource = f"{each.resource} ({unit})" if unit else each.resource
            table.append((*first, resource, each.deserved, each.limit, each.fair_share, each.allocated, each.pending))
        if not shown:
            table.append((f"{_INDENT * row.depth}{row.name}", str(row.priority), "", "", "", "", "", ""))
    write_table(("QUEUE", "PRIORITY", "RESOURCE", "DESERVED", "LIMIT", "FAIR SHARE", "ALLOCATED", "PENDING"), table)
    for row in rows:
        if row.problem:
            write(row.problem, "red")


def _write_jobs(row: QueueUsage) -> None:
    write()
    if not row.jobs:
        write("No pods are in it.")
        return
    headers = ("JOB", "PRIORITY", "RUNNING", "WAITING", "REASON")
    write_table(
        headers, [(job.name, str(job.priority), str(job.running), str(job.waiting), job.reason) for job in row.jobs]
    )
