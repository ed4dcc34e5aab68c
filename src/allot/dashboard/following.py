"""The displayed cluster: a live one, followed change by change, or a static dump."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.connection import Connection
from allot.client.errors import ApiError
from allot.client.informer import Change as Seen
from allot.core.advice.snapshot import KINDS, Snapshot, SnapshotKind
from allot.core.model.codec import without_managed_fields
from allot.core.model.meta import APIStruct
from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.analysis import Analysis
from allot.dashboard.autoscalers import AutoscalerStatus
from allot.dashboard.measuring import Measuring
from allot.dashboard.model import Change, Model
from allot.dashboard.recorder import Recorder
from allot.dashboard.recordings import Writer
from allot.dashboard.views.holdings import Holdings, held_changes
from allot.dashboard.views.timeline import Timeline, held_before
from allot.process.clock import Clock
from allot.process.supervise import supervise
from allot.reading.errors import NotReached
from allot.reading.listener import Listener
from allot.reading.live import Troubles, hearing_troubles, watching
from allot.reading.snapshots import snapshot_and_values

# Changes come in bursts, and no one reads faster.
PAUSE_S = 0.2
_AT_ONCE = 500
_LATE_KINDS_EVERY_S = 15.0
_USE_EVERY_S = 15.0
Object = dict[str, Any]
BY_KIND = {kind.name: kind for kind in reversed(KINDS)}


class Unknown(Exception):
    """An object that does not exist, or may not be read."""


async def wait_for_news(news: asyncio.Event, seconds: float) -> None:
    """Wait for changes, up to a timeout."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await news.wait()


class Followed:
    """The cluster, and listeners for its changes. title: its name; origin: where it is; analyst: the command of the process that
    answers questions."""

    def __init__(self, model: Model, clock: Clock, title: str, origin: str, analyst: Sequence[str] = ()) -> None:
        self.model = model
        self.clock = clock
        self.title = title
        self.origin = origin
        self.timeline = Timeline()
        self.holdings = Holdings()
        self.recorder: Recorder | None = None
        self.analysis = Analysis(model, clock, analyst)
        self.troubles: Troubles | None = None
        self._news = asyncio.Event()

    @property
    def is_live(self) -> bool:
        """Whether it may change."""
        return self.troubles is not None

    @property
    def stale(self) -> str:
        """A message if it is out of date, or no longer recorded."""
        said = (
            self.troubles.text if self.troubles is not None else "",
            self.recorder.problem if self.recorder is not None else "",
        )
        return " · ".join(filter(None, said))

    async def at(self, moment: float | None) -> Followed:  # noqa: ARG002
        """The cluster at a moment; only a recording has others than the present."""
        return self

    def span(self, moment: float | None) -> dict[str, Any] | None:  # noqa: ARG002
        """The time that a recording covers; None for anything else (`replaying.Player`)."""
        return None

    async def read(self, kind: SnapshotKind, namespace: str, name: str) -> Object:
        """An object as written. Unknown."""
        raise NotImplementedError

    async def autoscaler_status(self) -> Any:
        """The autoscaler's status of its pools; None if there is none, or it may not be read."""
        return None

    def told(self) -> None:
        """Notify all listeners."""
        self._news.set()
        self._news = asyncio.Event()

    @property
    def next_news(self) -> asyncio.Event:
        """An event that is set at the next change. Take it before reading the cluster, so that no change is missed."""
        return self._news

    def look(self, at: float) -> None:
        """Remember how it is now."""
        self.timeline.add(self.model.sample(at))


# --- a dump ---


class _Dump(Followed):
    def __init__(
        self, model: Model, clock: Clock, title: str, values: Sequence[Object], analyst: Sequence[str]
    ) -> None:
        super().__init__(model, clock, title, "", analyst)
        # Types cover only part of some kinds, so the original is also kept; compressed, because it is rarely needed.
        self._written = {_place(value): zlib.compress(msgspec.json.encode(value), 1) for value in values}

    async def read(self, kind: SnapshotKind, namespace: str, name: str) -> Object:
        data = self._written.get((kind.group, kind.name, namespace, name))
        if data is None:
            raise Unknown(f"{kind.name} {f'{namespace}/' if namespace else ''}{name}: not in the dump")
        found: Object = msgspec.json.decode(zlib.decompress(data))
        return found


def _place(value: Object) -> tuple[str, str, str, str]:
    group = str(value.get("apiVersion", "")).rpartition("/")[0]
    kind, metadata = str(value.get("kind", "")), value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    is_namespaced = kind not in BY_KIND or BY_KIND[kind].namespaced
    namespace = str(metadata.get("namespace") or "default") if is_namespaced else ""
    return group, kind, namespace, str(metadata.get("name", ""))


