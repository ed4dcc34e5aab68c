"""Runs a workload in its own process, so that it does not inherit memory, caches or failures of the previous one."""

from __future__ import annotations

import asyncio
import cProfile
import logging
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from allot.bench.load import Progress, TooSlow
from allot.bench.run import Measurement, run_workload
from allot.bench.workloads import Workload
from allot.process.interpreter import tune

_PREFIX = "allot-bench-"
_END_S = 10.0


class Failed(Exception):
    """A workload that did not finish, with the reason."""


class Options:
    """How to run."""

    def __init__(self, *, data_dir: Path | None, timeout_s: float, profile: Path | None) -> None:
        self.data_dir = data_dir
        self.timeout_s = timeout_s
        self.profile = profile


def run_in_child(workload: Workload, options: Options, progress: Progress) -> Measurement:
    """The outcome; Failed if there is none."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_main, args=(workload, options, sending), name=f"bench {workload.full_name}")
    child.start()
    sending.close()
    try:
        while True:
            message = receiving.recv()
            if isinstance(message, Measurement):
                return message
            if isinstance(message, str):
                raise Failed(message)
            progress(*message)
    except EOFError:
        child.join(_END_S)
        raise Failed(f"the process of the workload ended with code {child.exitcode}") from None
    finally:
        child.join(_END_S)
        if child.is_alive():
            child.kill()
            child.join()
        receiving.close()


def _main(workload: Workload, options: Options, sending: Connection) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    tune()
    try:
        sending.send(_in_directory(workload, options, lambda *told: sending.send(told)))
    except* TooSlow as failed:
        sending.send(_first(failed))
    except* OSError as failed:
        sending.send(_first(failed))
    finally:
        sending.close()


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


def _in_directory(workload: Workload, options: Options, progress: Progress) -> Measurement:
    if options.data_dir is not None:
        directory = options.data_dir / workload.full_name.replace("/", "-")
        directory.mkdir(mode=0o700, parents=True)
        return _profiled(workload, directory, options, progress)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made:
        return _profiled(workload, Path(made), options, progress)


def _profiled(workload: Workload, directory: Path, options: Options, progress: Progress) -> Measurement:
    def run() -> Measurement:
        return _run_loop(run_workload(workload, directory, progress, options.timeout_s))

    if options.profile is None:
        return run()
    profile = cProfile.Profile()
    try:
        return profile.runcall(run)
    finally:
        profile.dump_stats(options.profile)


def _run_loop(work: Coroutine[Any, Any, Measurement]) -> Measurement:
    run: Callable[[Coroutine[Any, Any, Measurement]], Measurement]
    if sys.platform == "win32":
        run = asyncio.run
    else:
        import uvloop

        run = uvloop.run
    return run(work)
