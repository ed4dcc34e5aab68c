"""A pod in the process runtime that tries to get out, as whoever runs this: reads what to try, writes what came of it.

A program of its own, so that tests can run it as another user, or where the kernel allows no namespaces.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from allot.node.containers import TERMINATION_FILE
from allot.node.runtimes.port import ContainerSpec, Mount, PodName, PodVolume, RuntimeFailure, SandboxSpec, State, User
from allot.node.runtimes.process import ProcessRuntime
from allot.node.runtimes.simulated import SimulatedRuntime
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds

POD = PodName(uid="u-1", namespace="default", name="p")
ENVIRONMENT = {"PATH": f"{os.environ.get('EXTRA', '')}:/usr/local/bin:/usr/bin:/bin"}


class Asked(msgspec.Struct, kw_only=True):
    """folder: the agent's; scripts: what the container tries, by name; mounts: paths of the machine, and where they are mounted."""

    folder: str
    scripts: dict[str, str] = {}
    mounts: dict[str, str] = {}
    masked: list[str] = []
    volume_bytes: int = 8 * 2**20
    user: int | None = None
    read_only_root: bool = False
    host_commands: bool = False


class Came(msgspec.Struct, kw_only=True):
    """What came of it: exit code and output of each script, and what was left on the machine's disk."""

    is_on: bool
    runs: bool
    message: str
    failure: str = ""
    placeholder: str = ""
    said: dict[str, tuple[int, str]] = {}
    disk_bytes: int = 0
    message_bytes: int = 0


async def attempt(asked: Asked) -> Came:
    folder = Path(asked.folder)
    runtime = ProcessRuntime(
        folder / "runtime",
        SystemClock(),
        SystemIds(),
        environment=ENVIRONMENT,
        host_commands=asked.host_commands,
        masked=[folder, *map(Path, asked.masked)],
    )
    await runtime.open()
    isolation = await runtime.isolation()
    came = Came(is_on=isolation.is_on, runs=isolation.runs, message=isolation.message)
    try:
        if isolation.runs:
            await _run(runtime, asked, came, folder)
        else:
            came.placeholder = await _placeholder(runtime, came)
    finally:
        for sandbox in (await runtime.list())[0]:
            await runtime.stop_sandbox(sandbox.id)
        came.disk_bytes = sum(each.lstat().st_blocks * 512 for each in folder.rglob("*"))
        for sandbox in (await runtime.list())[0]:
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()
    return came


async def _run(runtime: ProcessRuntime, asked: Asked, came: Came, folder: Path) -> None:
    volume, messages = folder / "volume", folder / "containers"
    for each in (volume, messages):
        each.mkdir(exist_ok=True)
    volume.chmod(0o777)
    message = messages / "c"
    message.touch()
    message.chmod(0o666)
    spec = SandboxSpec(
        pod=POD,
        hostname="p",
        log_directory=str(folder / "log"),
        volumes=(
            PodVolume(path=str(volume), size_bytes=asked.volume_bytes),
            PodVolume(path=str(messages), size_bytes=2**20),
        ),
    )
    sandbox = await runtime.run_sandbox(spec)
    mounts = {str(volume): "/data", str(message): "/dev/termination-log", **asked.mounts}
    made = await runtime.create_container(
        sandbox.id,
        ContainerSpec(
            pod=POD,
            name="c",
            command=("sh", "-c", "while true; do sleep 61; done"),
            # Those of a container on the machine itself need namespaces, too.
            mounts=()
            if asked.host_commands
            else tuple(Mount(host_path=source, container_path=target) for source, target in mounts.items()),
            user=User(user=asked.user, read_only_root=asked.read_only_root),
            annotations={TERMINATION_FILE: str(message)},
        ),
    )
    await runtime.start_container(made)
    for name, script in asked.scripts.items():
        streams = await runtime.exec(made, ("sh", "-c", f"exec 2>&1; {script}"), tty=False, stdin=False)
        said = b"".join([data async for _, data in streams.output()])
        came.said[name] = (await streams.exit_code(), said.decode(errors="replace"))
        await streams.close()
    await runtime.stop_container(made, 0.0)
    came.message_bytes = message.stat().st_size


async def _placeholder(runtime: ProcessRuntime, came: Came) -> str:
    """What becomes of a container on a process node, and of the same on a simulated one."""
    try:
        await runtime.run_sandbox(SandboxSpec(pod=POD))
    except RuntimeFailure as error:
        came.failure = str(error)
    simulated = SimulatedRuntime(runtime, SystemClock(), SystemIds())
    await simulated.open()
    sandbox = await simulated.run_sandbox(SandboxSpec(pod=POD))
    made = await simulated.create_container(sandbox.id, ContainerSpec(pod=POD, name="c", command=("sh",)))
    await simulated.start_container(made)
    _, (found,) = await simulated.of(POD.uid)
    assert found.state == State.RUNNING
    return (await simulated.exec_sync(made, ("true",), 1.0))[1].decode()


def main() -> None:
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(attempt(asked))))


if __name__ == "__main__":
    main()
