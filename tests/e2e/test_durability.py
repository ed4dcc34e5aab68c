"""SIGKILL at random moments under concurrent clients: nothing acknowledged is lost, watchers miss nothing and see nothing twice.

The server runs as `allot apiserver` on SQLite in a process of its own; writers and watchers talk to it over HTTPS and go on
when it is back. A write whose answer did not arrive may have happened or not; its object is left alone from then on.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
import yaml

from waiting import WAIT_S

# More of them on request: each takes about a second.
KILLS = int(os.environ.get("ALLOT_KILLS", "8"))
SEED = 20261115
WRITERS = 8
WATCHERS = 3
WRITES_OF_A_LONG_LIFE = 60
PATH = "/api/v1/namespaces/default/configmaps"
LOST = (aiohttp.ClientError, ConnectionError, TimeoutError)


class Seen(NamedTuple):
    """What an event, or the answer to a write, says."""

    revision: int
    type: str
    name: str
    number: int


class Killable:
    """One server after the other on the same files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kubeconfig = folder / "kubeconfig"
        self._process: subprocess.Popen[bytes] | None = None
        self.start_s: list[float] = []

    def _spawn(self) -> Path:
        log = self._folder / "server.log"
        command = [sys.executable, "-m", "allot", "apiserver", "--port", "0", "--data-dir", str(self._folder / "data")]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--kubeconfig", str(self._kubeconfig)], stdout=output, stderr=output
            )
        return log

    def start(self) -> None:
        """Start and wait until it is ready."""
        began = time.perf_counter()
        log = self._spawn()
        while b"ready: " not in log.read_bytes():
            assert self._process is not None
            assert self._process.poll() is None, log.read_text()
            assert time.perf_counter() - began < 60, "the server did not get ready"
            time.sleep(0.005)
        self.start_s.append(time.perf_counter() - began)

    def start_and_kill(self, delay_s: float) -> None:
        """Start, and kill it wherever it is."""
        log = self._spawn()
        time.sleep(delay_s)
        assert self._process is not None
        assert self._process.poll() is None, log.read_text()
        self.kill()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def session(self) -> aiohttp.ClientSession:
        """A session of the administrator with the server that runs now."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        pair = self._folder / "admin.pem"
        pair.write_bytes(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        context.load_cert_chain(pair)
        return aiohttp.ClientSession(
            cluster["server"],
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )


def body(name: str, number: int, version: str = "") -> bytes:
    metadata = {"name": name, "resourceVersion": version} if version else {"name": name}
    return msgspec.json.encode({"metadata": metadata, "data": {"number": str(number)}})


def told(type_: str, object_: dict[str, Any]) -> Seen:
    metadata = object_["metadata"]
    number = int(object_.get("data", {}).get("number", -1))
    return Seen(int(metadata["resourceVersion"]), type_, metadata["name"], number)


class Writer:
    """Creates, updates and deletes objects that nobody else writes; notes what was acknowledged."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self._name = name
        self._dice = dice
        self._made = 0
        # Objects whose state is known.
        self._known: dict[str, tuple[int, str]] = {}
        self.written: list[Seen] = []
        self.deleted: list[str] = []

    async def work(self, session: aiohttp.ClientSession) -> None:
        """Write until the server is gone."""
        while True:
            name = self._dice.choice(list(self._known)) if self._known and self._dice.random() < 0.7 else ""
            state = self._known.pop(name, None)
            try:
                if state is None:
                    await self.create(session)
                elif self._dice.random() < 0.2:
                    await self._send(session, "DELETE", f"{PATH}/{name}")
                    self.deleted.append(name)
                else:
                    number, version = state
                    answer = await self._send(session, "PUT", f"{PATH}/{name}", body(name, number + 1, version))
                    self._note(told("MODIFIED", answer))
            except LOST:
                return

    async def create(self, session: aiohttp.ClientSession) -> None:
        """Create another object."""
        self._made += 1
        name = f"{self._name}-{self._made}"
        self._note(told("ADDED", await self._send(session, "POST", PATH, body(name, 0))))

    def _note(self, seen: Seen) -> None:
        self.written.append(seen)
        self._known[seen.name] = (seen.number, str(seen.revision))

    async def _send(
        self, session: aiohttp.ClientSession, method: str, path: str, data: bytes | None = None
    ) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        async with session.request(method, path, data=data, headers=headers) as response:
            raw = await response.read()
            assert response.status in (200, 201), (method, path, response.status, raw)
            answer: dict[str, Any] = msgspec.json.decode(raw)
            return answer


