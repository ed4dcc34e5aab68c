"""`python -m allot.devices.intel`: run the driver. Its own options first, then those of every driver.

python -m allot.devices.intel --node-name worker
python -m allot.devices.intel --profile max1550x6 --functions 4 --state-dir ./state --node-name worker
python -m allot.devices.intel classes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.devices.command import UsageError, run_command
from allot.devices.intel.classes import device_classes
from allot.devices.intel.driver import IntelDriver
from allot.devices.intel.hardware import KernelGpus, SimulatedGpus
from allot.devices.profiles.cards import UnknownCardMachine
from allot.devices.profiles.intel import intel_tables


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    run_command(given, make_driver, _parser(), device_classes())


def make_driver(arguments: Sequence[str]) -> tuple[IntelDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    if not given.profile:
        if given.functions:
            raise UsageError("--functions: the driver creates virtual functions only for simulated cards (--profile)")
        return IntelDriver(KernelGpus(given.sys_root)), rest
    try:
        gpus = SimulatedGpus(intel_tables().find(given.profile), given.functions)
    except (UnknownCardMachine, ValueError) as error:
        raise UsageError(str(error.args[0])) from None
    return IntelDriver(gpus, given.state_dir.absolute()), rest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m allot.devices.intel", add_help=False, description="The Intel GPU driver."
    )
    add = parser.add_argument
    add("--profile", default=os.environ.get("ALLOT_INTEL_PROFILE", ""), help="simulate this machine (max1550x6)")
    add("--functions", type=int, default=0, help="virtual functions of each simulated card [%(default)s]")
    add("--state-dir", type=Path, default=Path("intel-gpus"), help="files of simulated cards [%(default)s]")
    add("--sys-root", type=Path, default=Path("/sys"), help="where the kernel exposes its devices [%(default)s]")
    return parser
