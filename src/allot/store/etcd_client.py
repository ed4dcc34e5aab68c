"""Calls to an etcd cluster: TLS, deadlines, failover between its members, and error handling.

Knows gRPC and etcd's error texts, but not Kubernetes objects. A call goes to one member; if that member cannot be reached
or does not answer in time, it goes to the next, until the time for the whole call is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
import msgspec
from google.protobuf.message import Message

from allot.process.grpc_channels import RECONNECTING
from allot.store.port import Fault, StoreUnavailable
from allot.wire import etcd_pb2 as pb

Answer = TypeVar("Answer", bound=Message)

# etcd's own texts; its codes are too coarse.
COMPACTED_TEXT = "required revision has been compacted"
FUTURE_TEXT = "required revision is a future revision"

_OPTIONS = (
    # Lists come in parts of bounded size, but one part can be larger than the default of 4 MiB.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Detects a member that vanished silently, even on an idle watch.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    *RECONNECTING,
    # Without this, equal channels in one process share a connection, and closing one store would disturb another.
    ("grpc.use_local_subchannel_pool", 1),
)


class EtcdOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where etcd is and how to connect to it."""

    servers: tuple[str, ...]
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    # Replaces `/registry` at the start of keys in etcd; kube-apiserver's --etcd-prefix.
    prefix: str = "/registry"
    # For one attempt at one member, and for all attempts together.
    attempt_timeout_s: float = 5.0
    call_timeout_s: float = 15.0
    # The delay between attempts when no member can be reached.
    retry_s: float = 0.2
    # How often a watch requests progress.
    progress_s: float = 5.0


class Refused(Exception):
    """An error from etcd that any other member would return as well."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class TxnResult(msgspec.Struct, frozen=True):
    """An answer. repeated: an earlier attempt may have succeeded too."""

    answer: Any
    repeated: bool


class EtcdClient:
    """Connections to the members of a cluster."""

    def __init__(self, options: EtcdOptions) -> None:
        if not options.servers:
            raise StoreUnavailable("etcd: no servers: expected at least one, such as http://127.0.0.1:2379")
        self.options = options
        self._channels: list[grpc.aio.Channel] = []
        self._current = 0

    def __str__(self) -> str:
        return f"etcd at {', '.join(self.options.servers)}"

    def open(self) -> None:
        """Create the channels; connections are opened on demand."""
        self._channels = [self._channel(server) for server in self.options.servers]

    async def close(self) -> None:
        """Close all connections; calls in progress fail."""
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.close()

    @property
    def closed(self) -> bool:
        """Whether there is no connection to use."""
        return not self._channels

    def _channel(self, server: str) -> grpc.aio.Channel:
        parts = urlsplit(server if "://" in server else f"http://{server}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StoreUnavailable(f"etcd server {server!r}: expected http://host:port or https://host:port")
        try:
            port = parts.port or 2379
        except ValueError as error:
            raise StoreUnavailable(f"etcd server {server!r}: {error}") from error
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        if parts.scheme == "http":
            return grpc.aio.insecure_channel(f"{host}:{port}", options=_OPTIONS)
        return grpc.aio.secure_channel(f"{host}:{port}", self._credentials(), options=_OPTIONS)

    def _credentials(self) -> grpc.ChannelCredentials:
        def read(path: Path | None) -> bytes | None:
            return None if path is None else path.read_bytes()

        options = self.options
        try:
            return grpc.ssl_channel_credentials(
                root_certificates=read(options.ca_file),
                private_key=read(options.key_file),
                certificate_chain=read(options.cert_file),
            )
        except OSError as error:
            raise StoreUnavailable(f"{self}: cannot read certificate or key: {error}") from error

    # -- calls --------------------------------------------------------------------------------------------------------

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Read keys."""
        return (await self._call("/etcdserverpb.KV/Range", request, pb.RangeResponse)).answer  # type: ignore[no-any-return]

    async def txn(self, request: pb.TxnRequest) -> TxnResult:
        """Compare and write."""
        return await self._call("/etcdserverpb.KV/Txn", request, pb.TxnResponse)

    async def compact(self, request: pb.CompactionRequest) -> None:
        """Drop history."""
        await self._call("/etcdserverpb.KV/Compact", request, pb.CompactionResponse)

    async def status(self) -> pb.StatusResponse:
        """The status of the member that answers."""
        outcome = await self._call("/etcdserverpb.Maintenance/Status", pb.StatusRequest(), pb.StatusResponse)
        return outcome.answer  # type: ignore[no-any-return]

    def watch(self, requests: AsyncIterator[pb.WatchRequest]) -> Any:
        """Open a stream of changes at the current member."""
        if not self._channels:
            raise StoreUnavailable(f"{self}: is closed")
        open_stream = self._channels[self._current].stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )
        return open_stream(requests)

    def fail_over(self) -> None:
        """Use the next member from now on."""
        if self._channels:
            self._current = (self._current + 1) % len(self._channels)

    async def _call(self, method: str, request: Message, answer: type[Message]) -> TxnResult:
        repeated = False
        problem = "no attempt was made"
        try:
            async with asyncio.timeout(self.options.call_timeout_s):
                while True:
                    for _ in self.options.servers:
                        try:
                            return TxnResult(await self._attempt(method, request, answer), repeated)
                        except grpc.aio.AioRpcError as error:
                            problem = f"{_name(error.code())}: {error.details()}"
                            if not _elsewhere(error):
                                raise Refused(error.code(), error.details() or "") from error
                            repeated = True
                            self.fail_over()
                    await asyncio.sleep(self.options.retry_s)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"{self}: no answer within {self.options.call_timeout_s:g} s ({problem}); "
                "the outcome of a write is unknown; check that etcd runs, has a leader, and accepts these credentials"
            ) from error
        except Refused as error:
            raise self._refusal(error) from error

    async def _attempt(self, method: str, request: Message, answer: type[Message]) -> Message:
        if not self._channels:
            raise StoreUnavailable(f"{self}: is closed")
        call = self._channels[self._current].unary_unary(
            method, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        try:
            return await call(request, timeout=self.options.attempt_timeout_s)
        except asyncio.CancelledError as error:
            if reader_cancelled():
                raise
            raise StoreUnavailable(f"{self}: was closed during a call; the outcome of a write is unknown") from error

    def _refusal(self, refused: Refused) -> Exception:
        """Refusals that callers handle stay as they are; the rest becomes an error for the operator."""
        if refused.code is grpc.StatusCode.OUT_OF_RANGE:
            return refused
        if refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return StoreUnavailable(
                f"{self}: {refused.text}; compact and defragment etcd, or raise its quota, then disarm the alarm",
                Fault.DISK_FULL,
            )
        if refused.code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return StoreUnavailable(f"{self}: {refused.text}; check the client certificate and etcd's users")
        return StoreUnavailable(f"{self}: {_name(refused.code)}: {refused.text}")


def reader_cancelled() -> bool:
    """Whether the running task was cancelled, rather than the gRPC call, which also raises CancelledError when closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _elsewhere(error: grpc.aio.AioRpcError) -> bool:
    """Whether another member may succeed."""
    return error.code() in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
    )


def _name(code: grpc.StatusCode) -> str:
    return code.name.lower().replace("_", " ")
