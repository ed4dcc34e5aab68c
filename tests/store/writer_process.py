"""A process that writes to a SQLite store from many tasks until it is killed, noting what was acknowledged and what it watched.

    python writer_process.py STORE NOTES AFTER SEED

Lines of NOTES: `ready REVISION`, `ack REVISION KEY NUMBER`, `saw REVISION TYPE KEY NUMBER`. Each line is written at once, so that it
is there after a SIGKILL; an `ack` line only after the store has answered.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

from allot.store.port import Entry, Event
from allot.store.sqlite import SqliteStore
from allot.store.timeline import Limits

WRITERS = 16
# Small, so that history is pruned while the process is killed.
LIMITS = Limits(history_max=2_000, progress_s=0.05)


def document(number: int, padding: int) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"n": number, "padding": "x" * padding}}


async def main(store_path: str, notes_path: str, after: int, seed: int) -> None:
    notes = os.open(notes_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(*words: object) -> None:
        os.write(notes, (" ".join(map(str, words)) + "\n").encode())

    store = SqliteStore(Path(store_path), LIMITS)
    await store.open()
    note("ready", await store.revision())

    async def watch() -> None:
        async for item in store.watch("/registry/", after):
            if isinstance(item, Event):
                note("saw", item.revision, item.type.value, item.entry.key, item.entry.object["spec"]["n"])

    async def write(writer: int) -> None:
        dice = random.Random(seed * 1000 + writer)
        while True:
            key = f"/registry/pods/writer{writer}/{dice.randrange(4)}"
            present = await store.get(key)
            done: Entry
            if present is None:
                done = await store.create(key, document(0, dice.randrange(2000)))
            elif dice.random() < 0.2:
                done = await store.delete(key, present.revision)
            else:
                done = await store.update(
                    key, document(present.object["spec"]["n"] + 1, dice.randrange(2000)), present.revision
                )
            note("ack", done.revision, key, done.object["spec"]["n"])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        for writer in range(WRITERS):
            tasks.create_task(write(writer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
