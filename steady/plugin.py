"""What a run of `make steady` adds to pytest: it runs only the tests that are asked for, and says how each one ended, also if it is interrupted.

Run and plugin meet in a folder, which an environment variable names.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import pytest

from steady.process_starts import Recorder

FOLDER = "ALLOT_STEADY"
# In that folder: the tests to run; what the run has to say; notes on processes.
SELECTION, REPORT, NOTES = "selection.json", "report.json", "notes"
_MESSAGE_LENGTH_MAX = 200
# So many tests are lost at most if even pytest's first process is killed.
_TESTS_PER_WRITE = 50


def file_of(test: str) -> str:
    """The file of a test, as pytest names both."""
    return test.partition("::")[0]


class Report(msgspec.Struct):
    """What became of the tests of a run, so far."""

    # By test that has ended: how long it took, its fixtures included.
    seconds: dict[str, float] = {}
    # By test: what it said.
    failed: dict[str, str] = {}
    # Files whose tests have all ended.
    files: set[str] = set()


class Reporter:
    """Hears, in the first of pytest's processes, how tests end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._report = Report()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        # By file: tests that have not ended.
        self._left: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All tests are known."""
        self._left.update(file_of(item.nodeid) for item in session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has ended. The end of a test whose process died is never told; its file then counts as not done."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._report.failed.setdefault(report.nodeid, _message(report))
        if report.when == "teardown" or report.failed:
            self._report.seconds[report.nodeid] = self._seconds[report.nodeid]
        if report.when == "teardown":
            self._left[file := file_of(report.nodeid)] -= 1
            if not self._left[file]:
                self._report.files.add(file)
        if report.failed or len(self._report.seconds) % _TESTS_PER_WRITE == 0:
            self._write()

    def pytest_sessionfinish(self) -> None:
        """Whatever the end."""
        self._write()

    def _write(self) -> None:
        # Workers hear of their own tests, too.
        if os.getpid() == self._process:
            new = self._path.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(self._report))
            new.replace(self._path)


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr)
    return next(iter(text.splitlines()), "no message")[:_MESSAGE_LENGTH_MAX]


class Selection(msgspec.Struct):
    """Which tests run. The order stays: tests of a module may find what those before them left."""

    # None: all.
    tests: frozenset[str] | None
    # Files to leave out.
    done: frozenset[str]

    def has(self, test: str) -> bool:
        """Whether it runs."""
        return (self.tests is None or test in self.tests) and file_of(test) not in self.done


class Selector:
    """Leaves out all other tests."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Before anything is said about the order."""
        selection = self._selection
        wanted = {test for test in selection.tests or () if selection.has(test)}
        if lost := sorted(wanted.difference(item.nodeid for item in items)):
            raise pytest.UsageError(f"{len(lost)} tests that start processes are not there any more: {lost[:3]}")
        config.hook.pytest_deselected(items=[item for item in items if not selection.has(item.nodeid)])
        items[:] = [item for item in items if selection.has(item.nodeid)]


def pytest_configure(config: pytest.Config) -> None:
    """Only in a run of `make steady`."""
    if not (name := os.environ.get(FOLDER)):
        return
    folder = Path(name)
    selection = msgspec.json.decode((folder / SELECTION).read_bytes(), type=Selection)
    config.pluginmanager.register(Selector(selection))
    config.pluginmanager.register(Reporter(folder / REPORT))
    config.pluginmanager.register(Recorder(folder / NOTES))
