"""Random sequences of calls: the store and its watches against a dictionary and a list."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from allot.store.etcd import EtcdStore
from allot.store.etcd_client import EtcdOptions
from allot.store.memory import MemoryStore
from allot.store.port import (
    Compacted,
    Event,
    KeyExists,
    KeyNotFound,
    RevisionConflict,
    Store,
    Watch,
)
from allot.store.sqlite import SqliteStore
from allot.store.timeline import Limits
from etcd_server import EtcdServer
from waiting import WAIT_S

KEYS = [f"/registry/{kind}/{name}" for kind in ("pods/one", "pods/two", "nodes") for name in ("a", "b", "ab")]
PREFIXES = ["/registry/", "/registry/pods/", "/registry/pods/one/", "/registry/pods/one/a", "/registry/nodes/"]
LIMITS = Limits(buffer_max=3, progress_s=0.01)

_prefixes = itertools.count()
Change = tuple[str, str, int, int]


def document(number: int) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"n": number}}


class StoreMachine(RuleBasedStateMachine):
    """The model: the present state, all changes, and for each watch how far it was read."""

    def make(self) -> Store:
        raise NotImplementedError

    # Whether closing and opening finds everything again.
    durable = False

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.store = self.make()
        self.runner.run(self.store.open())
        self.start = self.revision = self.runner.run(self.store.revision())
        self.compacted = 0
        self.present: dict[str, tuple[int, int]] = {}
        self.states: dict[int, dict[str, tuple[int, int]]] = {self.revision: {}}
        self.changes: list[Change] = []
        self.watches: list[tuple[Watch, str, int]] = []

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for watch, _, _ in self.watches:
                self.runner.run(watch.close())
            self.runner.run(self.store.close())
            self.runner.close()

    def changed(self, type_: str, key: str, number: int, revision: int) -> None:
        assert revision > self.revision
        self.revision = revision
        if type_ == "DELETED":
            del self.present[key]
        else:
            self.present[key] = (number, revision)
        self.states[revision] = dict(self.present)
        self.changes.append((type_, key, number, revision))

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 9))
    def create(self, key: str, number: int) -> None:
        try:
            entry = self.runner.run(self.store.create(key, document(number)))
        except KeyExists:
            assert key in self.present
            return
        assert key not in self.present
        self.changed("ADDED", key, number, entry.revision)

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 9), stale=st.booleans())
    def update(self, key: str, number: int, stale: bool) -> None:
        expected = self.present.get(key, (0, self.revision))[1] - stale
        try:
            entry = self.runner.run(self.store.update(key, document(number), expected))
        except KeyNotFound:
            assert key not in self.present
            return
        except RevisionConflict as conflict:
            assert stale
            assert (conflict.entry.object["spec"]["n"], conflict.entry.revision) == self.present[key]
            return
        assert key in self.present
        assert not stale
        self.changed("MODIFIED", key, number, entry.revision)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        number, expected = self.present.get(key, (0, self.revision))
        try:
            entry = self.runner.run(self.store.delete(key, expected))
        except KeyNotFound:
            assert key not in self.present
            return
        assert entry.object["spec"]["n"] == number
        self.changed("DELETED", key, number, entry.revision)

    @rule(keys=st.lists(st.sampled_from(KEYS), unique=True, min_size=2))
    def create_at_once(self, keys: list[str]) -> None:
        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(self.store.create(key, document(5)) for key in keys), return_exceptions=True)

        done = [
            (entry.revision, key)
            for key, entry in zip(keys, self.runner.run(all_of_them()), strict=True)
            if not isinstance(entry, KeyExists)
        ]
        for revision, key in sorted(done):
            self.changed("ADDED", key, 5, revision)

    @rule(prefix=st.sampled_from(PREFIXES), limit=st.integers(0, 4), back=st.integers(0, 5))
    def list(self, prefix: str, limit: int, back: int) -> None:
        revision = sorted(self.states)[-1 - min(back, len(self.states) - 1)]
        wanted = sorted((key, *value) for key, value in self.states[revision].items() if key.startswith(prefix))
        found: list[tuple[str, int, int]] = []
        continue_key = ""
        try:
            while True:
                page = self.runner.run(
                    self.store.list(prefix, limit=limit, continue_key=continue_key, revision=revision if back else None)
                )
                found += [(entry.key, entry.object["spec"]["n"], entry.revision) for entry in page.entries]
                assert page.remaining == len(wanted) - len(found)
                continue_key = page.continue_key
                if not continue_key:
                    break
        except Compacted:
            assert revision < self.compacted
            return
        assert not back or revision >= self.compacted
        assert found == wanted

    @rule(prefix=st.sampled_from(PREFIXES), back=st.integers(0, 8))
    def watch(self, prefix: str, back: int) -> None:
        if len(self.watches) < 5:
            after = sorted(self.states)[-1 - min(back, len(self.states) - 1)]
            self.watches.append((self.store.watch(prefix, after), prefix, after))

    @precondition(lambda self: self.watches)
    @rule(data=st.data(), most=st.integers(1, 20))
    def read(self, data: st.DataObject, most: int) -> None:
        index = data.draw(st.integers(0, len(self.watches) - 1))
        watch, prefix, after = self.watches.pop(index)
        wanted = [change for change in self.changes if change[3] > after and change[1].startswith(prefix)][:most]

        async def read_on() -> list[Change]:
            found: list[Change] = []
            async with asyncio.timeout(WAIT_S):
                while len(found) < len(wanted):
                    item = await anext(aiter(watch))
                    if isinstance(item, Event):
                        found.append((item.type.value, item.entry.key, item.entry.object["spec"]["n"], item.revision))
            return found

        try:
            assert self.runner.run(read_on()) == wanted
        except Compacted:
            assert after < self.compacted
            self.runner.run(watch.close())
            return
        self.watches.insert(index, (watch, prefix, wanted[-1][3] if wanted else after))

    @rule(back=st.integers(0, 3))
    def compact(self, back: int) -> None:
        revision = sorted(self.states)[-1 - min(back, len(self.states) - 1)]
        self.runner.run(self.store.compact(revision))
        self.compacted = max(self.compacted, revision)

    @precondition(lambda self: self.durable)
    @rule()
    def restart(self) -> None:
        self.runner.run(self.store.close())
        self.store = self.make()
        self.runner.run(self.store.open())
        # What was not read yet is read from the store that was opened again.
        self.watches = [(self.store.watch(prefix, after), prefix, after) for _, prefix, after in self.watches]

    @invariant()
    def every_key_is_as_expected(self) -> None:
        if not hasattr(self, "store"):
            return

        async def read() -> dict[str, tuple[int, int]]:
            found = {key: await self.store.get(key) for key in KEYS}
            return {
                key: (entry.object["spec"]["n"], entry.revision) for key, entry in found.items() if entry is not None
            }

        assert self.runner.run(read()) == self.present


FAST = settings(max_examples=25, stateful_step_count=30, derandomize=True, suppress_health_check=list(HealthCheck))
FEW = settings(FAST, max_examples=10)


@pytest.mark.slow
def test_memory_agrees_with_the_model() -> None:
    class MemoryMachine(StoreMachine):
        def make(self) -> Store:
            return MemoryStore(LIMITS)

    run_state_machine_as_test(MemoryMachine, settings=FAST)


@pytest.mark.slow
def test_sqlite_agrees_with_the_model_also_over_restarts() -> None:
    class SqliteMachine(StoreMachine):
        durable = True

        def make(self) -> Store:
            if not hasattr(self, "folder"):
                self.folder = tempfile.TemporaryDirectory()
            return SqliteStore(Path(self.folder.name) / "store.db", LIMITS, decoded_bytes_max=200)

        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "folder"):
                self.folder.cleanup()

    run_state_machine_as_test(SqliteMachine, settings=FAST)


@pytest.mark.slow
def test_etcd_agrees_with_the_model_also_over_new_connections(etcd_server: EtcdServer) -> None:
    class EtcdMachine(StoreMachine):
        durable = True

        def make(self) -> Store:
            if not hasattr(self, "prefix"):
                self.prefix = f"/model{next(_prefixes)}"
            options = EtcdOptions(servers=(etcd_server.address,), prefix=self.prefix, progress_s=0.05)
            return EtcdStore(options, decoded_bytes_max=200)

    run_state_machine_as_test(EtcdMachine, settings=FEW)
