"""Calls to a container runtime over its socket: deadlines, and what its errors mean to a pod.

Knows gRPC and the texts of runtimes; does not know the lifecycle of pods.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from allot.node.runtimes.port import RuntimeFailure
from allot.process.grpc_channels import RECONNECTING
from allot.wire import cri_pb2 as pb

Answer = TypeVar("Answer", bound=Message)

CALL_S = 120.0
# Pulls may take long; the runtime itself gives up when there is no progress.
PULL_S = 3600.0

_RUNTIME = "/runtime.v1.RuntimeService/"
_IMAGES = "/runtime.v1.ImageService/"
_OPTIONS = (
    # The kubelet's value: lists of all containers with their annotations come in one message.
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    *RECONNECTING,
    # Without this, equal channels in one process share a connection, and closing one would disturb the other.
    ("grpc.use_local_subchannel_pool", 1),
    # The default authority would be the path, which servers in Go reject.
    ("grpc.default_authority", "localhost"),
)
_GONE = (grpc.StatusCode.NOT_FOUND,)
_CDI_UNRESOLVED = re.compile(r"unresolvable CDI devices? (?P<names>.+)$", re.DOTALL)


class CriCalls:
    """The socket of a runtime."""

    def __init__(self, socket: str) -> None:
        """socket: a path, or unix:///path."""
        self.socket = socket.removeprefix("unix://")
        self._channel: grpc.aio.Channel | None = None

    def open(self) -> None:
        """Open the channel; it connects when needed."""
        self._channel = grpc.aio.insecure_channel(f"unix://{self.socket}", options=_OPTIONS)

    async def close(self) -> None:
        """Close; pending calls fail."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def runtime(
        self, method: str, request: Message, answer: type[Answer], reason: str, timeout_s: float = CALL_S
    ) -> Answer:
        """A call about sandboxes and containers. reason: of the RuntimeFailure."""
        try:
            return await self._call(_RUNTIME + method, request, answer, timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self.failure(error, reason) from error

    async def runtime_if_there(
        self, method: str, request: Message, answer: type[Answer], reason: str, timeout_s: float = CALL_S
    ) -> Answer | None:
        """The same; None if the object does not exist."""
        try:
            return await self._call(_RUNTIME + method, request, answer, timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() in _GONE:
                return None
            raise self.failure(error, reason) from error

    async def images(
        self, method: str, request: Message, answer: type[Answer], reason: str, timeout_s: float = CALL_S
    ) -> Answer:
        """A call about images."""
        try:
            return await self._call(_IMAGES + method, request, answer, timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self.failure(error, reason) from error

    async def exec_sync(self, request: pb.ExecSyncRequest, timeout_s: float) -> pb.ExecSyncResponse:
        """Run a program; TimeoutError if it takes too long."""
        try:
            return await self._call(_RUNTIME + "ExecSync", request, pb.ExecSyncResponse, timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED or "deadline exceeded" in (error.details() or ""):
                raise TimeoutError(f"command timed out after {request.timeout} s") from error
            raise self.failure(error, "ExecError") from error

    def events(self) -> Any:
        """The stream of container events."""
        open_stream = self._open().unary_stream(
            _RUNTIME + "GetContainerEvents",
            request_serializer=pb.GetEventsRequest.SerializeToString,
            response_deserializer=pb.ContainerEventResponse.FromString,
        )
        return open_stream(pb.GetEventsRequest())

    async def _call(self, method: str, request: Message, answer: type[Answer], timeout_s: float) -> Answer:
        call = self._open().unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        answered: Answer = await call(request, timeout=timeout_s)
        return answered

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise RuntimeFailure("RuntimeUnavailable", f"the connection to {self.socket} is closed")
        return self._channel

    def failure(self, error: grpc.aio.AioRpcError, reason: str) -> RuntimeFailure:
        """The failure, in the runtime's words where it has some."""
        text = (error.details() or "").strip() or error.code().name.lower().replace("_", " ")
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            return RuntimeFailure(reason, f"the container runtime at {self.socket} cannot be reached: {text}")
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            return RuntimeFailure(reason, f"the container runtime at {self.socket} did not answer in time: {text}")
        if (unresolved := _CDI_UNRESOLVED.search(text)) is not None:
            return RuntimeFailure(
                reason,
                f"the container runtime does not know CDI device {unresolved['names'].strip()}: no valid spec in its CDI directories "
                f"has it ({text})",
            )
        return RuntimeFailure(reason, text)
