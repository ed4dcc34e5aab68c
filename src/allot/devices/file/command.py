"""`python -m allot.devices.file FILE`: run the driver that a device file describes. Then come the options of every driver.

python -m allot.devices.file my-fpga.yaml --node-name worker
python -m allot.devices.file my-fpga.yaml --simulate ./state --node-name worker
python -m allot.devices.file classes my-fpga.yaml
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.devices.command import UsageError, run_command
from allot.devices.file.definition import DeviceFile, read_device_file
from allot.devices.file.driver import FileDriver, driver_of
from allot.reading.errors import Unreadable


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["-h"], ["--help"]):
        # The common options need a driver, which needs a file.
        sys.stdout.write(_parser().format_help())
        sys.exit(0)
    try:
        classes = _read(Path(given[1])).classes if given[:1] == ["classes"] and len(given) > 1 else ()
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    run_command(given, make_driver, _parser(), classes)


def make_driver(arguments: Sequence[str]) -> tuple[FileDriver, list[str]]:
    """The configured driver, and the remaining options. UsageError."""
    given, rest = _parser().parse_known_args(arguments)
    if given.file is None:
        raise UsageError("no device file: python -m allot.devices.file FILE")
    folder = given.simulate.absolute() if given.simulate is not None else None
    return driver_of(_read(given.file), folder), rest


def _read(path: Path) -> DeviceFile:
    try:
        return read_device_file(path)
    except Unreadable as error:
        raise UsageError(f"{error.message}\nhint: {error.hint}" if error.hint else error.message) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m allot.devices.file", add_help=False, description="The driver that a device file describes."
    )
    add = parser.add_argument
    add("file", type=Path, nargs="?", metavar="FILE", help="the device file")
    add(
        "--simulate",
        type=Path,
        metavar="DIR",
        help="simulate the devices; files that stand for them are below this directory",
    )
    return parser
