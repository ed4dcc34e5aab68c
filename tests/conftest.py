"""For all tests: laws are about answers, never about seconds, which on a busy machine mean nothing; no test hangs, nor does what
cleans up after it; a test that leaves connections open fails; and tests that share a cluster run on one worker, in their order."""

from __future__ import annotations

import compileall
import functools
import gc
import json
import multiprocessing
import os
import re
import sys
import zlib
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import warm_starts
import workers
from open_connections import pytest_runtest_teardown as pytest_runtest_teardown

# Tests fork to become somebody else, and only a process with one thread may enter a user namespace: gRPC, where a test before used it,
# would start its own threads in the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# kubectl, of which tests start thousands, spends a fifth of its time on collecting garbage.
os.environ.setdefault("GOGC", "400")

warm_starts.install()

settings.register_profile("allot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("allot")

_ROOT = Path(__file__).parents[1]
# A file: how long tests took, by their name; `make steady` writes it.
_SECONDS = "ALLOT_TEST_SECONDS"
_LIMIT = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`-n N`."""
    workers.add_option(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Tests that share something are one piece of work: a module with a cluster of its own, so that tests find what those before them
    left; those that use one of the servers or clusters that each worker starts at most once, so that not all workers start all of
    them; and a module of many quick tests. All others are pieces of their own."""
    count = session.config.getoption("workers")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    pieces: dict[str, list[int]] = {}
    for number, item in enumerate(session.items):
        pieces.setdefault(_piece(item.nodeid), []).append(number)
    # Hypothesis reads all modules for constants to try, and writes down what it finds: once, and not in each worker, in the time of a test.
    providers._get_local_constants()
    workers.run_pieces(session, count, pieces.values())
    return True


# A version of kubectl and a store, as tests/e2e/conftest.py pairs them.
_SETUP = re.compile(r"\b1\.\d+-(?:memory|sqlite|etcd)\b")


def _piece(nodeid: str) -> str:
    module = nodeid.partition("::")[0]
    if shared := _shared_by(module):
        return shared
    if module == "tests/explain_corpus/test_corpus.py":
        # What is asked about a case is answered once.
        return f"{module}[{nodeid.partition('[')[2]}"
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Where several processors are to be used, they compile what is new: one alone would take twice as long, and the first commands
    that tests start would do it again, each."""
    if sys.dont_write_bytecode or not session.config.getoption("workers"):
        return
    global _compiled_for
    _compiled_for = session.config
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
    """Pieces that take longest first, so that at the end, when one worker after the other runs dry, only quick ones are left. Where no
    one knows how long tests take, slow ones are taken to be alike."""
    if not config.getoption("workers"):
        return
    known: dict[str, float] = json.loads(Path(path).read_text()) if (path := os.environ.get(_SECONDS)) else {}
    pieces: defaultdict[str, float] = defaultdict(float)
    for item in items:
        pieces[_piece(item.nodeid)] += known.get(item.nodeid, 1.0 if item.get_closest_marker("slow") else 0.0)
    items.sort(key=lambda item: -pieces[_piece(item.nodeid)])


def pytest_collection_finish() -> None:
    """Sixteen thousand tests stay as long as the process: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()
