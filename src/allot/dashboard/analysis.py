"""The dashboard's client of its analyst: starts it with the first question, sends it changes, caches its answers.

An answer is valid until a relevant change. An older one is returned at once if that is better than none, and is marked
as old. One question runs at a time; concurrent equal questions share the answer.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from allot.core.model.meta import APIStruct
from allot.dashboard.frames import encode, read_answer
from allot.dashboard.model import Change, Model
from allot.process.clock import Clock

_log = logging.getLogger("allot.dashboard")

ANSWER_S_MAX = 120.0
ANSWERS_MAX = 500
# It holds a copy of the cluster, which is not needed if no question comes for this long.
IDLE_S = 600.0
WAITING_MAX = 64
# Beyond this many changes, it is faster to start over.
_CHANGES_MAX = 50_000
_OBJECTS_AT_ONCE = 500
_LINE_BYTES_MAX = 1 << 30

Key = tuple[str, tuple[tuple[str, str], ...]]


class TooMany(Exception):
    """More questions wait than will be answered soon."""


class Answer(msgspec.Struct, frozen=True):
    """The analyst's answer as JSON, and the revision of the cluster."""

    decisive: int
    data: bytes
    at: float


class Analysis:
    """Talks to the analyst of one cluster. command: starts it."""

    def __init__(self, model: Model, clock: Clock, command: Sequence[str] = ()) -> None:
        self._model = model
        self._clock = clock
        self._command = tuple(command) or (sys.executable, "-m", "allot.dashboard.analyst")
        self._process: asyncio.subprocess.Process | None = None
        # Changes not sent yet; None if everything must be sent.
        self._untold: list[Change] | None = None
        self._answers: OrderedDict[Key, Answer] = OrderedDict()
        self._asking: dict[Key, asyncio.Task[Answer]] = {}
        self._turn = asyncio.Lock()
        self._resting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[int | None] | None = None

    @property
    def pid(self) -> int:
        """The analyst's process; 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    def changed(self, changes: Iterable[Change]) -> None:
        """Changes in order, to be sent with the next question."""
        if self._untold is not None:
            self._untold.extend(changes)
            if len(self._untold) > _CHANGES_MAX:
                self._untold = None

    def known(self, name: str, arguments: Mapping[str, str]) -> Answer | None:
        """An answer that was given before, however old."""
        return self._answers.get(_key(name, arguments))

    def is_fresh(self, answer: Answer) -> bool:
        """Whether nothing relevant has changed since."""
        return answer.decisive == self._model.decisive

    async def ask(self, name: str, arguments: Mapping[str, str]) -> Answer:
        """The answer of now. TooMany."""
        key = _key(name, arguments)
        known = self._answers.get(key)
        if known is not None and self.is_fresh(known):
            self._answers.move_to_end(key)
            return known
        asking = self._asking.get(key)
        if asking is None:
            if len(self._asking) >= WAITING_MAX:
                raise TooMany(f"{WAITING_MAX} questions wait already: try again in a while")
            self._stay()
            asking = self._asking[key] = asyncio.ensure_future(self._asked(key))
            asking.add_done_callback(lambda _done: self._answered(key))
        try:
            # A caller that leaves must not cancel the answer for the others.
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if not asking.cancelled():
                raise
            return _failed("another moment is shown now", self._clock.seconds())

    def _answered(self, key: Key) -> None:
        self._asking.pop(key, None)
        if not self._asking:
            self._stay()
            self._resting = asyncio.ensure_future(self._end_when_idle())

    def _stay(self) -> None:
        """The analyst is needed."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    async def _end_when_idle(self) -> None:
        await self._clock.sleep(IDLE_S)
        # Once started, the shutdown completes even if a question arrives, which then starts another analyst.
        self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _asked(self, key: Key) -> Answer:
        async with self._turn:
            decisive, at = self._model.decisive, self._clock.seconds()
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    data = await self._exchange(key)
            except TimeoutError:
                await self._end()
                return _failed(f"no answer within {ANSWER_S_MAX:g} s; the cluster may be too large", at)
            except (OSError, asyncio.IncompleteReadError):
                code = await self._end()
                _log.warning("the analyst ended with code %s while it was asked %s", code, key[0])
                return _failed("the analyst ended; ask again to start another one", at)
            except BaseException:
                # Its next output would be mistaken for the answer to another question.
                await self._end()
                raise
        answer = Answer(decisive, data, at)
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        return answer

    async def _exchange(self, key: Key) -> bytes:
        process = await self._started()
        assert process.stdin is not None and process.stdout is not None
        if self._untold is None:
            self._untold = []
            for message in _everything(self._model):
                process.stdin.write(encode(message))
                await process.stdin.drain()
                await asyncio.sleep(0)
        untold, self._untold = self._untold, []
        if untold:
            process.stdin.write(
                encode(("changes", [(None if after is not None else before, after) for before, after in untold]))
            )
        now = self._model.what_if.taken_at
        process.stdin.write(encode(("ask", now, key[0], dict(key[1]))))
        await process.stdin.drain()
        return await read_answer(process.stdout)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None and self._untold is not None:
            return self._process
        await self._end()
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE_BYTES_MAX
        )
        return self._process

    async def _end(self) -> int | None:
        process, self._process, self._untold = self._process, None, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.kill()
        code = await process.wait()
        if process.stdin is not None:
            process.stdin.close()
        return code

    async def close(self) -> None:
        """End the analyst and fail its callers."""
        for task in tuple(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        self._stay()
        if self._ending is not None:
            await self._ending
        await self._end()


def _failed(text: str, at: float) -> Answer:
    """An error instead of an answer; it is not cached, and never fresh."""
    return Answer(-1, msgspec.json.encode({"error": text}), at)


def _everything(model: Model) -> Iterator[tuple[object, ...]]:
    snapshot = model.what_if.snapshot()
    objects: tuple[APIStruct, ...] = (*snapshot.objects, *model.events())
    yield ("unread", dict(snapshot.unread))
    for first in range(0, len(objects), _OBJECTS_AT_ONCE):
        yield ("objects", objects[first : first + _OBJECTS_AT_ONCE])


def _key(name: str, arguments: Mapping[str, str]) -> Key:
    return name, tuple(sorted(arguments.items()))
