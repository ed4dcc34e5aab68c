"""`python -m allot.devices.cpu`: run the driver. Its own options first, then those of every driver.

python -m allot.devices.cpu --node-name worker --group-by socket --reserved-cpus 0-1
python -m allot.devices.cpu --profile a3-ultragpu-8g --node-name worker
python -m allot.devices.cpu classes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from allot.devices.command import UsageError, run_command
from allot.devices.cpu.classes import device_classes
from allot.devices.cpu.driver import CpuDriver
from allot.devices.cpu.inventory import GroupBy, Mode, Publishing
from allot.devices.cpu.topology import Topology, read_topology, simulated_topology
from allot.devices.profiles.machines import UnknownMachine, find_machine
from allot.devices.sysfs import CpuListError, parse_cpu_list


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    run_command(given, make_driver, _parser(), device_classes())


def make_driver(arguments: Sequence[str]) -> tuple[CpuDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    try:
        reserved = parse_cpu_list(given.reserved_cpus)
        read = _reader(given.profile, given.sys_root)
    except CpuListError as error:
        raise UsageError(f"--reserved-cpus: {error}") from None
    except UnknownMachine as error:
        raise UsageError(str(error.args[0])) from None
    publishing = Publishing(
        mode=Mode(given.cpu_device_mode),
        group_by=GroupBy(given.group_by),
        reserved=reserved,
        maps_node_allocatable=given.node_allocatable,
        has_pcie_roots=given.pcie_roots,
    )
    pin = (sys.executable, "-m", "allot.devices.cpu.pin") if given.pin else ()
    kind = type("CpuDriver", (CpuDriver,), {"has_device_metadata": True}) if given.device_metadata else CpuDriver
    return kind(read, publishing, pin), rest


def _reader(profile: str, sys_root: Path) -> Callable[[], Topology]:
    if not profile:
        return lambda: read_topology(sys_root)
    simulated = simulated_topology(find_machine(profile))
    return lambda: simulated


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m allot.devices.cpu", add_help=False, description="The CPU driver.")
    add = parser.add_argument
    add("--profile", default=os.environ.get("ALLOT_CPU_PROFILE", ""), help="simulate this machine (a3-ultragpu-8g)")
    add("--sys-root", type=Path, default=Path("/sys"), help="where the kernel exposes its CPUs [%(default)s]")
    add("--cpu-device-mode", choices=[*Mode], default=Mode.GROUPED, help="what a device is [%(default)s]")
    add("--group-by", choices=[*GroupBy], default=GroupBy.NUMA_NODE, help="what a group shares [%(default)s]")
    add("--reserved-cpus", default="", help="CPUs that are not given away: 0-1,8")
    add("--node-allocatable", action="store_true", help="devices count against the node's cpu")
    add(
        "--pcie-roots",
        action="store_true",
        help="publish the PCIe roots of each NUMA node (the cluster must have DRAListTypeAttributes)",
    )
    add("--device-metadata", action="store_true", help="containers find a file that describes their devices")
    add("--pin", action="store_true", help="pin containers by a hook; it runs this Python on the node")
    return parser
