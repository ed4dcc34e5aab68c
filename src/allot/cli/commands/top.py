"""`allot top`: which devices are free, in use and by whom, and unavailable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from allot.apiserver.printing.cells import duration
from allot.cli.live import show_live, watch_option
from allot.cli.output import OutputFormat, output_option, write, write_table, write_value
from allot.cli.snapshots import in_namespace, need, read_snapshot, snapshot_options
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.usage.claims import ClaimState, ClaimUsage, claim_usage
from allot.core.advice.usage.devices import By, DevicesReport, DeviceUsage, device_usage
from allot.core.advice.usage.nodes import NodeUsage, node_usage
from allot.core.advice.usage.partitions import PartitionUsage, partition_usage
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from allot.core.quantity import Quantity
from allot.reading.snapshots import SnapshotSource

_HELD = "allot top claims shows the devices that claims of a namespace hold"
_RIGHTS = "the others need permission to list resourceslices"
_NAMES_SHOWN_MAX = 3
_MEMORY_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_UNIT_STEP = 1024
_STATE_COLOURS = {"idle": "yellow", "pending": "red", "deleting": "yellow"}

Row = TypeVar("Row")
_Key = Callable[[Any], Any]


@click.group(invoke_without_command=True)
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Show the cluster on the whole terminal and keep it up to date: devices, pending pods and why, claims, queues, gangs, nodes. "
    "In a pipe: allot top devices --watch.",
)
@snapshot_options
@click.pass_context
def top(context: click.Context, source: SnapshotSource, watch: bool) -> None:
    """Show which of the cluster's devices are free, in use, and unavailable, and who holds them.

    With --watch and no command, everything is on one screen: number keys choose a page, Enter explains a row, / filters, q quits.

    A GPU counts once, whether it is published whole, shared, or as all its possible partitions; admin access does not count.
    The command reads a cluster or, with -f, a dump.

    What you may not list is left out, with a note; permission for one namespace is sufficient for its answers.

    Exit code: 0 done, 1 permission to list is missing, 2 the input is unreadable, 3 the cluster cannot be reached.

    \b
    Examples:
      allot top --watch                  all pages on the whole terminal
      allot top devices                  by device class
      allot top devices --by node -w     by node, kept up to date
      allot top claims -A                who holds what, and since when
      allot top nodes -f dump.yaml       from a dump
    """
    if context.invoked_subcommand is not None:
        if watch or source != SnapshotSource():
            raise click.UsageError(f"options of allot top {context.invoked_subcommand} go after its name")
        return
    if not watch:
        raise click.exceptions.NoArgsIsHelpError(context)
    if sys.stdout.isatty() and sys.stdin.isatty():
        # Imported here: only this needs it.
        from allot.cli.screen.showing import show_screen

        show_screen(source)
    else:
        place = {"files": source.files, "kubeconfig": source.kubeconfig, "context": source.context}
        context.invoke(devices, by=By.CLASS.value, watch=not source.files, output=OutputFormat.TABLE, **place)


def _sort_option(keys: dict[str, _Key]) -> Callable[[Any], Any]:
    """Texts from a to z, numbers from large to small."""
    return click.option(
        "--sort-by",
        type=click.Choice(list(keys)),
        metavar="COLUMN",
        callback=lambda _context, _parameter, value: None if value is None else keys[value],
        help=f"Order of the rows: {', '.join(keys)}.",
    )


def _sorted(rows: Iterable[Row], key: _Key | None) -> list[Row]:
    listed = list(rows)
    if key is None or not listed:
        return listed
    return sorted(listed, key=key, reverse=not isinstance(key(listed[0]), str))


def _show(source: SnapshotSource, is_live: bool, show: Callable[[Snapshot], None]) -> None:
    if is_live:
        show_live(source, show)
    else:
        show(read_snapshot(source))


def _value(rows: Iterable[Any]) -> list[Any]:
    return [msgspec.to_builtins(row) for row in rows]


# --- devices ---

_DEVICE_KEYS: dict[str, _Key] = {
    "name": lambda row: row.name,
    "total": lambda row: row.total,
    "free": lambda row: row.free,
    "in-use": lambda row: row.in_use,
    "unavailable": lambda row: row.unavailable,
    "fragmentation": lambda row: row.fragmentation.share,
}


@top.command(short_help="Show how many devices are free and in use, and who holds them.")
@click.option("--by", type=click.Choice([by.value for by in By]), default=By.CLASS.value, show_default=True,
              help="What to group the rows by.")  # fmt: skip
@click.option("-n", "--namespace", default="", metavar="NAME", help="Show only the holders in this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the holders in all namespaces. This is the default.")
@_sort_option(_DEVICE_KEYS)
@watch_option
@snapshot_options
@output_option
def devices(
    source: SnapshotSource,
    by: str,
    namespace: str,
    all_namespaces: bool,
    sort_by: _Key | None,
    watch: bool,
    output: OutputFormat,
) -> None:
    """Show how many devices are free, partly in use, in use and unavailable, and who holds them.

    FREE is available to a claim without tolerations. PARTLY is shared or partitioned and has room for more. UNAVAILABLE is not in use, but
    tainted, in an incomplete pool, or on a node that is cordoned or not ready. LARGEST is the most free devices on one node; FRAGMENTED is the share of the free devices
    on nodes that have too few of them for a typical request: one of the current sizes of claims, or otherwise a whole node.

    \b
    Examples:
      allot top devices
      allot top devices --by model --sort-by free
      allot top devices --by node -f dump.yaml -o json
    """
    source = in_namespace(source, namespace)
    if all_namespaces:
        namespace = ""

    def show(snapshot: Snapshot) -> None:
        need(snapshot, ResourceSlice, hint=f"{_HELD}; {_RIGHTS}")
        if By(by) is By.CLASS:
            need(snapshot, DeviceClass, hint="--by node, model, driver or pool needs no device classes")
        what_if = WhatIfCluster(snapshot)
        report, partitions = device_usage(what_if, By(by)), partition_usage(what_if)
        rows = _sorted((_of_namespace(row, namespace) for row in report.rows), sort_by)
        if output is OutputFormat.TABLE:
            _write_devices(report, rows, partitions)
        else:
            report = msgspec.structs.replace(report, rows=tuple(rows))
            write_value({**msgspec.to_builtins(report), "partitions": _value(partitions)}, output)

    _show(source, watch, show)


def _of_namespace(row: DeviceUsage, namespace: str) -> DeviceUsage:
    if not namespace:
        return row
    return msgspec.structs.replace(row, holders=tuple(h for h in row.holders if h.namespace == namespace))


def _write_devices(report: DevicesReport, rows: Sequence[DeviceUsage], partitions: Sequence[PartitionUsage]) -> None:
    has_drivers = any(row.driver for row in rows)
    has_capacity = any(row.capacity for row in rows)
    headers = [report.by.upper(), *(["DRIVER"] if has_drivers else []), "TOTAL", "FREE", "PARTLY", "IN USE"]
    headers += ["UNAVAILABLE", "LARGEST", "FRAGMENTED", *(["CAPACITY FREE"] if has_capacity else []), "HELD BY"]
    table = []
    for row in rows:
        cells = [row.name, *([row.driver] if has_drivers else [])]
        cells += [str(count) for count in (row.total, row.free, row.partly, row.in_use, row.unavailable)]
        cells += [str(row.fragmentation.largest_block), f"{row.fragmentation.share:.0%}"]
        if has_capacity:
            cells.append(", ".join(f"{use.name} {use.free} of {use.total}" for use in row.capacity))
        table.append([*cells, _holders(row)])
    write_table(headers, table)
    if partitions:
        write()
        shown = [(p.driver, p.model, p.partition, str(p.in_use), str(p.fits)) for p in partitions]
        write_table(("DRIVER", "MODEL", "PARTITION", "IN USE", "MORE FIT"), shown)
        write("MORE FIT: each kind counted alone; they share the same hardware.")
    if report.in_several_rows:
        write()
        write(f"{report.in_several_rows} of {report.units} devices are in several rows.")
    for row in rows:
        if row.problem:
            write(f"{row.name}: not all of its devices are known: {row.problem}", "red")
    for node, reason in report.closed_nodes.items():
        write(f"node {node}: {reason}, so none of its devices are free", "red")
    for pool in report.incomplete_pools:
        write(f"pool {pool}: incomplete, so nothing can be allocated from it", "red")


def _holders(row: DeviceUsage) -> str:
    return _some([f"{h.namespace}/{h.claim}{f' ({h.devices})' if h.devices > 1 else ''}" for h in row.holders])


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN_MAX
    shown = ", ".join(names[:_NAMES_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


# --- claims ---

_CLAIM_KEYS: dict[str, _Key] = {
    "name": lambda row: f"{row.namespace}/{row.name}",
    "state": lambda row: row.state.value,
    "devices": lambda row: len(row.devices),
    "age": lambda row: row.age_seconds or 0.0,
    "allocated": lambda row: row.allocated_seconds or 0.0,
}


@top.command(short_help="Show what claims hold, and since when.")
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace.  [default: that of the context]")
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")
@click.option("--idle", is_flag=True, help="Only claims that hold devices that no pod uses.")
@_sort_option(_CLAIM_KEYS)
@watch_option
@snapshot_options
@output_option
def claims(
    source: SnapshotSource,
    namespace: str,
    all_namespaces: bool,
    idle: bool,
    sort_by: _Key | None,
    watch: bool,
    output: OutputFormat,
) -> None:
    """Show what claims hold and who uses them.

    A claim is pending (a pod waits for its devices), in use, idle (it holds devices that no pod uses), unused (no devices, and
    no pod wants any), or deleting. HELD FOR is the time since its devices were allocated.

    \b
    Examples:
      allot top claims -A --sort-by allocated
      allot top claims -A --idle -f dump.yaml
    """
    source = in_namespace(source, namespace)
    chosen = "" if all_namespaces else source.namespace

    def show(snapshot: Snapshot) -> None:
        need(snapshot, ResourceClaim)
        found = (
            row for row in claim_usage(WhatIfCluster(snapshot), chosen) if not idle or row.state is ClaimState.IDLE
        )
        rows = _sorted(found, sort_by)
        if output is OutputFormat.TABLE:
            headers = ("NAMESPACE", "NAME", "STATE", "NODE", "DEVICES", "PODS", "AGE", "HELD FOR")
            write_table(headers, [_claim_cells(row) for row in rows], _STATE_COLOURS)
        else:
            write_value({"claims": _value(rows)}, output)

    _show(source, watch, show)


def _claim_cells(row: ClaimUsage) -> tuple[str, ...]:
    devices = _some([device.rpartition("/")[2] for device in row.devices])
    watched = _some([f"{device.rpartition('/')[2]} (admin)" for device in row.watched])
    pods = _some([*row.pods, *(f"{name} (waits)" for name in row.waiting)])
    return (
        row.namespace,
        row.name,
        row.state.value,
        ",".join(row.nodes),
        ", ".join(text for text in (devices, watched) if text),
        pods,
        _age(row.age_seconds),
        _age(row.allocated_seconds),
    )


def _age(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


# --- nodes ---

_NODE_KEYS: dict[str, _Key] = {
    "name": lambda row: row.name,
    "devices": lambda row: row.devices,
    "free": lambda row: row.free,
    "in-use": lambda row: row.in_use,
    "pods": lambda row: row.pods,
}


@top.command(short_help="Show what is left on each node.")
@_sort_option(_NODE_KEYS)
@watch_option
@snapshot_options
@output_option
def nodes(source: SnapshotSource, sort_by: _Key | None, watch: bool, output: OutputFormat) -> None:
    """Show what nodes have and what is left: devices, and the CPU, memory and number of pods that are requested.

    Devices that several nodes can use are not counted.

    \b
    Examples:
      allot top nodes --sort-by free
      allot top nodes -f dump.yaml -o json
    """

    def show(snapshot: Snapshot) -> None:
        need(snapshot, Node)
        rows = _sorted(node_usage(WhatIfCluster(snapshot)), sort_by)
        if output is OutputFormat.TABLE:
            headers = ("NODE", "DEVICES", "FREE", "PARTLY", "IN USE", "UNAVAILABLE", "CPU", "MEMORY", "PODS", "STATE")
            write_table(headers, [_node_cells(row) for row in rows])
        else:
            write_value({"nodes": _value(rows)}, output)

    _show(source, watch, show)


def _node_cells(row: NodeUsage) -> tuple[str, ...]:
    return (
        row.name,
        *(str(count) for count in (row.devices, row.free, row.partly, row.in_use, row.unavailable)),
        f"{row.cpu.requested} of {row.cpu.total}",
        f"{_rounded(row.memory.requested)} of {_rounded(row.memory.total)}",
        f"{row.pods} of {row.pods_max}",
        _some([*([row.closed] if row.closed else []), *row.taints]),
    )


def _rounded(memory: str) -> str:
    """An amount of memory in the largest fitting unit, with at most one decimal; JSON has all digits."""
    amount: float = Quantity.parse(memory).value()
    for unit in _MEMORY_UNITS:
        if amount < _UNIT_STEP:
            return f"{amount:.1f}".removesuffix(".0") + unit
        amount /= _UNIT_STEP
    return memory
