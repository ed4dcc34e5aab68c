"""`run(driver)` and `run_controller(controller)`: the main functions of a driver. Options from the command line and the environment, signals,
exit codes.

Data of the node come from the environment that the DaemonSet sets: NODE_NAME, POD_UID.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from allot.client.api import Client
from allot.client.kubeconfig import KubeconfigError, connection_from_environment
from allot.driver.attaching import ControllerOptions, running_controller
from allot.driver.classic import ClassicController, running_classic_controller
from allot.driver.controller import Controller
from allot.driver.driver import Driver
from allot.driver.plugin import DriverFailed, Options, running
from allot.driver.publishing import REPAIR_DELAY_S
from allot.driver.service import HEALTH_V1, HEALTH_V1ALPHA1, V1, V1BETA1
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.process.interpreter import tune
from allot.process.signals import stop_on_signals

EXIT_FAILED = 1
EXIT_USAGE = 2


def run(driver: Driver, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a driver until SIGTERM or SIGINT, then exit."""
    given = _parser(driver).parse_args(arguments)
    if given.describe:
        sys.stdout.write(msgspec.json.encode(describe(driver)).decode() + "\n")
        sys.exit(0)
    _log_to_stderr()
    if not given.node_name:
        _fail("no node name: set NODE_NAME or give --node-name", EXIT_USAGE)
    options = Options(
        node_name=given.node_name,
        kubelet_root=given.kubelet_root,
        registry_directory=given.registry_dir,
        data_directory=given.data_dir,
        cdi_directory=given.cdi_dir,
        pod_uid=given.pod_uid,
        boot_id_file=given.boot_id_file,
        address=given.bind_address,
        port=given.port,
        versions=tuple(given.versions.split(",")),
        health_versions=tuple(given.health_versions.split(",")),
        repair_delay_s=given.repair_delay,
    )
    where = f"ready on {options.node_name}"
    _run_until_signal(driver.name, where, partial(running, driver, options=options), given.kubeconfig)


