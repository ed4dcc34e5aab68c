"""`allot status`: shows the state of this machine's cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
import msgspec

from allot.cli.data_dir import ADMIN_KUBECONFIG, data_dir_option
from allot.cli.errors import EXIT_UNREACHABLE
from allot.cli.output import OutputFormat, output_option, write, write_table, write_value
from allot.cli.snapshots import read_snapshot
from allot.cli.up.instance import Instance, InstanceState
from allot.core.advice.usage.devices import By, device_usage
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.core_v1 import Node, Pod
from allot.process.clock import rfc3339
from allot.reading.snapshots import SnapshotSource


@click.command()
@data_dir_option
@output_option
def status(data_dir: Path, output: OutputFormat) -> int:
    """Show whether the cluster of a data directory runs, since when and where, and the state of its parts.

    Exit code 0 if it runs and is ready, 3 if not.

    \b
    Examples:
      allot status
      allot status -o json
    """
    state = Instance(data_dir).running()
    told: dict[str, Any] = {"running": state is not None, "dataDir": str(data_dir)}
    if state is not None:
        told |= _about(state)
        if state.ready:
            told |= _contents(data_dir / ADMIN_KUBECONFIG)
    if output is OutputFormat.TABLE:
        _show(told)
    else:
        write_value(told, output)
    return 0 if state is not None and state.ready else EXIT_UNREACHABLE


def _about(state: InstanceState) -> dict[str, Any]:
    parts = [
        {**msgspec.to_builtins(part), "since": rfc3339(int(part.since)) if part.since else None} for part in state.parts
    ]
    return {
        "ready": state.ready,
        "pid": state.pid,
        "since": rfc3339(int(state.since)),
        "url": state.url,
        "kubeconfig": state.kubeconfig,
        "log": state.log,
        "dashboard": state.dashboard_link,
        "parts": parts,
    }


def _contents(kubeconfig: Path) -> dict[str, Any]:
    snapshot = read_snapshot(SnapshotSource(kubeconfig=kubeconfig))
    nodes = snapshot.of(Node)
    ready = [each for each in nodes if any(c.type == "Ready" and c.status == "True" for c in each.status.conditions)]
    rows = device_usage(WhatIfCluster(snapshot), By.DRIVER).rows
    phases = Counter(each.status.phase or "Pending" for each in snapshot.of(Pod))
    return {
        "nodes": {"total": len(nodes), "ready": len(ready)},
        "devices": {"total": sum(row.total for row in rows), "free": sum(row.free for row in rows)},
        "pods": {"total": phases.total(), "byPhase": dict(sorted(phases.items()))},
    }


def _show(told: dict[str, Any]) -> None:
    if not told["running"]:
        write(f"not running: {told['dataDir']}")
        return
    write(f"{'running' if told['ready'] else 'starting'} since {told['since']}, process {told['pid']}: {told['url']}")
    write(f"kubeconfig: {told['kubeconfig']}")
    write(f"log: {told['log']}")
    if told["dashboard"]:
        write(f"dashboard: {told['dashboard']}")
    if "nodes" in told:
        phases = ", ".join(f"{count} {phase}" for phase, count in told["pods"]["byPhase"].items())
        write(f"nodes: {told['nodes']['ready']} of {told['nodes']['total']} ready")
        write(f"devices: {told['devices']['free']} of {told['devices']['total']} free")
        write(f"pods: {phases or 'none'}")
    write()
    rows = [
        [part["name"], part["state"], str(part["restarts"]), str(part["pid"] or ""), part["since"] or ""]
        for part in told["parts"]
    ]
    write_table(("PART", "STATE", "RESTARTS", "PID", "SINCE"), rows)
