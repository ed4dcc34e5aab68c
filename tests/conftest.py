"""For all tests: laws are about answers, never about seconds, which on a busy machine mean nothing; no test hangs, nor does what
cleans up after it; and tests that share a cluster run on one worker, in their order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Tests fork to become somebody else, and only a process with one thread may enter a user namespace: gRPC, where a test before used it,
# would start its own threads in the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

settings.register_profile("allot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("allot")

_LIMIT = pytest.StashKey[Any]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup` a module is one piece of work, so that its cluster is started once and tests find what those before
    them left; slow tests that share nothing are pieces of their own."""
    for item in items:
        if _shares(item) or item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares(item: pytest.Item) -> bool:
    found: Mapping[str, Any] = item._fixtureinfo.name2fixturedefs
    return any(definitions[-1].scope in ("module", "package") for definitions in found.values())


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember a test's limit."""
    item.stash[_LIMIT] = settings


def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]) -> None:
    """pytest-timeout stops its timer when a test fails, for debuggers: a fixture that then hangs would hold up all other tests."""
    limit = node.stash.get(_LIMIT, None)
    if limit is not None and call.when != "teardown" and not node.config.getoption("usepdb"):
        node.config.hook.pytest_timeout_set_timer(item=node, settings=limit)
