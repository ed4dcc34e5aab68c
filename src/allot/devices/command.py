"""The common part of the drivers' command lines: a driver's own options first, then the shared ones.

`python -m allot.devices.NAME classes` prints the device classes that go with a driver.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from allot.core.model.codec import encode
from allot.core.model.resource_v1 import DeviceClass
from allot.driver import Driver, run

# From all arguments to a driver and the remaining arguments; UsageError.
MakeDriver = Callable[[Sequence[str]], tuple[Driver, list[str]]]


class UsageError(ValueError):
    """Invalid options."""


def run_command(
    arguments: Sequence[str],
    make_driver: MakeDriver,
    parser: argparse.ArgumentParser,
    device_classes: Sequence[DeviceClass],
) -> NoReturn:
    """Run with these arguments, and exit: 0 done, 1 refused, 2 usage."""
    if list(arguments[:1]) == ["classes"]:
        for device_class in device_classes:
            sys.stdout.write(msgspec.json.encode(encode(device_class)).decode() + "\n")
        sys.exit(0)
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(parser.format_help() + "\n")
    try:
        driver, rest = make_driver(arguments)
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    run(driver, rest)
