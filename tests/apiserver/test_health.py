"""Health checks that fail."""

from __future__ import annotations

import errno
import logging

import pytest

from allot.apiserver.nonresource.health import StartHooks, check_log, report


async def fails() -> str | None:
    return "broken"


async def works() -> str | None:
    return None


async def test_one_that_fails_is_named_and_may_be_left_out() -> None:
    noted: list[tuple[str, bool]] = []
    checks = (("good", works), ("bad", fails))
    told = await report("livez", checks, (), lambda name, is_healthy: noted.append((name, is_healthy)))
    assert not told.is_healthy
    assert told.text == "[+]good ok\n[-]bad failed: broken\nlivez check failed\n"
    assert noted == [("good", True), ("bad", False)]
    assert (await report("livez", checks, ("bad",), lambda *_: None)).is_healthy


async def test_a_step_of_the_start_is_healthy_when_it_is_done() -> None:
    hooks = StartHooks()
    checks = dict(hooks.checks())
    assert await checks["poststarthook/bootstrap-controller"]() == "not finished"
    hooks.finish("bootstrap-controller")
    assert await checks["poststarthook/bootstrap-controller"]() is None
    assert await checks["poststarthook/rbac/bootstrap-roles"]() == "not finished"


class FullDisk(logging.Handler):
    """Where nothing can be written."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/secret/path")


async def test_a_log_that_cannot_be_written_is_told_without_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await check_log() is None
    logger = logging.getLogger("allot")
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, FullDisk()])
    assert await check_log() == "No space left on device"
