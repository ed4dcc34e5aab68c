"""A device plugin of our own, with nothing of the project but the messages: for tests in this process, and as a process.

python plugin.py FOLDER RESOURCE DEVICES: serves devices until killed, and registers with the agent in FOLDER whenever its socket is new. Each
device adds a variable, a mount of FOLDER/files, /dev/null under another name, an annotation and the CDI devices named in FOLDER/files/cdi. DEVICES: a file with the devices as JSON
(id to health), followed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import grpc

from allot.wire import device_plugin_v1beta1_pb2 as wire

RESOURCE = "vendor.example/gpu"
WAIT_S = 30.0


class PluginOnSocket:
    """One plugin. around: given the method and its request, may answer in place of it, or fail."""

    def __init__(
        self,
        folder: Path,
        resource: str = RESOURCE,
        devices: Mapping[str, str] | Sequence[str] = ("d0", "d1"),
        *,
        socket: str = "plugin.sock",
        pre_start: bool = False,
        preferred: Callable[[Any], Sequence[str]] | None = None,
    ) -> None:
        self.folder, self.resource, self.socket = folder, resource, socket
        self.devices = dict(devices) if isinstance(devices, Mapping) else dict.fromkeys(devices, "Healthy")
        self.numa: dict[str, tuple[int, ...]] = {}
        self.options = wire.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred is not None
        )
        self.preferred = preferred
        self.around: Callable[[str, Any], Awaitable[Any]] | None = None
        self.answer: Callable[[Sequence[str]], wire.ContainerAllocateResponse] = self._usual
        # What was asked: the method and the devices.
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.lists = 0
        self._changed = asyncio.Condition()
        self._version = 0
        self._server: grpc.aio.Server | None = None

    @property
    def path(self) -> Path:
        """Its socket."""
        return self.folder / self.socket

    async def start(self) -> Self:
        """Serve, without registering."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.aio.server()
        methods = {
            "GetDevicePluginOptions": (self._get_options, wire.Empty),
            "GetPreferredAllocation": (self._get_preferred, wire.PreferredAllocationRequest),
            "Allocate": (self._allocate, wire.AllocateRequest),
            "PreStartContainer": (self._pre_start, wire.PreStartContainerRequest),
        }
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                answer, request_deserializer=type_.FromString, response_serializer=_raw
            )
            for name, (answer, type_) in methods.items()
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._list, request_deserializer=wire.Empty.FromString, response_serializer=_raw
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()
        return self

    async def register(self, *, version: str = "v1beta1", endpoint: str | None = None) -> None:
        """Register with the agent."""
        request = wire.RegisterRequest(
            version=version, endpoint=self.socket if endpoint is None else endpoint, resource_name=self.resource
        )
        async with grpc.aio.insecure_channel(f"unix:{self.folder / 'kubelet.sock'}") as channel:
            send: Any = channel.unary_unary("/v1beta1.Registration/Register", _raw, wire.Empty.FromString)
            await send(request, timeout=WAIT_S, wait_for_ready=True)

    async def stop(self) -> None:
        """End at once, as a process that is killed, and remove the socket."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
        self.path.unlink(missing_ok=True)

    async def tell(self, **devices: str) -> None:
        """Report the devices again."""
        self.devices |= devices
        async with self._changed:
            self._version += 1
            self._changed.notify_all()

    # --- the service ---

    async def _get_options(self, _: Any, context: Any) -> Any:
        return await self._asked("GetDevicePluginOptions", (), context) or self.options

    async def _list(self, _: Any, context: Any) -> Any:
        while True:
            self.lists += 1
            seen = self._version
            listed = await self._asked("ListAndWatch", (), context) or wire.ListAndWatchResponse(
                devices=[
                    wire.Device(
                        ID=id_,
                        health=health,
                        topology=wire.TopologyInfo(nodes=[wire.NUMANode(ID=node) for node in self.numa[id_]])
                        if id_ in self.numa
                        else None,
                    )
                    for id_, health in self.devices.items()
                ]
            )
            yield listed
            async with self._changed:
                await self._changed.wait_for(lambda seen=seen: self._version != seen)

    async def _get_preferred(self, request: Any, context: Any) -> Any:
        (asked,) = request.container_requests
        answer = await self._asked("GetPreferredAllocation", tuple(asked.available_deviceIDs), context)
        assert self.preferred is not None
        found = answer or wire.PreferredAllocationResponse()
        if answer is None:
            found.container_responses.add(deviceIDs=self.preferred(asked))
        return found

    async def _allocate(self, request: Any, context: Any) -> Any:
        (asked,) = request.container_requests
        answer = await self._asked("Allocate", tuple(asked.devices_ids), context)
        return answer or wire.AllocateResponse(container_responses=[self.answer(asked.devices_ids)])

    async def _pre_start(self, request: Any, context: Any) -> Any:
        return (
            await self._asked("PreStartContainer", tuple(request.devices_ids), context)
            or wire.PreStartContainerResponse()
        )

    async def _asked(self, method: str, ids: tuple[str, ...], context: Any) -> Any:
        self.calls.append((method, ids))
        if self.around is None:
            return None
        answer = await self.around(method, ids)
        if isinstance(answer, str):
            await context.abort(grpc.StatusCode.UNKNOWN, answer)
        return answer

    def _usual(self, ids: Sequence[str]) -> wire.ContainerAllocateResponse:
        name = self.resource.rpartition("/")[2]
        files = self.folder / "files"
        files.mkdir(exist_ok=True)
        cdi = files / "cdi"
        return wire.ContainerAllocateResponse(
            envs={name.upper(): ",".join(sorted(ids)), f"{name.upper()}_MODE": "plugin"},
            mounts=[wire.Mount(host_path=str(files), container_path=f"/opt/{name}", read_only=True)],
            devices=[wire.DeviceSpec(host_path="/dev/null", container_path=f"/dev/{name}", permissions="rw")],
            annotations={f"{self.resource}-devices": ",".join(sorted(ids))},
            cdi_devices=[wire.CDIDevice(name=name) for name in (cdi.read_text().split() if cdi.exists() else ())],
        )

    def asked(self, method: str) -> list[tuple[str, ...]]:
        """The devices of the calls of a method."""
        return [ids for name, ids in self.calls if name == method]


def _raw(message: Any) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


@contextmanager
def plugin_process(folder: Path, devices: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A plugin with two devices as a process of its own."""
    devices.write_text('{"d0": "Healthy", "d1": "Healthy"}')
    process = subprocess.Popen([sys.executable, __file__, str(folder), RESOURCE, str(devices)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def main(folder: Path, resource: str, file: Path) -> None:
    """Until killed."""
    plugin = PluginOnSocket(folder, resource, json.loads(file.read_bytes()), socket="process.sock")
    known, agent = "", folder / "kubelet.sock"
    while True:
        with suppress(FileNotFoundError):
            # As a plugin does: a new socket of the agent means that it has started again, and has removed ours.
            found = f"{agent.stat().st_ino} {agent.stat().st_mtime_ns}"
            if found != known or not plugin.path.exists():
                await plugin.stop()
                await plugin.start()
                await plugin.register()
                known = found
        if (devices := json.loads(file.read_bytes() or b"{}")) and devices != plugin.devices:
            await plugin.tell(**devices)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
