"""`python -m allot.devices.imageconfigurator [--kubeconfig FILE]`: run the controller until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from allot.client.api import Client
from allot.client.http import HttpTransport
from allot.client.kubeconfig import KubeconfigError, connection_from_environment
from allot.devices.imageconfigurator.controller import ImageConfigurator
from allot.devices.imageconfigurator.images import DRIVER
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.process.signals import stop_on_signals


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Exit codes: 0 stopped, 1 no cluster, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="python -m allot.devices.imageconfigurator", description=f"The controller of {DRIVER}."
    )
    parser.add_argument("--kubeconfig", type=Path, help="how to reach the API server [$KUBECONFIG, or in the cluster]")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    try:
        asyncio.run(_run(given.kubeconfig))
    except KubeconfigError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)
    sys.exit(0)


async def _run(kubeconfig: Path | None) -> None:
    clock, ids = SystemClock(), SystemIds()
    connection = connection_from_environment(os.environ, kubeconfig=kubeconfig)
    client = Client(HttpTransport(connection, clock, ids, environ=os.environ, user_agent=DRIVER))
    stop = asyncio.Event()
    stop_on_signals(stop)
    try:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(ImageConfigurator(client, clock, ids).run())
            await stop.wait()
            working.cancel()
    finally:
        await client.close()
