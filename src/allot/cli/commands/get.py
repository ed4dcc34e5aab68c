"""`allot get`: lists every device with its properties and holder, and the pools."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from allot.cli.errors import Refused
from allot.cli.output import OutputFormat, talk, write_table, write_value
from allot.cli.snapshots import need, read_snapshot, snapshot_options
from allot.core.advice.usage.listing import DeviceRow, list_devices, list_pools
from allot.core.advice.what_if import WhatIfCluster
from allot.core.cel.selector import CompiledSelector, EnvironmentOptions, SelectorCompileError, compile_selector
from allot.core.model.resource_v1 import ResourceSlice
from allot.reading.snapshots import SnapshotSource

_WIDE = "wide"
_STATE_COLOURS = {"free": "green", "unavailable": "red"}
_OPTIONS = EnvironmentOptions(list_type_attributes=True, consumable_capacity=True, stored=True)

_output = click.option(
    "-o",
    "--output",
    type=click.Choice([OutputFormat.TABLE.value, _WIDE, OutputFormat.JSON.value, OutputFormat.YAML.value]),
    default=OutputFormat.TABLE.value,
    show_default=True,
    help="The output format; wide shows attributes and capacities as columns.",
)


@click.group()
def get() -> None:
    """List what kubectl cannot list: the devices inside ResourceSlices, and their pools.

    Exit code: 0 done, 1 the selector is not valid CEL or ResourceSlices may not be listed, 2 the input is unreadable, 3 the cluster
    cannot be reached.

    \b
    Examples:
      allot get devices --free
      allot get devices -o wide --selector 'device.driver == "gpu.nvidia.com"'
      allot get pools -f dump.yaml
    """


@get.command(short_help="List every device, with its attributes and holders.")
@click.option("--free", is_flag=True, help="Only devices that are free, entirely or in part.")
@click.option("-l", "--selector", default="", metavar="CEL", help="Only devices that match this expression.")
@snapshot_options
@_output
def devices(source: SnapshotSource, free: bool, selector: str, output: str) -> None:
    """List every device of the newest generation of every pool, its state, and the claims that hold it.

    \b
    Examples:
      allot get devices --free -o wide
      allot get devices -l 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))'
      allot get devices -f dump.yaml -o json
    """
    found = list_devices(_published(source), _compiled(selector), only_free=free)
    if found.failures:
        talk(f"note: the selector fails on {len(found.failures)} devices, which are left out: {found.failures[0]}")
    if output in (OutputFormat.JSON.value, OutputFormat.YAML.value):
        write_value(msgspec.to_builtins(found), OutputFormat(output))
    else:
        _write_devices(found.devices, is_wide=output == _WIDE)


def _published(source: SnapshotSource) -> WhatIfCluster:
    snapshot = read_snapshot(source)
    need(snapshot, ResourceSlice)
    return WhatIfCluster(snapshot)


def _compiled(selector: str) -> CompiledSelector | None:
    if not selector:
        return None
    try:
        return compile_selector(selector, _OPTIONS)
    except SelectorCompileError as error:
        raise Refused(f"selector: {error.message}", "allot cel --help has examples") from None


def _write_devices(rows: tuple[DeviceRow, ...], is_wide: bool) -> None:
    attributes = sorted({name for row in rows for name in row.attributes}) if is_wide else []
    capacities = sorted({name for row in rows for name in row.capacity}) if is_wide else []
    headers = ["DRIVER", "POOL", "DEVICE", "NODE", "MODEL", "STATE", "CLASSES", "HELD BY", "TAINTS"]
    headers += [_short(name) for name in (*attributes, *capacities)]
    table = []
    for row in rows:
        cells = [row.driver, row.pool, row.device, row.node, row.model, row.state.value]
        cells += [",".join(row.classes), ",".join(row.holders), ",".join(row.taints)]
        cells += [_text(row.attributes.get(name)) for name in attributes]
        cells += [_amount(row, name) for name in capacities]
        table.append(cells)
    write_table(headers, table, _STATE_COLOURS)


def _short(name: str) -> str:
    return name.rpartition("/")[2].upper()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _amount(row: DeviceRow, name: str) -> str:
    total, free = row.capacity.get(name, ""), row.capacity_free.get(name)
    return total if free is None else f"{free} of {total}"


@get.command(short_help="List the pools in which devices are published.")
@snapshot_options
@_output
def pools(source: SnapshotSource, output: str) -> None:
    """List every pool with its newest generation, and whether all of its ResourceSlices exist.

    \b
    Examples:
      allot get pools
      allot get pools -f dump.yaml -o json
    """
    rows = list(list_pools(_published(source)))
    if output in (OutputFormat.JSON.value, OutputFormat.YAML.value):
        write_value({"pools": [msgspec.to_builtins(row) for row in rows]}, OutputFormat(output))
        return
    table = [
        (
            row.driver,
            row.pool,
            ",".join(row.nodes[:3]) + (",..." if len(row.nodes) > 3 else ""),
            str(row.generation),
            f"{row.slices}/{row.slices_expected}",
            str(row.devices),
            str(row.counter_sets),
        )
        for row in rows
    ]
    write_table(("DRIVER", "POOL", "NODE", "GENERATION", "SLICES", "DEVICES", "COUNTER SETS"), table)
