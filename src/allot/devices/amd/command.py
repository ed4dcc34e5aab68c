"""`python -m allot.devices.amd`: run the driver. Its own options first, then those of every driver.

python -m allot.devices.amd --node-name worker
python -m allot.devices.amd --profile mi300xx8 --partitions cpx_nps4 --state-dir ./state --node-name worker
python -m allot.devices.amd classes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.devices.amd.classes import device_classes
from allot.devices.amd.driver import AmdDriver
from allot.devices.amd.hardware import KernelGpus, SimulatedGpus
from allot.devices.command import UsageError, run_command
from allot.devices.profiles.amd import amd_tables
from allot.devices.profiles.cards import UnknownCardMachine


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    run_command(given, make_driver, _parser(), device_classes())


def make_driver(arguments: Sequence[str]) -> tuple[AmdDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    if not given.profile:
        if given.partitions:
            raise UsageError("--partitions: only simulated cards (--profile) are partitioned by the driver")
        return AmdDriver(KernelGpus(given.sys_root)), rest
    try:
        gpus = SimulatedGpus(amd_tables().find(given.profile), given.partitions)
    except (UnknownCardMachine, ValueError) as error:
        raise UsageError(str(error.args[0])) from None
    return AmdDriver(gpus, given.state_dir.absolute()), rest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m allot.devices.amd", add_help=False, description="The AMD GPU driver."
    )
    add = parser.add_argument
    add("--profile", default=os.environ.get("ALLOT_AMD_PROFILE", ""), help="simulate this machine (mi300xx8)")
    add("--partitions", default="", help="how simulated cards are cut: spx_nps1, dpx_nps1, qpx_nps4, cpx_nps4")
    add("--state-dir", type=Path, default=Path("amd-gpus"), help="files of simulated cards [%(default)s]")
    add("--sys-root", type=Path, default=Path("/sys"), help="where the kernel exposes its devices [%(default)s]")
    return parser
