"""`python -m allot.devices.nic`: run the driver. Its own options first, then those of every driver.

python -m allot.devices.nic --node-name worker --share-bandwidth
python -m allot.devices.nic --profile a3-ultragpu-8g --node-name worker
python -m allot.devices.nic classes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.devices.command import UsageError, run_command
from allot.devices.nic.classes import device_classes
from allot.devices.nic.driver import NicDriver
from allot.devices.nic.interfaces import Interfaces, KernelInterfaces, SimulatedInterfaces
from allot.devices.profiles.machines import UnknownMachine, find_machine


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    run_command(given, make_driver, _parser(), device_classes())


def make_driver(arguments: Sequence[str]) -> tuple[NicDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    if given.share_bandwidth and given.move_interfaces:
        raise UsageError("--share-bandwidth and --move-interfaces exclude each other: what is moved is not shared")
    interfaces: Interfaces = KernelInterfaces(given.sys_root, given.proc_root)
    if given.profile:
        shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        shared.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
        known, _ = shared.parse_known_args(rest)
        try:
            interfaces = SimulatedInterfaces(find_machine(given.profile), known.node_name)
        except UnknownMachine as error:
            raise UsageError(str(error.args[0])) from None
    driver = NicDriver(
        interfaces, shares_bandwidth=given.share_bandwidth, moves_interfaces=given.move_interfaces
    )  # fmt: skip
    return driver, rest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m allot.devices.nic", add_help=False, description="The network driver."
    )
    add = parser.add_argument
    add("--profile", default=os.environ.get("ALLOT_NIC_PROFILE", ""), help="simulate this machine (a3-ultragpu-8g)")
    add("--sys-root", type=Path, default=Path("/sys"), help="where the kernel exposes its interfaces [%(default)s]")
    add("--proc-root", type=Path, default=Path("/proc"), help="where the kernel exposes its routes [%(default)s]")
    add("--share-bandwidth", action="store_true", help="several claims may have a part of an interface's bandwidth")
    add("--move-interfaces", action="store_true", help="containers get the interface itself (runtimes with CDI 1.1)")
    return parser
