"""Tests in several processes at once: `pytest -n N`.

The processes are forked when everything is collected: sixteen thousand tests and the modules that they need are read once, and not once
in each process, as pytest-xdist does. Each process gets pieces of work, one after the other, and tells what became of every test; the
first process counts and prints, as if it had run them.

Threads and event loops do not survive a fork: only tests and their fixtures may start them, not modules.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Any

import pytest

# Which of the processes this is, for what they must not share.
NUMBER = "ALLOT_TEST_WORKER"

# What a process tells, with a value.
_MORE, _BEGIN, _REPORT, _WARNING = "more", "begin", "report", "warning"


def add_option(parser: pytest.Parser) -> None:
    """`-n`, which is what people know it by."""
    group = parser.getgroup("workers", "tests in several processes")
    # pytest keeps small letters for itself; this one is pytest-xdist's.
    group._addoption(
        "-n",
        "--workers",
        type=_count,
        default=0,
        metavar="N",
        help="processes to run tests in; auto: one per processor",
    )


def _count(text: str) -> int:
    return os.cpu_count() or 1 if text == "auto" else int(text)


def run_pieces(session: pytest.Session, count: int, pieces: Iterable[Sequence[int]]) -> None:
    """Run all tests. pieces: numbers of tests that one process has to run one after the other, in the order in which they are given away."""
    assert threading.active_count() == 1, (
        f"a module has started a thread when it was collected: {threading.enumerate()}"
    )
    _Run(session, pieces).run(count)


class _Worker:
    """A process as the first one sees it."""

    def __init__(self, number: int, process: int, connection: Connection) -> None:
        self.number = number
        self.process = process
        self.connection = connection
        # Tests that it has been given, and not begun.
        self.left: deque[int] = deque()
        self.running: int | None = None
        # As pytest knows the workers of pytest-xdist: a name, and a line above each failure.
        self.gateway = SimpleNamespace(id=f"w{number}")
        self._workerinfocache = ""


class _Run:
    """All pieces, and the processes that run them."""

    def __init__(self, session: pytest.Session, pieces: Iterable[Sequence[int]]) -> None:
        self._session = session
        self._config = session.config
        self._pieces = deque(pieces)
        self._workers: dict[Connection, _Worker] = {}
        self._numbers = iter(range(sys.maxsize))

    def run(self, count: int) -> None:
        # Before it is shared: folders of tests are beneath.
        _folders(self._config).getbasetemp()
        try:
            for _ in range(min(count, len(self._pieces))):
                self._start()
            while self._workers:
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    self._hear(self._workers[connection])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            # Those that are left know by this that nobody hears them any more.
            for connection in self._workers:
                connection.close()
            for worker in self._workers.values():
                os.waitpid(worker.process, 0)

    def _start(self) -> None:
        here, there = Pipe()
        number = next(self._numbers)
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            for connection in (here, *self._workers):
                connection.close()
            _live(self._session, there, number)
        there.close()
        self._workers[here] = _Worker(number, process, here)

    def _hear(self, worker: _Worker) -> None:
        try:
            what, value = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._ended(worker)
            return
        match what:
            case "more":
                piece = self._pieces.popleft() if self._pieces else ()
                worker.left.extend(piece)
                worker.connection.send(piece)
            case "begin":
                worker.running = value
                worker.left.remove(value)
            case "report":
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=value)
                self._report(worker, report)
            case "warning":
                self._config.hook.pytest_warning_recorded.call_historic(kwargs=value)

    def _report(self, worker: _Worker, report: Any) -> None:
        report.node = worker
        if report.when == "teardown":
            worker.running = None
        self._config.hook.pytest_runtest_logreport(report=report)

    def _ended(self, worker: _Worker) -> None:
        """Of itself, or in the middle of a test: then that one has failed, and another process does the rest."""
        del self._workers[worker.connection]
        worker.connection.close()
        _, status = os.waitpid(worker.process, 0)
        code = os.waitstatus_to_exitcode(status)
        if worker.running is not None:
            item = self._session.items[worker.running]
            told = f"the process that ran this test ended with {code}"
            self._report(worker, pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call"))
        elif code:
            raise RuntimeError(f"worker {worker.number} ended with {code} between two tests")
        if worker.left:
            self._pieces.appendleft(tuple(worker.left))
            self._start()


def _folders(config: pytest.Config) -> Any:
    return config._tmp_path_factory  # type: ignore[attr-defined]


# --- in a process ---


def _live(session: pytest.Session, connection: Connection, number: int) -> None:
    """Run what is given until there is no more; never returns."""
    code = 1
    try:
        _become_worker(session.config, number)
        teller = _Teller(session.config, connection.send)
        session.config.pluginmanager.register(teller)
        teller.is_heard = True
        _work(session, connection)
        code = 0
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        # The first process has ended, or is about to. What fixtures have started ends as well.
        session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        # Not by an exception, which would end the work of the first process here.
        os._exit(code)


def _become_worker(config: pytest.Config, number: int) -> None:
    """What the first process has open and a second one must not share."""
    os.environ[NUMBER] = str(number)
    folders = _folders(config)
    folders._basetemp = folders.getbasetemp() / f"w{number}"
    folders._basetemp.mkdir(mode=0o700)
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    config.get_terminal_writer()._file = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open as long as the process


def _work(session: pytest.Session, connection: Connection) -> None:
    upcoming: deque[int] = deque()

    def more() -> None:
        connection.send((_MORE, None))
        upcoming.extend(connection.recv())

    more()
    while upcoming:
        number = upcoming.popleft()
        if not upcoming:
            # What comes next says which fixtures are still needed.
            more()
        connection.send((_BEGIN, number))
        item = session.items[number]
        nextitem = session.items[upcoming[0]] if upcoming else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)


class _Teller:
    """A plugin that tells the first process what becomes of tests."""

    def __init__(self, config: pytest.Config, send: Callable[[tuple[str, Any]], None]) -> None:
        self._config = config
        self._send = send
        # What was recorded before is told to every new plugin.
        self.is_heard = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """How a part of a test ended."""
        self._send((_REPORT, self._config.hook.pytest_report_to_serializable(config=self._config, report=report)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """A warning that is not an error, as text: not every one can be sent."""
        if not self.is_heard:
            return
        text = UserWarning(f"{warning_message.category.__name__}: {warning_message.message}")
        sent = warnings.WarningMessage(text, UserWarning, warning_message.filename, warning_message.lineno)
        self._send((_WARNING, {"warning_message": sent, "when": when, "nodeid": nodeid, "location": location}))