def run_controller(controller: Controller, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a driver's controller until SIGTERM or SIGINT, then exit."""
    given = _controller_parser(controller).parse_args(arguments)
    _log_to_stderr()
    if given.leader_elect and not given.lease_namespace:
        _fail("--leader-elect: no namespace for the lease: set POD_NAMESPACE or give --lease-namespace", EXIT_USAGE)
    options = ControllerOptions(
        address=given.bind_address,
        port=given.port,
        lease_namespace=given.lease_namespace if given.leader_elect else "",
        identity=given.identity,
        repair_delay_s=given.repair_delay,
    )
    _run_until_signal(
        controller.name, "controller ready", partial(running_controller, controller, options=options), given.kubeconfig
    )


def run_classic_controller(controller: ClassicController, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a controller that allocates claims itself until SIGTERM or SIGINT, then exit. Run only one instance."""
    parser = argparse.ArgumentParser(description=f"The controller of the DRA driver {controller.name}.")
    _add_kubeconfig(parser)
    given = parser.parse_args(arguments)
    _log_to_stderr()
    start = partial(running_classic_controller, controller)
    _run_until_signal(controller.name, "controller ready", start, given.kubeconfig)


class _Running(Protocol):
    """A running driver or controller, with the address of its health and metrics."""

    @property
    def address(self) -> str:
        """Empty if they are not served."""


# From a client to the driver or controller that runs while the context is open.
_Start = Callable[..., AbstractAsyncContextManager[_Running]]


def _run_until_signal(name: str, ready: str, start: _Start, kubeconfig: Path | None) -> NoReturn:
    tune()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(name, ready, start, kubeconfig))
    except (DriverFailed, KubeconfigError) as error:
        _fail(str(error), EXIT_FAILED)
    except BaseExceptionGroup as group:
        known = group.subgroup(DriverFailed)
        if known is None:
            raise
        _fail(str(_first(known)), EXIT_FAILED)
    sys.exit(0)


def _parser(driver: Driver) -> argparse.ArgumentParser:
    environ = os.environ
    defaults = Options(node_name="")
    parser = argparse.ArgumentParser(description=f"The DRA driver {driver.name}.")
    add = parser.add_argument
    add("--node-name", default=environ.get("NODE_NAME", ""), help="this node [$NODE_NAME]")
    add("--pod-uid", default=environ.get("POD_UID", ""), help="the driver's pod, for rolling updates [$POD_UID]")
    add("--kubelet-root", type=_absolute, default=defaults.kubelet_root, help="the kubelet's directory [%(default)s]")
    add("--registry-dir", type=_absolute, help="where the kubelet looks for drivers [KUBELET_ROOT/plugins_registry]")
    add("--data-dir", type=_absolute, help="the driver's directory [KUBELET_ROOT/plugins/NAME]")
    add("--cdi-dir", type=_absolute, default=defaults.cdi_directory, help="where CDI specs are written [%(default)s]")
    add("--boot-id-file", type=Path, default=defaults.boot_id_file, help="the file that identifies a boot")
    add("--versions", default=f"{V1},{V1BETA1}", help="versions of the plugin API to serve [%(default)s]")
    add("--health-versions", default=f"{HEALTH_V1},{HEALTH_V1ALPHA1}", help="of the health API [%(default)s]")
    add("--describe", action="store_true", help="print the driver's description as JSON, and exit")
    _add_shared_options(parser)
    return parser


def _controller_parser(controller: Controller) -> argparse.ArgumentParser:
    environ = os.environ
    parser = argparse.ArgumentParser(description=f"The controller of the DRA driver {controller.name}.")
    add = parser.add_argument
    add("--leader-elect", action="store_true", help="elect a leader; other instances stand by")
    add("--lease-namespace", default=environ.get("POD_NAMESPACE", ""), help="where their lease is [$POD_NAMESPACE]")
    add("--identity", default=environ.get("POD_NAME", ""), help="the name of this instance [$POD_NAME, or generated]")
    _add_shared_options(parser)
    return parser


def _add_shared_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    defaults = ControllerOptions()
    _add_kubeconfig(parser)
    add("--bind-address", default=defaults.address, help="where to serve /healthz and /metrics [%(default)s]")
    add(
        "--port",
        type=int,
        default=defaults.port,
        help="the port for these; 0 takes a free one, -1 disables them [%(default)s]",
    )
    add(
        "--repair-delay",
        type=float,
        default=REPAIR_DELAY_S,
        help="seconds until others' changes are undone [%(default)s]",
    )


def _add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    text = "how to reach the API server [$KUBECONFIG, or in the cluster]"
    parser.add_argument("--kubeconfig", type=Path, default=None, help=text)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("allot.driver").setLevel(logging.INFO)


def _absolute(text: str) -> Path:
    """Other processes read the sockets and CDI files, so paths must be absolute."""
    return Path(text).absolute()


class Description(msgspec.Struct, frozen=True, rename="camel"):
    """A driver's description, without running it."""

    name: str
    reports_health: bool
    has_device_metadata: bool
    health_timeout_s: float
    cdi_kind: str
    # apiVersion and kind of its parameters.
    configs: tuple[tuple[str, str], ...] = ()
    # Whether its devices are published and attached by a controller.
    has_controller: bool = False


def describe(driver: Driver) -> Description:
    """What `--describe` prints."""
    return Description(
        name=driver.name,
        reports_health=driver.reports_health,
        has_device_metadata=driver.has_device_metadata,
        health_timeout_s=driver.health_timeout_s,
        cdi_kind=f"k8s.{driver.name}/{driver.cdi_class}",
        configs=tuple((kind.api_version, kind.kind) for kind in driver.configs),
        has_controller=driver.has_controller,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


async def _run(name: str, ready: str, start: _Start, kubeconfig: Path | None) -> None:
    # Imported only to run: it takes half of the SDK's import time, which `--describe` should not pay.
    from allot.client.http import HttpTransport

    clock, ids = SystemClock(), SystemIds()
    connection = connection_from_environment(os.environ, kubeconfig=kubeconfig)
    transport = HttpTransport(connection, clock, ids, environ=os.environ, user_agent=name)
    client = Client(transport)
    stop = asyncio.Event()
    stop_on_signals(stop)
    try:
        async with start(client=client, clock=clock, ids=ids) as runs:
            sys.stderr.write(f"{name}: {ready}")
            sys.stderr.write(f", health and metrics: {runs.address}\n" if runs.address else "\n")
            sys.stderr.flush()
            await stop.wait()
            sys.stderr.write(f"{name}: stopping\n")
    finally:
        await client.close()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fail(message: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"error: {message}\n")
    sys.exit(code)
