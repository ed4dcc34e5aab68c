"""For all tests: laws are about answers, never about seconds, which on a busy machine mean nothing; no test hangs, nor does what
cleans up after it; and tests that share a cluster run on one worker, in their order."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# Tests fork to become somebody else, and only a process with one thread may enter a user namespace: gRPC, where a test before used it,
# would start its own threads in the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

settings.register_profile("allot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("allot")

_ROOT = Path(__file__).parents[1]
_LIMIT = pytest.StashKey[Any]()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `--dist loadgroup` a module whose tests share something is one piece of work, so that its cluster is started once and tests
    find what those before them left; so is one of many quick tests. All others are pieces of their own."""
    return _ByWhatIsShared(config, log) if config.getvalue("dist") == "loadgroup" else None


class _ByWhatIsShared(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if _is_one_piece(module) else nodeid


@functools.cache
def _is_one_piece(module: str) -> bool:
    return module.startswith("tests/core/") or 'scope="module"' in (_ROOT / module).read_text()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember a test's limit."""
    item.stash[_LIMIT] = settings


def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]) -> None:
    """pytest-timeout stops its timer when a test fails, for debuggers: a fixture that then hangs would hold up all other tests."""
    limit = node.stash.get(_LIMIT, None)
    if limit is not None and call.when != "teardown" and not node.config.getoption("usepdb"):
        node.config.hook.pytest_timeout_set_timer(item=node, settings=limit)
