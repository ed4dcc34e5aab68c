"""A run: sends sequences over a few connections at once, watches the server meanwhile, and judges it at the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from fuzz.findings import SLOW_S, Case, Finding, fault
from fuzz.shrinking import shrunk
from fuzz.targets import USERS, Target
from fuzz.wire import Answer, Ask, Link, Malformed, Request

WORKERS = 4
# Between two clean-ups, after each of which memory is checked.
ROUND_REQUESTS = 1000
# Nothing takes so long: the server hangs.
_HANG_S = 20.0
_UNDUE_S = 0.2
_LEAVES_S = 0.01
_GROWTH_MAX = 0.05
# With fewer requests nothing is said about memory.
MEMORY_REQUESTS_MIN = 20_000
_FINDINGS_MAX = 200
_SHRUNK_MAX = 20


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """How long a request took: by the clock, and what the server used of processors meanwhile for whatever it did."""

    wall_s: float
    cpu_s: float
    case: Case
    before: tuple[Case, ...] = ()


class Plan(Protocol):
    """Where sequences come from."""

    def sequence(self, number: int) -> list[Case]:
        """The cases of a sequence."""


class Campaign:
    """One run against one server."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.findings: list[Finding] = []
        self.slowest: list[Slow] = []
        self.suspects: list[Slow] = []
        # Memory after each round: requests so far, bytes.
        self.memory: list[tuple[int, int]] = []
        self._warm: int | None = None
        self._flying: dict[int, Case] = {}
        self._began = time.monotonic()

    # --- one case ---

    async def send(self, case: Case, links: dict[str, Link], before: tuple[Case, ...] = ()) -> Answer:
        """Send a case, look at the answer and note what is wrong."""
        self._flying[case.number] = case
        used, began = self._target.usage(), time.monotonic()
        answer, wrong = await self._answer(case, links)
        wall, cpu = time.monotonic() - began, self._target.usage().cpu_s - used.cpu_s
        self._flying.pop(case.number, None)
        self.sent += 1
        self.statuses[answer.status] += 1
        self._note_time(Slow(wall_s=wall, cpu_s=cpu, case=case, before=before))
        if wrong is not None:
            self._found(wrong[0], wrong[1], case, before)
        log = self._target.new_log()
        if "Traceback" in log:
            others = ", ".join(str(number) for number in self._flying)
            self._found("traceback", f"{log[-3000:]}\n(also in flight: {others or 'nothing'})", case, before)
        return answer

    async def _answer(self, case: Case, links: dict[str, Link]) -> tuple[Answer, tuple[str, str] | None]:
        """The answer to a case, and what is wrong with it."""
        try:
            async with asyncio.timeout(_HANG_S):
                answer = await self._exchange(case, links)
            return answer, fault(case, answer, has_status=self._target.has_status)
        except TimeoutError:
            wrong = "hang", f"no answer within {_HANG_S:.0f} s"
        except Malformed as error:
            wrong = "malformed answer", str(error)
        if (link := links.pop(case.user, None)) is not None:
            link.close()
        return Answer(), wrong

    async def _exchange(self, case: Case, links: dict[str, Link]) -> Answer:
        for attempt in (1, 2):
            link = links.get(case.user)
            if link is None or case.fresh:
                if link is not None:
                    link.close()
                link = links[case.user] = await self._link(case.user)
            used_before = link.answered
            answer = await self._on(link, case)
            if case.fresh or not answer.keeps:
                link.close()
                links.pop(case.user, None)
            # A kept connection may end for good reasons between two requests; a new one may not.
            if answer.status or not case.due or not used_before or attempt == 2:
                return answer
        raise AssertionError("the second attempt is on a new connection")

    async def _link(self, user: str) -> Link:
        return await Link.open("127.0.0.1", self._target.port, self._target.context(user))

    async def _on(self, link: Link, case: Case) -> Answer:
        try:
            for piece in case.pieces[:-1]:
                await link.send(piece)
                await asyncio.sleep(0.001)
            await link.send(case.pieces[-1])
        except (ConnectionError, OSError):
            # It may have answered before it had read everything.
            pass
        if case.leaves:
            await link.rest(_LEAVES_S)
            return Answer(pending=True)
        if case.due:
            answer = await link.answer(case.method)
            if answer.status == 101:
                await link.rest(_LEAVES_S)
            return answer
        try:
            async with asyncio.timeout(_UNDUE_S):
                return await link.answer(case.method)
        except TimeoutError:
            return Answer(pending=True)

    def _found(self, sort: str, text: str, case: Case, before: tuple[Case, ...]) -> None:
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(Finding(sort=sort, text=text, case=case, before=before))

    def _note_time(self, slow: Slow) -> None:
        if slow.wall_s > SLOW_S:
            self.suspects.append(slow)
        if len(self.slowest) < 10 or slow.wall_s > self.slowest[-1].wall_s:
            self.slowest = sorted([*self.slowest, slow], key=lambda each: -each.wall_s)[:10]

    # --- many ---

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Ask]:
        """A function that sends single requests as the administrator; what is wrong with answers is noted."""
        links: dict[str, Link] = {}

        async def ask(request: Request) -> Answer:
            return await self.send(Case(number=-1, user="admin", pieces=(request.raw(),), method=request.method), links)

        try:
            yield ask
        finally:
            for link in links.values():
                link.close()

    async def round(self, plan: Plan, first: int, count: int, workers: int = WORKERS) -> None:
        """Send so many sequences, beginning with a number."""
        numbers = iter(range(first, first + count))

        async def work() -> None:
            links: dict[str, Link] = {}
            try:
                for number in numbers:
                    if not self._target.is_alive:
                        return
                    done: tuple[Case, ...] = ()
                    for case in plan.sequence(number):
                        await self.send(case, links, done)
                        done = (*done, case)
            finally:
                for link in links.values():
                    link.close()

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(work())
        except* OSError as errors:
            if self._target.is_alive:
                raise
            del errors
        if not self._target.is_alive:
            for case in self._flying.values():
                self._found("died", self._target.new_log()[-3000:], case, ())

    def look_at_memory(self) -> None:
        """Note how much there is now."""
        if self._target.is_alive:
            self.memory.append((self.sent, self._target.rss_bytes))

    async def confirm_slow(self) -> None:
        """Send what took long again, alone: only the server's own time counts against it, so neither other processes of the
        machine nor other requests of the run."""
        for suspect in self.suspects[:50]:
            links: dict[str, Link] = {user: await self._link(user) for user in USERS}
            for case in suspect.before:
                await self._answer(case, links)
            used, began = self._target.usage(), time.monotonic()
            await self._answer(suspect.case, links)
            wall, now = time.monotonic() - began, self._target.usage()
            cpu, own = now.cpu_s - used.cpu_s, wall - (now.delayed_s - used.delayed_s)
            if cpu > SLOW_S or (own > SLOW_S and not suspect.case.waits):
                text = f"{wall:.1f} s alone, {cpu:.1f} s of processor time; {suspect.wall_s:.1f} s in the run"
                self._found("slow", text, suspect.case, suspect.before)
            for link in links.values():
                link.close()

    async def shrink_findings(self) -> None:
        """Make what was found smaller, where it happens again without what was sent before."""
        for position, finding in enumerate(self.findings[:_SHRUNK_MAX]):
            if not finding.sort.startswith("status "):
                continue

            async def fails(case: Case, sort: str = finding.sort) -> bool:
                links: dict[str, Link] = {}
                _, wrong = await self._answer(case, links)
                for link in links.values():
                    link.close()
                return wrong is not None and wrong[0] == sort

            if await fails(finding.case):
                smaller = await shrunk(finding.case, fails)
                self.findings[position] = msgspec.structs.replace(finding, case=smaller, before=())

    # --- the whole ---

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.sent / max(time.monotonic() - self._began, 1e-6)

    def is_warm(self) -> None:
        """From here on nothing new is sent: memory must not grow any more."""
        self._warm = len(self.memory) - 1

    def growth(self) -> float | None:
        """By which part memory grew since the server was warm, by a straight line through the samples; None if it never was."""
        if self._warm is None or len(self.memory) < self._warm + 3:
            return None
        samples = self.memory[self._warm :]
        mean_x = sum(x for x, _ in samples) / len(samples)
        mean_y = sum(y for _, y in samples) / len(samples)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in samples) / sum((x - mean_x) ** 2 for x, _ in samples)
        return slope * (samples[-1][0] - samples[0][0]) / mean_y

    @property
    def grows(self) -> bool:
        """Whether memory is not flat."""
        growth = self.growth()
        return growth is not None and growth > _GROWTH_MAX
