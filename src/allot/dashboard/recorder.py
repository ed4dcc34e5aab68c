"""Records a cluster while it is followed. If writing fails, the recording ends, the pages say so, and the dashboard continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from allot.core.advice.what_if import Key, key_of
from allot.core.model.meta import APIStruct
from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.model import Change, Model, is_heartbeat
from allot.dashboard.recordings import CannotRecord, Happened, Head, Writer
from allot.dashboard.views.holdings import Change as Held
from allot.dashboard.views.holdings import held_changes
from allot.process.clock import Clock

_log = logging.getLogger("allot.dashboard")

# Enough for viewers, and the most that a killed process loses.
EVERY_S = 1.0


class Recorder:
    """Writes what happens to a model. title: of the cluster; failed: called when the recording has ended before its time."""

    def __init__(self, writer: Writer, model: Model, clock: Clock, title: str, failed: Callable[[], None]) -> None:
        self._writer = writer
        self._model = model
        self._clock = clock
        self._title = title
        self._failed = failed
        self._is_first = True
        self._changed: dict[Key, APIStruct | None] = {}
        self._held: list[Held] = []
        self._use: dict[str, tuple[float, float] | None] = {}
        self._news = asyncio.Event()
        self.problem = ""

    def changed(self, changes: Iterable[Change]) -> None:
        """What happened, in order; the model knows it already."""
        if self.problem:
            return
        for before, after in changes:
            if is_heartbeat(before, after):
                continue
            object_ = after if after is not None else before
            assert object_ is not None, "a change has an object"
            self._changed[key_of(object_)] = after
            if isinstance(object_, ResourceClaim):
                self._held += held_changes(before, after)  # type: ignore[arg-type]
        if self._changed:
            self._news.set()

    def measured(self, use: Mapping[str, tuple[float, float] | None]) -> None:
        """What pods use of their devices (`Model.measure`)."""
        if not self.problem:
            self._use.update(use)
            self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.flush()
            await self._news.wait()
            await self._clock.sleep(EVERY_S)

    async def flush(self) -> None:
        """What is not written yet."""
        self._news.clear()
        if self.problem or not (self._changed or self._use or self._is_first):
            return
        head, body = self._piece()
        try:
            await asyncio.to_thread(self._writer.write, head, body)
        except CannotRecord as error:
            self.problem = f"the recording has ended: {error}"
            _log.warning("%s", self.problem)
            self._failed()

    def _piece(self) -> tuple[Head, Happened]:
        """What is not written yet, which then counts as written."""
        model, is_whole = self._model, self._is_first or self._writer.wants_whole
        # In the precision of browsers, so that the moment in an address is this one.
        at = round(self._clock.seconds(), 3)
        head = Head(
            at=at,
            sample=model.sample(at),
            is_whole=is_whole,
            is_first=self._is_first,
            title=self._title if is_whole else "",
            held=tuple(self._held),
        )
        if is_whole:
            snapshot = model.what_if.snapshot()
            body = Happened(put=(*snapshot.objects, *model.events()), unread=snapshot.unread, use=dict(model.use))
        else:
            gone = [key for key, after in self._changed.items() if after is None]
            put = [after for after in self._changed.values() if after is not None]
            body = Happened(put=put, gone=gone, use=self._use)
        self._changed, self._held, self._use, self._is_first = {}, [], {}, False
        return head, body

    async def close(self) -> None:
        """The last changes are written, too."""
        await self.flush()
        await asyncio.to_thread(self._writer.close)
