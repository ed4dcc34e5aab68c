"""For all tests: laws are about answers, never about seconds, which on a busy machine mean nothing; and no test hangs, nor does what
cleans up after it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("allot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("allot")

_LIMIT = pytest.StashKey[Any]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Remember a test's limit."""
    item.stash[_LIMIT] = settings


def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]) -> None:
    """pytest-timeout stops its timer when a test fails, for debuggers: a fixture that then hangs would hold up all other tests."""
    limit = node.stash.get(_LIMIT, None)
    if limit is not None and call.when != "teardown" and not node.config.getoption("usepdb"):
        node.config.hook.pytest_timeout_set_timer(item=node, settings=limit)
