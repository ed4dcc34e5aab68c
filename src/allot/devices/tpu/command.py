"""`python -m allot.devices.tpu`: run the driver. Its own options first, then those of every driver.

python -m allot.devices.tpu --node-name worker
python -m allot.devices.tpu --profile ct6e-standard-4t --node-name worker
python -m allot.devices.tpu classes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.devices.command import UsageError, run_command
from allot.devices.profiles.tpus import UnknownTpuMachine, find_tpu_machine
from allot.devices.tpu.chips import Chips, KernelChips, SimulatedChips
from allot.devices.tpu.classes import device_classes
from allot.devices.tpu.driver import TpuDriver
from allot.devices.tpu.inventory import CONTAINER_LOGS, Slice
from allot.devices.tpu.topology import TopologyError, parse_topology


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    run_command(given, make_driver, _parser(), device_classes())


def make_driver(arguments: Sequence[str]) -> tuple[TpuDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    chips: Chips
    try:
        if given.topology:
            parse_topology(given.topology)
        if given.profile:
            chips = SimulatedChips(find_tpu_machine(given.profile), given.state_dir)
        else:
            chips = KernelChips(given.sys_root, given.dev_root)
    except (TopologyError, UnknownTpuMachine) as error:
        raise UsageError(str(error.args[0])) from None
    part_of = Slice(
        topology=given.topology,
        accelerator=given.accelerator,
        worker_id=given.worker_id,
        worker_hostnames=tuple(given.worker_hostnames.split(",")),
    )
    return TpuDriver(chips, part_of, given.logs_dir), rest


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m allot.devices.tpu", add_help=False, description="The TPU driver.")
    add = parser.add_argument
    add("--profile", default=os.environ.get("ALLOT_TPU_PROFILE", ""), help="simulate this machine (ct6e-standard-4t)")
    add("--state-dir", type=Path, help="where a file `lost` names simulated chips that are gone")
    add("--sys-root", type=Path, default=Path("/sys"), help="where the kernel exposes its devices [%(default)s]")
    add("--dev-root", type=Path, default=Path("/dev"), help="where device files are [%(default)s]")
    add("--logs-dir", type=Path, default=Path(CONTAINER_LOGS), help="logs of TPU programs [%(default)s]")
    add("--topology", default="", help="of the slice that this node is part of: 4x4x4 [of this node alone]")
    add("--accelerator", default="", help="label of the slice: tpu-v6e-slice [by the kind of chips]")
    add("--worker-id", type=int, default=0, help="of this node in its slice [%(default)s]")
    add("--worker-hostnames", default="localhost", help="all nodes of the slice, with commas [%(default)s]")
    return parser