@asynccontextmanager
async def dump_followed(
    files: tuple[str, ...], listener: Listener, clock: Clock, analyst: Sequence[str] = ()
) -> AsyncIterator[Followed]:
    """A dump. Unreadable."""
    snapshot, values = snapshot_and_values(files, listener)
    followed = _Dump(Model(snapshot), clock, ", ".join(files), values, analyst)
    # A dump does not say when it was taken: not before the newest time in it.
    past = held_before(followed.model.what_if.claims.claims())
    now = max(snapshot.taken_at or 0.0, past[-1][0] + 1.0 if past else 0.0) or clock.seconds()
    followed.look(now)
    followed.holdings.begin(followed.model.what_if.claims.claims(), now)
    try:
        yield followed
    finally:
        await followed.analysis.close()


# --- a cluster that runs ---


class _Live(Followed):
    def __init__(
        self, model: Model, clock: Clock, title: str, origin: str, client: Client, analyst: Sequence[str]
    ) -> None:
        super().__init__(model, clock, title, origin, analyst)
        self._client = client
        self._autoscaler = AutoscalerStatus(client, model)

    async def read(self, kind: SnapshotKind, namespace: str, name: str) -> Object:
        discovery = await self._client.discovery()
        version = next((each for each in kind.versions if discovery.find_kind(kind.group, each, kind.name)), "")
        if not version:
            raise Unknown(f"the server has no {kind.plural}")
        resource = self._client.resource(kind.group, version, kind.plural, namespaced=kind.namespaced)
        try:
            found = await resource.get(name, namespace)
        except ApiError as error:
            raise Unknown(str(error)) from None
        return {"apiVersion": kind.api_version(version), "kind": kind.name, **without_managed_fields(found)}

    async def autoscaler_status(self) -> Any:
        return await self._autoscaler.read()


@asynccontextmanager
async def cluster_followed(
    connection: Connection,
    title: str,
    listener: Listener,
    clock: Clock,
    analyst: Sequence[str] = (),
    recording: Writer | None = None,
) -> AsyncIterator[Followed]:
    """A cluster. recording: where to keep what happens. Denied, NotReached."""
    seen: list[Change] = []
    changed = asyncio.Event()

    def tell(change: Seen[APIStruct]) -> None:
        seen.append((change.old, change.new))
        changed.set()

    with hearing_troubles(changed.set) as troubles:
        try:
            async with watching(
                connection, listener, KINDS, tell, user_agent="allot-dashboard", late_every_s=_LATE_KINDS_EVERY_S
            ) as watched:
                now = clock.seconds()
                model = Model(Snapshot(tuple(watched.objects()), now, watched.unread))
                seen.clear()
                followed = _Live(model, clock, title, connection.server, watched.client, analyst)
                followed.troubles = troubles
                followed.look(now)
                followed.holdings.begin(model.what_if.claims.claims(), now)
                tasks = {"following the cluster": lambda: _follow(followed, seen, changed)}
                measuring = Measuring(watched.client)
                tasks["measuring devices"] = lambda: _measure(followed, measuring)
                if recording is not None:
                    recorder = followed.recorder = Recorder(recording, model, clock, title, followed.told)
                    tasks["recording"] = recorder.run
                running = [asyncio.ensure_future(supervise(name, run, clock)) for name, run in tasks.items()]
                try:
                    yield followed
                finally:
                    for task in running:
                        task.cancel()
                    await asyncio.gather(*running, return_exceptions=True)
                    await followed.analysis.close()
                    if followed.recorder is not None:
                        await followed.recorder.close()
        except ApiError as error:
            raise NotReached(connection.server, error) from None


async def _follow(followed: Followed, seen: list[Change], changed: asyncio.Event) -> None:
    model, troubles, clock = followed.model, followed.troubles, followed.clock
    assert troubles is not None
    while True:
        await changed.wait()
        await clock.sleep(PAUSE_S)
        changed.clear()
        batch = seen[:]
        del seen[: len(batch)]
        if batch:
            # The watch is connected again.
            troubles.since = ""
        for first in range(0, len(batch), _AT_ONCE):
            part = batch[first : first + _AT_ONCE]
            model.apply(part)
            followed.analysis.changed(part)
            _note_held(followed, part)
            if followed.recorder is not None:
                followed.recorder.changed(part)
            model.refresh()
            await asyncio.sleep(0)
        now = clock.seconds()
        model.what_if.pass_to(now)
        followed.look(now)
        followed.told()


def _note_held(followed: Followed, changes: Sequence[Change]) -> None:
    """Which claims got devices, and which gave some back."""
    now = followed.clock.seconds()
    for before, after in changes:
        if isinstance(before, ResourceClaim) or isinstance(after, ResourceClaim):
            followed.holdings.change(now, held_changes(before, after))  # type: ignore[arg-type]


async def _measure(followed: Followed, measuring: Measuring) -> None:
    """Keep up to date how busy the devices of pods are, where that is measured."""
    model, clock = followed.model, followed.clock
    while True:
        found = await measuring.read(list(model.users()))
        if found is not None:
            gone = dict.fromkeys(model.use.keys() - found.keys())
            news = {key: use for key, use in found.items() if use != model.use.get(key)} | gone
            model.what_if.pass_to(clock.seconds())
            model.measure(news)
            if followed.recorder is not None and news:
                followed.recorder.measured(news)
            if model.refresh():
                followed.told()
        await clock.sleep(_USE_EVERY_S)
