"""A recording shown: the cluster as it was at any moment of it.

One moment is kept at a time. A later one is reached by what happened since, unless a whole piece is nearer; an earlier one from the whole
piece before it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from allot.core.advice.snapshot import Snapshot, SnapshotKind
from allot.core.advice.what_if import as_json
from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.following import Followed, Object, Unknown
from allot.dashboard.model import Change, Model
from allot.dashboard.recordings import Happened, Recording, open_recording
from allot.dashboard.views.holdings import Holdings
from allot.dashboard.views.timeline import Timeline
from allot.process.clock import Clock
from allot.reading.listener import Listener


class _Moment(Followed):
    """The cluster at one moment. place: of the last piece that has happened."""

    place = 0

    async def read(self, kind: SnapshotKind, namespace: str, name: str) -> Object:
        found = self.model.known((kind.type, namespace, name))
        if found is None:
            raise Unknown(f"{kind.name} {f'{namespace}/' if namespace else ''}{name}: not there at that moment")
        return as_json(found)


class Player:
    """Answers what was there at a moment."""

    def __init__(self, recording: Recording, clock: Clock, analyst: Sequence[str] = ()) -> None:
        self._recording = recording
        self._clock = clock
        self._analyst = analyst
        self._turn = asyncio.Lock()
        self._shown: _Moment | None = None
        # Clocks are set back sometimes; what was written later happened later.
        self._times = list(accumulate((piece.head.at for piece in recording.pieces), max))
        self._timeline, self._holdings = self._overview()

    def _overview(self) -> tuple[Timeline, Holdings]:
        timeline, holdings = Timeline(), Holdings()
        for at, piece in zip(self._times, self._recording.pieces, strict=True):
            timeline.add(piece.head.sample_at(at))
            if piece.head.is_first or at == self._times[0]:
                body = self._recording.body(piece)
                holdings.begin((each for each in body.put if isinstance(each, ResourceClaim)), at)
            else:
                holdings.change(at, piece.head.held)
        return timeline, holdings

    def span(self, moment: float | None) -> dict[str, Any]:
        """The time that the recording covers, and the moments of the previous and the next change."""
        at = self._meant(moment)
        place = self._place(at)
        return {
            "from": self._times[0],
            "to": self._times[-1],
            "at": at,
            "before": self._times[max(0, place - (self._times[place] >= at))],
            "after": self._times[min(place + 1, len(self._times) - 1)],
        }

    def _meant(self, moment: float | None) -> float:
        return min(max(moment if moment is not None else self._times[-1], self._times[0]), self._times[-1])

    def _place(self, at: float) -> int:
        return max(0, bisect_right(self._times, at) - 1)

    async def at(self, moment: float | None) -> Followed:
        """The cluster as it was; the last moment if none is named. Unreadable."""
        at = self._meant(moment)
        async with self._turn:
            shown = await self._moved(self._place(at))
            shown.model.what_if.pass_to(at)
            return shown

    async def _moved(self, place: int) -> _Moment:
        pieces, shown = self._recording.pieces, self._shown
        whole = next(each for each in range(place, -1, -1) if pieces[each].head.is_whole)
        if shown is None or not whole <= shown.place <= place:
            shown = await self._begun(whole)
        for each in range(shown.place + 1, place + 1):
            body = await asyncio.to_thread(self._recording.body, pieces[each])
            changes = _changes(shown.model, body)
            shown.model.apply(changes)
            shown.model.measure(body.use)
            shown.analysis.changed(changes)
            shown.place = each
        shown.model.refresh()
        return shown

    async def _begun(self, place: int) -> _Moment:
        """The cluster at a whole piece, instead of what is shown."""
        piece, before = self._recording.pieces[place], self._shown
        body = await asyncio.to_thread(self._recording.body, piece)
        model = await asyncio.to_thread(Model, Snapshot(tuple(body.put), piece.head.at, body.unread))
        model.measure(body.use)
        if before is not None:
            # Not the same state for those who compare.
            model.decisive = before.model.decisive + 1
        title = f"{piece.head.title} in {self._recording.path.name}"
        shown = _Moment(model, self._clock, title, "", self._analyst)
        shown.timeline, shown.holdings, shown.place = self._timeline, self._holdings, place
        self._shown = shown
        if before is not None:
            # A browser that goes meanwhile leaves no process behind.
            await asyncio.shield(before.analysis.close())
        return shown

    async def close(self) -> None:
        """End the analyst, and close the file."""
        if self._shown is not None:
            await self._shown.analysis.close()
        self._recording.close()


def _changes(model: Model, body: Happened) -> list[Change]:
    found: list[Change] = []
    for object_ in body.put:
        found.append((model.known_as(object_), object_))
    for key in body.gone:
        before = model.known(key)
        if before is not None:
            found.append((before, None))
    return found


@asynccontextmanager
async def recording_followed(
    path: Path, listener: Listener, clock: Clock, analyst: Sequence[str] = ()
) -> AsyncIterator[Player]:
    """A recording. Unreadable."""
    recording = await asyncio.to_thread(open_recording, path)
    if recording.torn_bytes:
        listener.note(
            f"{path}: the last {recording.torn_bytes} bytes are left out: they were being written when the recording ended"
        )
    player = await asyncio.to_thread(Player, recording, clock, analyst)
    try:
        await player.at(None)
        yield player
    finally:
        await player.close()
