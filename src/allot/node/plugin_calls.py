"""Calls to plugins on this node over gRPC, with errors as Go's gRPC shows them: the kubelet passes them on."""

from __future__ import annotations

import os
from typing import Any, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError, Message

from allot.process.grpc_channels import RECONNECTING

CHANNEL_OPTIONS = (
    *RECONNECTING,
    # Without this, two instances at one path would share a connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
_PATH_BYTES_MAX = 107

Answer = TypeVar("Answer", bound=Message)
# The identity of a socket, to detect a new one at the same path. Inode numbers are reused, hence the time.
Identity = tuple[int, int, int]


class CallFailed(Exception):
    """A driver did not answer, or not as it should. The message is as Go's gRPC shows it; code is Go's name of the code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {text}")
        self.code = code


class NotUsable(Exception):
    """A driver that cannot be called, or an instance that cannot be registered."""


def socket_target(path: str) -> str:
    """The gRPC target of a socket; NotUsable if it cannot be one. gRPC accepts any text, but the channel would never end."""
    if not path.startswith("/") or path.startswith("//") or "\0" in path or len(path.encode()) > _PATH_BYTES_MAX:
        raise NotUsable(f"socket {path[:200]!r}: expected an absolute path of at most {_PATH_BYTES_MAX} bytes")
    return f"unix:{quote(path)}"


def identity_of(status: os.stat_result) -> Identity:
    """What tells a socket from a later one at its path."""
    return status.st_dev, status.st_ino, status.st_mtime_ns


async def call(
    channel: grpc.aio.Channel, method: str, request: Message, answer: type[Answer], timeout_s: float
) -> Answer:
    """One call that fails at once without a connection; CallFailed."""
    try:
        # Parsed here, not by gRPC, which turns garbage into a missing answer.
        send: Any = channel.unary_unary(method)
        raw: bytes = await send(request.SerializeToString(), timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        raise failure(error) from error
    except grpc.aio.UsageError as error:
        # The channel was closed in the meantime: the instance is gone.
        raise CallFailed("Canceled", "grpc: the client connection is closing") from error
    return parse(raw, answer)


def parse(raw: bytes, type_: type[Answer]) -> Answer:
    """Decode a message; CallFailed if it is invalid."""
    try:
        return type_.FromString(raw)
    except DecodeError as error:
        text = f"grpc: failed to unmarshal the received message: {error}"
        raise CallFailed("Internal", text) from error


def failure(error: grpc.aio.AioRpcError) -> CallFailed:
    """An error of gRPC in Go's words."""
    code = error.code()
    # Go's names: Go spells CANCELLED with one l.
    name = "Canceled" if code == grpc.StatusCode.CANCELLED else code.name.title().replace("_", "")
    name = "OK" if code == grpc.StatusCode.OK else name
    text = "context deadline exceeded" if code == grpc.StatusCode.DEADLINE_EXCEEDED else error.details() or ""
    return CallFailed(name, text)
