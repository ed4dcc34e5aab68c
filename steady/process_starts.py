"""Which tests start processes, found out while they run, so that no one has to keep a list.

A test counts if a process starts while it runs, or in the set-up or at the end of a fixture that it uses, whichever test that fixture
was set up for: the server of a module is started by the first of its tests only. Fixtures with parameters count by parameter: a store
in etcd is a process, one in memory is not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"})

# What a note says: a test or a fixture has started a process; a test has used fixtures.
_TEST, _FIXTURE, _USES = "test", "fixture", "uses"


class Recorder:
    """A plugin for pytest that knows which test runs and which fixtures are set up or ended, and hears of every process that starts."""

    def __init__(self, notes: Path) -> None:
        # Open for good: workers are forked from here, and tests become users who may not open it.
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process = 0
        self._test = ""
        self._fixtures: list[str] = []
        self._noted: set[str] = set()
        sys.addaudithook(self._hear)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """The test that is about to run."""
        self._process, self._test = os.getpid(), item.nodeid
        try:
            return (yield)
        finally:
            self._test = ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """A fixture that is about to be set up. Finalizers run in reverse order: its end is between the two that are added here."""
        name = _name(fixturedef, request._pyfuncitem)
        fixturedef.addfinalizer(partial(self._leave, name))
        self._enter(name)
        try:
            return (yield)
        finally:
            self._leave(name)
            fixturedef.addfinalizer(partial(self._enter, name))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """All fixtures of a test are known when it has run: it may have asked for some by name."""
        if request := getattr(item, "_request", None):
            used = sorted(_name(fixture, item) for fixture in request._fixture_defs.values())
            self._note(_USES, [item.nodeid, used])
        return (yield)

    def _enter(self, fixture: str) -> None:
        self._fixtures.append(fixture)

    def _leave(self, fixture: str) -> None:
        assert self._fixtures.pop() == fixture

    def _hear(self, event: str, _arguments: tuple[Any, ...]) -> None:
        # Not in the children that tests fork, which are about to become something else.
        if event not in EVENTS or not self._test or os.getpid() != self._process:
            return
        for fixture in self._fixtures:
            self._note_once(_FIXTURE, fixture)
        if not self._fixtures:
            self._note_once(_TEST, self._test)

    def _note_once(self, kind: str, name: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._note(kind, name)

    def _note(self, kind: str, value: object) -> None:
        os.write(self._notes, json.dumps([kind, value]).encode() + b"\n")


def _name(fixture: pytest.FixtureDef[Any], item: pytest.Item) -> str:
    """A fixture with the value of its parameter for a test; the name alone may mean another one in each module."""
    indices: dict[str, int] = getattr(getattr(item, "callspec", None), "indices", {})
    return f"{fixture.baseid}::{fixture.argname}::{indices.get(fixture.argname, '')}"


def read_notes(notes: Path) -> set[str]:
    """The tests that start processes, as a run has noted."""
    said: dict[str, list[Any]] = {_TEST: [], _FIXTURE: [], _USES: []}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        kind, value = json.loads(line)
        said[kind].append(value)
    fixtures = frozenset(said[_FIXTURE])
    return {*said[_TEST], *(test for test, used in said[_USES] if not fixtures.isdisjoint(used))}
