"""Streaming servers and runtimes that do not behave, and runtimes that tell nothing by themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import uvloop

from allot.node.runtimes.cri import CriOptions, CriRuntime
from allot.node.runtimes.cri_streams import CriStreams
from allot.node.runtimes.port import RuntimeFailure
from allot.process.clock import SystemClock
from allot.wire import cri_pb2 as pb
from waiting import WAIT_S


@contextlib.asynccontextmanager
async def _answering(answer: bytes, *, stays: bool = False) -> AsyncIterator[str]:
    """A server that gives one answer and hangs up. stays: when the client does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            if stays:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/token"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\npage not found", "answered 404: page not found"),
        (b"", "streaming server"),
        (b"no http at all\r\n\r\n", "malformed status line"),
    ],
)
async def test_a_server_that_does_not_switch_protocols_is_told(answer: bytes, text: str) -> None:
    async with _answering(answer) as url:
        with pytest.raises(RuntimeFailure, match=text):
            await CriStreams.command(url, stdin=True, tty=False, what="ExecError")


def test_input_after_the_end_of_a_stream_is_dropped_on_the_agents_event_loop() -> None:
    async def write_after_the_end() -> None:
        async with _answering(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", stays=True) as url:
            streams = await CriStreams.command(url, stdin=True, tty=False, what="ExecError")
            await streams.close()
            # The loop closes the connection when it comes round.
            for _ in range(10):
                await asyncio.sleep(0)
            await streams.write(b"into the void")
            await streams.write(b"")

    uvloop.run(write_after_the_end())


@pytest.mark.parametrize("rest", [b"", b"garbage", b"\xff" * 100])
async def test_a_server_that_hangs_up_ends_the_output_and_the_program(rest: bytes) -> None:
    async with _answering(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + rest) as url:
        try:
            streams = await CriStreams.command(url, stdin=True, tty=False, what="ExecError")
        except RuntimeFailure as error:
            assert "hung up" in str(error)
            return
        assert [each async for each in streams.output()] == []
        with pytest.raises(RuntimeFailure, match="hung up"):
            await streams.exit_code()
        await streams.write(b"into the void")
        await streams.close()


@pytest.mark.parametrize("url", ["", "ftp://127.0.0.1/x", "/exec/token"])
async def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(RuntimeFailure, match="not http or https"):
        await CriStreams.port(url, 80)


class SilentRuntime:
    """A runtime that can only list."""

    def __init__(self) -> None:
        self.sandboxes: list[pb.PodSandbox] = []

    def handlers(self) -> grpc.GenericRpcHandler:
        async def version(_request: pb.VersionRequest, _context: object) -> pb.VersionResponse:
            return pb.VersionResponse(version="0.1.0", runtime_name="silent", runtime_version="v1")

        async def sandboxes(_request: pb.ListPodSandboxRequest, _context: object) -> pb.ListPodSandboxResponse:
            return pb.ListPodSandboxResponse(items=self.sandboxes)

        async def containers(_request: pb.ListContainersRequest, _context: object) -> pb.ListContainersResponse:
            return pb.ListContainersResponse()

        methods = {
            "Version": (version, pb.VersionRequest),
            "ListPodSandbox": (sandboxes, pb.ListPodSandboxRequest),
            "ListContainers": (containers, pb.ListContainersRequest),
        }
        return grpc.method_handlers_generic_handler(
            "runtime.v1.RuntimeService",
            {
                name: grpc.unary_unary_rpc_method_handler(
                    method, request.FromString, lambda answer: answer.SerializeToString()
                )
                for name, (method, request) in methods.items()
            },
        )


async def test_changes_are_found_by_lists_when_the_runtime_tells_none(tmp_path: Path) -> None:
    silent = SilentRuntime()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((silent.handlers(),))
    server.add_insecure_port(f"unix://{tmp_path}/cri.sock")
    await server.start()
    runtime = CriRuntime(SystemClock(), CriOptions(socket=f"{tmp_path}/cri.sock", poll_s=0.01))
    await runtime.open()
    try:
        sandbox = pb.PodSandbox(id="s", metadata=pb.PodSandboxMetadata(uid="uid-1"))
        silent.sandboxes = [sandbox]
        changes = runtime.changes()
        async with asyncio.timeout(WAIT_S):
            assert await anext(changes) == "uid-1"
            sandbox.state = pb.SANDBOX_NOTREADY
            assert await anext(changes) == "uid-1"
            silent.sandboxes = []
            assert await anext(changes) == "uid-1"
        await changes.aclose()
        assert (await runtime.status()).message
    finally:
        await runtime.close()
        await server.stop(0)