class Watcher:
    """Follows all objects, and resumes after what it has seen last."""

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self.seen: list[Seen] = []

    async def follow(self, session: aiohttp.ClientSession, until: int | None = None) -> None:
        """Until the server is gone, or until a revision is reached."""
        query = f"?watch=true&resourceVersion={self._revision}"
        try:
            async with session.get(PATH + query) as response:
                assert response.status == 200, await response.read()
                while until is None or self._revision < until:
                    line = await response.content.readline()
                    if not line.endswith(b"\n"):
                        # Cut off, or the end.
                        return
                    event = msgspec.json.decode(line)
                    # Nothing is compacted in so short a time: 410 Gone would be an error here.
                    assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
                    seen = told(event["type"], event["object"])
                    self._revision = seen.revision
                    self.seen.append(seen)
        except LOST:
            return


async def listed(session: aiohttp.ClientSession) -> tuple[int, dict[str, Seen]]:
    """The newest revision and what there is."""
    async with session.get(PATH) as response:
        answer = msgspec.json.decode(await response.read())
        assert response.status == 200, answer
    objects = [told("ADDED", item) for item in answer["items"]]
    return int(answer["metadata"]["resourceVersion"]), {each.name: each for each in objects}


def replayed(seen: list[Seen], first: dict[str, Seen]) -> dict[str, tuple[int, int]]:
    """Numbers and revisions that events lead to; each must fit the state before it, and come after the one before it."""
    state = {name: (each.number, each.revision) for name, each in first.items()}
    newest = 0
    for event in seen:
        assert event.revision > newest, event
        newest = event.revision
        if event.type == "ADDED":
            assert event.name not in state and event.number == 0, event
        elif event.type == "MODIFIED":
            assert state[event.name][0] + 1 == event.number, event
        else:
            assert state.pop(event.name)[0] == event.number, event
            continue
        state[event.name] = (event.number, event.revision)
    return state


async def one_life(
    server: Killable, writers: list[Writer], watchers: list[Watcher], delay_s: float, newest: int
) -> int:
    """Clients work with a server that has just started, until it is killed; the revision that it started with."""
    async with server.session() as session:
        revision, _ = await listed(session)
        assert revision >= newest, f"the revision went back from {newest} to {revision}"
        async with asyncio.TaskGroup() as tasks:
            for watcher in watchers:
                tasks.create_task(watcher.follow(session))
            for writer in writers:
                tasks.create_task(writer.work(session))
            await asyncio.sleep(delay_s)
            if delay_s > 0.1:
                # On a busy machine, a long life is one in which much was written.
                before = acknowledged(writers)
                while acknowledged(writers) < before + WRITES_OF_A_LONG_LIFE and server.is_alive:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(server.kill)
    return revision


def acknowledged(writers: Sequence[Writer]) -> int:
    """How many writes were, so far."""
    return sum(len(writer.written) + len(writer.deleted) for writer in writers)


@pytest.mark.slow
@pytest.mark.timeout(120 + 8 * KILLS)
async def test_nothing_is_lost_when_the_server_is_killed_under_concurrent_clients(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    server = Killable(tmp_path)
    writers = [Writer(f"w{number}", random.Random(SEED + number)) for number in range(WRITERS)]
    try:
        await asyncio.to_thread(server.start)
        async with server.session() as session:
            newest, first = await listed(session)
        watchers = [Watcher(newest) for _ in range(WATCHERS)]
        for kill in range(KILLS):
            if kill % 8 == 7:
                # Now and then while it starts.
                await asyncio.to_thread(server.start_and_kill, dice.uniform(0.2, 1.2))
                continue
            if kill:
                await asyncio.to_thread(server.start)
            is_long = kill % 3 == 2
            delay_s = dice.uniform(0.1, 0.4) if is_long else dice.uniform(0, dice.choice([0.02, 0.1]))
            newest = await one_life(server, writers, watchers, delay_s, newest)
            newest = max([newest, *(writer.written[-1].revision for writer in writers if writer.written)])

        await asyncio.to_thread(server.start)
        async with server.session() as session:
            assert (await listed(session))[0] >= newest
            # One more write, so that watchers can tell when they have everything.
            end = Writer("end", dice)
            await end.create(session)
            _, objects = await listed(session)
            async with asyncio.timeout(WAIT_S):
                for watcher in watchers:
                    await watcher.follow(session, until=end.written[-1].revision)
    finally:
        await asyncio.to_thread(server.kill)

    # What was acknowledged happened, at that revision; what was acknowledged as deleted is gone.
    expected = {name: (each.number, each.revision) for name, each in objects.items()}
    for watcher in watchers:
        by_revision = {event.revision: event for event in watcher.seen}
        assert not [ack for writer in writers for ack in writer.written if by_revision.get(ack.revision) != ack]
        assert replayed(watcher.seen, dict(first)) == expected
        gone = {event.name for event in watcher.seen if event.type == "DELETED"}
        assert not [name for writer in writers for name in writer.deleted if name not in gone or name in objects]
    assert acknowledged(writers) >= WRITES_OF_A_LONG_LIFE * (KILLS // 4), "nothing was tested"
