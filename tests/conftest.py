"""For all tests: laws are about answers, never about seconds, which on a busy machine mean nothing; no test hangs, nor does what
cleans up after it; and tests that share a cluster run on one worker, in their order."""

from __future__ import annotations

import compileall
import functools
import gc
import multiprocessing
import os
import re
import sys
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# Tests fork to become somebody else, and only a process with one thread may enter a user namespace: gRPC, where a test before used it,
# would start its own threads in the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# kubectl, of which tests start thousands, spends a fifth of its time on collecting garbage.
os.environ.setdefault("GOGC", "400")

settings.register_profile("allot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("allot")

_ROOT = Path(__file__).parents[1]
_LIMIT = pytest.StashKey[Any]()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `--dist loadgroup` tests that share something are one piece of work: a module with a cluster of its own, so that tests find
    what those before them left; those that use one of the servers or clusters that each worker starts at most once, so that not all
    workers start all of them; and a module of many quick tests. All others are pieces of their own."""
    return _ByWhatIsShared(config, log) if config.getvalue("dist") == "loadgroup" else None


class _ByWhatIsShared(LoadScopeScheduling):
    """Pieces in the order of the collection. What is done is forgotten: the plugin's own scheduler goes through everything that a worker
    ever did at the end of every test."""

    def schedule(self) -> None:
        """Called once the workers have collected, and once more for each that takes the place of one that died."""
        if self.collection is None:
            self.config.option.loadscopereorder = False
            collected = next(iter(self.registered_collections.values()))
            self._positions = {nodeid: position for position, nodeid in enumerate(collected)}
        super().schedule()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:  # noqa: ARG002 - as in the plugin
        """A worker has done a test, and may want more."""
        nodeid = self.registered_collections[node][item_index]
        piece = self._split_scope(nodeid)
        left = self.assigned_work[node][piece]
        del left[nodeid]
        if not left:
            del self.assigned_work[node][piece]
        self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        piece, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][piece] = tests
        node.send_runtest_some([self._positions[nodeid] for nodeid in tests])

    def _split_scope(self, nodeid: str) -> str:
        return _piece(nodeid)


# A version of kubectl and a store, as tests/e2e/conftest.py pairs them.
_SETUP = re.compile(r"\b1\.\d+-(?:memory|sqlite|etcd)\b")


def _piece(nodeid: str) -> str:
    module = nodeid.partition("::")[0]
    if shared := _shared_by(module):
        return shared
    setup = _SETUP.search(nodeid) if module.startswith("tests/e2e/") else None
    return f"tests/e2e with {setup.group()}" if setup else nodeid


@functools.cache
def _shared_by(module: str) -> str:
    """What the tests of a module have in common with each other, or with those of other modules; nothing if each is alone."""
    if module.startswith("tests/e2e/scenarios/"):
        return "tests/e2e/scenarios"
    text = (_ROOT / module).read_text()
    if module.startswith("tests/core/") or 'scope="module"' in text:
        return module
    if module.startswith("tests/e2e/") and re.search(r"\b(?:user|user_anywhere|three_nodes): ", text):
        # Much of it is waiting: two workers.
        return f"tests/e2e on three nodes, part {zlib.crc32(module.encode()) % 2}"
    return ""


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the workers start: each of them would compile everything that is new, all at the same time."""
    if sys.dont_write_bytecode:
        return
    global _compiled_for
    _compiled_for = config
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
        pool.map(
            _compile, (path for folder in ("src", "tests") for path in (_ROOT / folder).rglob("*.py")), chunksize=8
        )


# Children inherit it: it cannot be sent to them.
_compiled_for: pytest.Config


def _compile(path: Path) -> None:
    """As the interpreter would, or, where assertions tell what they compared, as pytest would."""
    if not (path.name.startswith("test_") or path.name == "conftest.py"):
        compileall.compile_file(path, quiet=2)
        return
    state = _compiled_for.stash[rewrite.assertstate_key]
    compiled = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, compiled) is None and rewrite.try_makedirs(compiled.parent):
        source, code = rewrite._rewrite_test(path, _compiled_for)
        rewrite._write_pyc(state, code, source, compiled)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember a test's limit."""
    item.stash[_LIMIT] = settings


def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]) -> None:
    """pytest-timeout stops its timer when a test fails, for debuggers: a fixture that then hangs would hold up all other tests."""
    limit = node.stash.get(_LIMIT, None)
    if limit is not None and call.when != "teardown" and not node.config.getoption("usepdb"):
        node.config.hook.pytest_timeout_set_timer(item=node, settings=limit)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Pieces with the most slow tests first, so that at the end, when one worker after the other runs dry, only quick ones are left."""
    if config.getoption("loadgroup", False):
        slow = Counter(_piece(item.nodeid) for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: -slow[_piece(item.nodeid)])


def pytest_collection_finish() -> None:
    """Sixteen thousand tests stay as long as the process: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
