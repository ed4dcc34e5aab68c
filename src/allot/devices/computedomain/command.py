"""`python -m allot.devices.computedomain`: run the driver, or break a simulated NVLink fabric. Options of the driver first, then those of every driver.

python -m allot.devices.computedomain --profile gb200-nvl72 --node-name worker
python -m allot.devices.computedomain fault --state-dir DIR "fabric state is in progress"
python -m allot.devices.computedomain classes
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.core.model.compute_domains import DRIVER, DRIVER_NAMESPACE
from allot.core.validation.formats import label_value
from allot.devices.command import UsageError, run_command
from allot.devices.computedomain.classes import device_classes
from allot.devices.computedomain.driver import ComputeDomainDriver
from allot.devices.computedomain.imex import SimulatedImex, break_fabric
from allot.devices.profiles.machines import UnknownMachine, find_machine
from allot.devices.profiles.nvlink import clique_of_rack

KUBELET_ROOT = Path("/var/lib/kubelet")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["fault"]:
        sys.exit(_fault(given[1:]))
    run_command(given, make_driver, _parser(), device_classes())


def make_driver(arguments: Sequence[str]) -> tuple[ComputeDomainDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    if not given.profile:
        raise UsageError(
            "--profile: only simulated machines can be in a ComputeDomain; expected one such as gb200-nvl72"
        )
    try:
        machine = find_machine(given.profile)
    except UnknownMachine as error:
        raise UsageError(str(error.args[0])) from None
    if machine.nvlink_domain_machines < 2:
        raise UsageError(f"--profile {given.profile}: no NVLink joins such machines; expected one such as gb200-nvl72")
    for why in label_value(given.clique):
        raise UsageError(f"--clique {given.clique!r}: {why}")
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    shared.add_argument("--data-dir", type=Path)
    shared.add_argument("--kubelet-root", type=Path, default=KUBELET_ROOT)
    known, _ = shared.parse_known_args(rest)
    # Absolute: containers mount from there.
    folder = (given.state_dir or known.data_dir or known.kubelet_root / "plugins" / DRIVER).absolute()
    imex = SimulatedImex(folder)
    return ComputeDomainDriver(imex, clique=given.clique, driver_namespace=given.driver_namespace), rest


def _parser() -> argparse.ArgumentParser:
    name = "python -m allot.devices.computedomain"
    parser = argparse.ArgumentParser(prog=name, add_help=False, description="The driver of ComputeDomains.")
    add = parser.add_argument
    add("--profile", default=os.environ.get("ALLOT_GPU_PROFILE", ""), help="simulate this machine (gb200-nvl72)")
    add("--state-dir", type=Path, help="channels and daemons of this node [DATA_DIR]")
    add(
        "--clique",
        default=clique_of_rack("", 0),
        help="the NVLink domain of this machine, if its node has no label that says so [%(default)s]",
    )
    add("--driver-namespace", default=DRIVER_NAMESPACE, help="where daemons may run [%(default)s]")
    return parser


def _fault(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m allot.devices.computedomain fault")
    parser.add_argument("fault", help="what is wrong with the NVLink fabric, in words; or clear")
    parser.add_argument("--state-dir", type=Path, default=KUBELET_ROOT / "plugins" / DRIVER)
    given = parser.parse_args(arguments)
    try:
        break_fabric(given.state_dir, "" if given.fault == "clear" else given.fault)
    except OSError as error:
        sys.stderr.write(f"error: state of the driver {given.state_dir}: {(error.strerror or str(error)).lower()}\n")
        return 1
    return 0
