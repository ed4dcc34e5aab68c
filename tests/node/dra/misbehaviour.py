"""What drivers do wrong when they are asked to prepare or unprepare, and what the agent says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from allot.wire import dra_v1_pb2


async def unknown(operation: str, _: Sequence[str], __: Callable[[], Any]) -> Any:
    """An answer for a claim that nobody has asked for."""
    name = "NodePrepareResourceResponse" if operation == "NodePrepareResources" else "NodeUnprepareResourceResponse"
    part = getattr(dra_v1_pb2, name)()
    return getattr(dra_v1_pb2, f"{operation}Response")(claims={"somebody": part})


async def empty(operation: str, _: Sequence[str], __: Callable[[], Any]) -> Any:
    """No answer for the claim."""
    return getattr(dra_v1_pb2, f"{operation}Response")()


async def garbage(_: str, __: Sequence[str], ___: Callable[[], Any]) -> Any:
    """No message at all."""
    return b"\x0a\xff\xff\xff\xff\x7f"


async def abort(_: str, __: Sequence[str], ___: Callable[[], Any]) -> Any:
    """An error of gRPC."""
    return "it burns"


async def hang(_: str, __: Sequence[str], ___: Callable[[], Any]) -> Any:
    """Nothing for a long time."""
    await asyncio.sleep(60)


# What goes on the wire, and what the agent says after the operation's name.
MISBEHAVIOURS = (
    (unknown, " returned result for unknown claim UID somebody"),
    (empty, " skipped 1 ResourceClaims"),
    (garbage, ": rpc error: code = Internal desc = grpc: failed to unmarshal the received message"),
    (abort, ": rpc error: code = Internal desc = it burns"),
)
HANG_TEXT = ": rpc error: code = DeadlineExceeded desc = context deadline exceeded"
