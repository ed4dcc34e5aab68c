"""What a run of `make steady` adds to pytest: it runs only the tests that are asked for, and says how each one ended.

Run and plugin meet in a folder, which an environment variable names.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from steady.process_starts import Recorder

FOLDER = "ALLOT_STEADY"
# In that folder: the tests to run, if not all; what the run has to say; notes on processes.
SELECTED, REPORT, NOTES = "selected.json", "report.json", "notes"
_MESSAGE_LENGTH_MAX = 200


class Report(msgspec.Struct):
    """What became of the tests of a run."""

    # By test, its fixtures included.
    seconds: dict[str, float]
    # By test: what it said.
    failed: dict[str, str]


class Reporter:
    """Hears, in the first of pytest's processes, how tests end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has ended."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.setdefault(report.nodeid, _message(report))

    def pytest_sessionfinish(self) -> None:
        """Whatever the end."""
        self._path.write_bytes(msgspec.json.encode(Report(self._seconds, self._failed)))


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr)
    return next(iter(text.splitlines()), "no message")[:_MESSAGE_LENGTH_MAX]


class Selection:
    """Leaves out all other tests. The order stays: tests of a module may find what those before them left."""

    def __init__(self, tests: frozenset[str]) -> None:
        self._tests = tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Before anything is said about the order."""
        if lost := sorted(self._tests.difference(item.nodeid for item in items)):
            raise pytest.UsageError(f"{len(lost)} tests that start processes are not there any more: {lost[:3]}")
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._tests])
        items[:] = [item for item in items if item.nodeid in self._tests]


def pytest_configure(config: pytest.Config) -> None:
    """Only in a run of `make steady`."""
    if not (name := os.environ.get(FOLDER)):
        return
    folder = Path(name)
    if (selected := folder / SELECTED).exists():
        tests = msgspec.json.decode(selected.read_bytes(), type=frozenset[str])
        config.pluginmanager.register(Selection(tests))
    config.pluginmanager.register(Reporter(folder / REPORT))
    config.pluginmanager.register(Recorder(folder / NOTES))
