"""The pipe protocol between the dashboard and its analyst: each message follows its length.

Messages to the analyst are pickled objects (both ends are the same program, and no one else has the pipe); answers are JSON.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import IO, Any

_LENGTH_BYTES = 8


def encode(message: Any) -> bytes:
    """A message to the analyst."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def read_message(stream: IO[bytes]) -> Any:
    """The next message to the analyst; EOFError at the end."""
    return pickle.loads(_read(stream, int.from_bytes(_read(stream, _LENGTH_BYTES), "big")))


def _read(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def write_answer(stream: IO[bytes], data: bytes) -> None:
    """An answer of the analyst."""
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    stream.flush()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The next answer of the analyst; IncompleteReadError when it is gone."""
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big"))
