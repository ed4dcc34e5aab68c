"""`python -m allot.devices.gpu`: run the driver, or inject faults into a simulated GPU. Options of the driver first, then those of every driver.

python -m allot.devices.gpu --profile h100x8 --node-name worker
python -m allot.devices.gpu fault --state-dir DIR 0 xid=79
python -m allot.devices.gpu classes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.devices.command import UsageError, run_command
from allot.devices.gpu.classes import device_classes
from allot.devices.gpu.driver import GpuDriver
from allot.devices.gpu.gates import GATE_NAMES, GateError, Gates, parse_gates
from allot.devices.gpu.hardware import Hardware, HardwareError
from allot.devices.gpu.inventory import DRIVER_NAME
from allot.devices.gpu.nvml_hardware import NvmlHardware
from allot.devices.gpu.simulated import MigLayout, SimulatedHardware, inject, parse_fault
from allot.devices.profiles.machines import UnknownMachine, find_machine

KUBELET_ROOT = Path("/var/lib/kubelet")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["fault"]:
        sys.exit(_fault(given[1:]))
    run_command(given, make_driver, _parser(), device_classes())


def make_driver(arguments: Sequence[str]) -> tuple[GpuDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    try:
        gates = parse_gates(given.feature_gates)
        if gates.passthrough_support and not given.profile:
            raise UsageError("feature gate PassthroughSupport: only simulated GPUs (--profile) can be passed through")
        hardware = _hardware(given, rest)
    except (GateError, UnknownMachine) as error:
        raise UsageError(str(error.args[0])) from None
    return driver_class(gates)(hardware, gates), rest


def driver_class(gates: Gates) -> type[GpuDriver]:
    """The driver class, with the attributes that the SDK reads."""
    if not gates.device_metadata:
        return GpuDriver
    return type("GpuDriver", (GpuDriver,), {"has_device_metadata": True})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m allot.devices.gpu", add_help=False, description="The GPU driver.")
    add = parser.add_argument
    add(
        "--profile",
        default=os.environ.get("ALLOT_GPU_PROFILE", ""),
        help="simulate this machine (h100x8, p4d.24xlarge)",
    )
    add("--state-dir", type=Path, help="state of simulated GPUs, MPS directories [DATA_DIR/gpus]")
    add("--mig-layout", default="", help="cut GPUs from the start: 0=3g.40gb,2g.20gb;1=7g.80gb or all=...")
    add("--feature-gates", default="", help=f"NAME=true|false,... of {', '.join(GATE_NAMES)}")
    add("--nvml-library", default="libnvidia-ml.so.1", help="NVML, for real GPUs [%(default)s]")
    add("--driver-root", type=Path, default=Path("/"), help="where the GPU driver is installed [%(default)s]")
    add("--host-driver-root", type=Path, help="where that is on the node, for a driver in a container [DRIVER_ROOT]")
    return parser


def _hardware(given: argparse.Namespace, rest: Sequence[str]) -> Hardware:
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument("--data-dir", type=Path)
    shared.add_argument("--kubelet-root", type=Path, default=KUBELET_ROOT)
    shared.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""))
    known, _ = shared.parse_known_args(list(rest))
    data = known.data_dir or known.kubelet_root / "plugins" / DRIVER_NAME
    # Absolute: containers mount from there.
    state = (given.state_dir or data / "gpus").absolute()
    if not given.profile:
        if given.mig_layout:
            raise UsageError("--mig-layout: only simulated GPUs (--profile) can be partitioned at start")
        return NvmlHardware(given.nvml_library, state, given.driver_root, host_driver_root=given.host_driver_root)
    machine = find_machine(given.profile)
    return SimulatedHardware(machine, state, known.node_name, parse_layout(given.mig_layout, len(machine.gpus)))


def parse_layout(text: str, count: int) -> MigLayout:
    """`0=3g.40gb,2g.20gb;1=` or `all=...`; UsageError."""
    layout: dict[int, tuple[str, ...]] = {}
    for part in filter(None, text.split(";")):
        which, equals, names = part.partition("=")
        profiles = tuple(filter(None, names.split(",")))
        if not equals or not (which == "all" or (which.isascii() and which.isdigit() and int(which[:6]) < count)):
            raise UsageError(f"--mig-layout: {part!r}, expected all=PROFILE,... or NUMBER=PROFILE,... below {count}")
        for index in range(count) if which == "all" else (int(which),):
            layout[index] = profiles
    return layout


def _fault(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m allot.devices.gpu fault")
    parser.add_argument("gpu", help="number or UUID of a simulated GPU")
    parser.add_argument("faults", nargs="+", help="xid=NUMBER, ecc, lost; or clear")
    parser.add_argument("--state-dir", type=Path, default=KUBELET_ROOT / "plugins" / DRIVER_NAME / "gpus")
    given = parser.parse_args(arguments)
    try:
        faults = [] if given.faults == ["clear"] else [parse_fault(text) for text in given.faults]
        inject(given.state_dir, given.gpu, faults)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except HardwareError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0
