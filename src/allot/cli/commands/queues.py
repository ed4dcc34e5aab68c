"""`allot queues`: the tree of queues, with what each deserves, is entitled to, uses and waits for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import click
import msgspec

from allot.cli.errors import Refused
from allot.cli.live import show_live, watch_option
from allot.cli.output import OutputFormat, output_option, talk, write, write_table, write_value
from allot.cli.snapshots import read_snapshot, snapshot_options
from allot.core.advice.explain.wording import named
from allot.core.advice.nearest import nearest
from allot.core.advice.outlook import outlooks
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.usage.queues import QueueUsage, queue_usage, resources_shown, strays
from allot.core.advice.what_if import WhatIfCluster
from allot.reading.snapshots import SnapshotSource

_INDENT = "  "


@click.command()
@click.argument("name", required=False, metavar="[NAME]", default="")
@watch_option
@snapshot_options
@output_option
def queues(source: SnapshotSource, name: str, watch: bool, output: OutputFormat) -> None:
    """Show what the queues of teams deserve, get, hold and wait for.

    Queues are those of KAI-Scheduler (scheduling.run.ai) and Volcano (scheduling.volcano.sh). DESERVED is guaranteed, LIMIT is never
    exceeded (- means unlimited), FAIR SHARE is what the queue is entitled to now, given what all queues ask for; PENDING is requested but not
    allocated yet. cpu is in cores, memory in GB; only resources that a queue limits are shown. With a NAME, the output shows that queue and those
    below it with their jobs, and why pending jobs do not start.

    Exit code: 0 done, 1 the queue does not exist, 2 the input is unreadable, 3 the cluster cannot be reached.

    \b
    Examples:
      allot queues                       the whole tree
      allot queues -w                    kept up to date
      allot queues research              one queue and its jobs
      allot queues -f dump.yaml -o json
    """

    def show(snapshot: Snapshot) -> None:
        what_if = WhatIfCluster(snapshot)
        found = outlooks(what_if)
        rows = queue_usage(what_if, found)
        if name:
            rows = _below(rows, name)
        if output is not OutputFormat.TABLE:
            write_value({"queues": [msgspec.to_builtins(row) for row in rows]}, output)
            return
        if not rows:
            write("There are no queues.")
            return
        _write(rows)
        if name:
            _write_jobs(rows)
        else:
            for queue, jobs in strays(what_if, found).items():
                write(
                    f'queue "{queue}" does not exist: {named("job", jobs)} {"waits" if len(jobs) == 1 else "wait"}',
                    "red",
                )

    if watch:
        show_live(source, show)
    else:
        show(read_snapshot(source))


def _below(rows: Sequence[QueueUsage], name: str) -> list[QueueUsage]:
    """A queue and its children, which follow it."""
    places = [place for place, row in enumerate(rows) if row.name == name]
    if not places:
        meant = nearest(name, [row.name for row in rows])
        raise Refused(f'queue "{name}" does not exist', f"did you mean {meant}?" if meant is not None else None)
    first, *others = rows[places[0] :]
    below = list(takewhile(lambda row: row.depth > first.depth, others))
    return [msgspec.structs.replace(row, depth=row.depth - first.depth) for row in (first, *below)]


def _write(rows: Sequence[QueueUsage]) -> None:
    """At most 80 characters wide unless names are long: what is the same for all is left out."""
    resources = resources_shown(rows)
    has_priorities = len({row.priority for row in rows}) > 1
    table: list[tuple[str, ...]] = []
    for row in rows:
        name: str = f"{_INDENT * row.depth}{row.name}"
        priority = str(row.priority)
        for each in row.resources:
            if each.resource in resources:
                first = (name, priority) if has_priorities else (name,)
                bounds = (_bound(each.deserved), _bound(each.limit))
                table.append((*first, each.resource, *bounds, each.fair_share, each.allocated, each.pending))
                name = priority = ""
    first_headers = ("QUEUE", "PRIORITY") if has_priorities else ("QUEUE",)
    write_table((*first_headers, "RESOURCE", "DESERVED", "LIMIT", "FAIR SHARE", "ALLOCATED", "PENDING"), table)
    for row in rows:
        if row.problem:
            write(row.problem, "red")


def _bound(amount: str) -> str:
    return "-" if amount == "unlimited" else amount


def _write_jobs(rows: Sequence[QueueUsage]) -> None:
    write()
    jobs = [(row.name, job) for row in rows for job in row.jobs]
    if not jobs:
        write("No pods are in it.")
        return
    headers = ("JOB", "PRIORITY", "RUNNING", "WAITING", "REASON")
    cells = [
        (queue, job.name, str(job.priority), str(job.running), str(job.waiting), job.reason or "-")
        for queue, job in jobs
    ]
    if len({queue for queue, _ in jobs}) > 1:
        write_table(("QUEUE", *headers), cells)
    else:
        write_table(headers, [row[1:] for row in cells])
    if any(job.waiting for _, job in jobs):
        talk(f"allot explain queue/{rows[0].name} shows who makes room and what would help")
