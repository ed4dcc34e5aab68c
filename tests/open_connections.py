"""A test that leaves connections open is the one that fails. The garbage collector finds them some time later, and pytest would blame
whatever test runs then."""

from __future__ import annotations

import functools
import os
import weakref
from asyncio import selector_events
from collections.abc import Generator
from typing import Any

import pytest

_transports: weakref.WeakSet[Any] = weakref.WeakSet()


def _remember_transports() -> None:
    transport: Any = selector_events._SelectorTransport  # type: ignore[attr-defined]
    initialize = transport.__init__

    @functools.wraps(initialize)
    def remembering(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        self.opened_by = os.environ.get("PYTEST_CURRENT_TEST", "")
        _transports.add(self)

    transport.__init__ = remembering
    tell = transport.__repr__

    @functools.wraps(tell)
    def telling(self: Any) -> str:
        # Where it is found by the garbage collector alone, this is all that is told.
        return f"{tell(self)}, opened by {getattr(self, 'opened_by', '')}"

    transport.__repr__ = telling


_remember_transports()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail if a loop has ended before its connections were closed."""
    result = yield
    left = [each for each in _transports if each._sock is not None and (each._loop is None or each._loop.is_closed())]
    told = "\n".join(f"{each!r}, of {each._protocol!r}" for each in left)
    for each in left:
        # It is told now.
        each._sock.close()
        each._sock = None
    if left:
        pytest.fail(f"{item.nodeid} left {len(left)} connections open when its loop ended:\n{told}", pytrace=False)
    return result
