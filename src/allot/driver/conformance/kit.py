"""Runs the checks one by one, each with a running driver and no leftover claims."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum

import msgspec

from allot.client.errors import ApiError
from allot.driver.conformance.bench import Bench, CheckFailed, Skipped
from allot.driver.conformance.kubelet import KubeletError
from allot.driver.conformance.process import ProcessError
from allot.process.clock import Clock
from allot.process.supervise import answer_or_failure

CHECK_TIMEOUT_S = 90.0
_log = logging.getLogger("allot.driver.conformance")


class CheckStatus(StrEnum):
    """What a check found."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"


class Check(msgspec.Struct, frozen=True):
    """Something that a driver must do."""

    group: str
    name: str
    run: Callable[[Bench], Awaitable[None]]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check."""

    group: str
    name: str
    verdict: CheckStatus
    reason: str = ""
    seconds: float = 0.0


class Checks:
    """Collects the checks of a group in the order in which they are written."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.all: list[Check] = []

    def check(self, name: str) -> Callable[[Callable[[Bench], Awaitable[None]]], Callable[[Bench], Awaitable[None]]]:
        """Register a check, named by what a passing driver does."""

        def register(function: Callable[[Bench], Awaitable[None]]) -> Callable[[Bench], Awaitable[None]]:
            self.all.append(Check(self._group, name, function))
            return function

        return register


async def run_checks(bench: Bench, checks: Sequence[Check], clock: Clock) -> AsyncIterator[Finding]:
    """Run the checks; yields findings as they arrive."""
    for check in checks:
        started = clock.monotonic()

        async def examine(check: Check = check) -> None:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await bench.start()
                await check.run(bench)

        failure = await answer_or_failure(examine)
        cleaning = await answer_or_failure(bench.clean_up)
        if failure is None and isinstance(cleaning, Exception):
            failure = CheckFailed(f"afterwards claims could not be unprepared: {cleaning}")
        verdict, reason = _judged(failure)
        yield Finding(
            group=check.group,
            name=check.name,
            verdict=verdict,
            reason=reason,
            seconds=round(clock.monotonic() - started, 3),
        )


def _judged(failure: Exception | None) -> tuple[CheckStatus, str]:
    match failure:
        case None:
            return CheckStatus.PASS, ""
        case Skipped():
            return CheckStatus.SKIP, str(failure)
        case CheckFailed() | KubeletError() | ProcessError() | ApiError():
            return CheckStatus.FAIL, str(failure)
        case TimeoutError():
            return CheckStatus.FAIL, f"not done within {CHECK_TIMEOUT_S:g} s"
        case _:
            _log.error("a check failed", exc_info=failure)
            return CheckStatus.FAIL, f"{type(failure).__name__}: {failure}"
