"""Processes as containers: real ones, with their logs, mounts, ends, and lives beyond an agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.node.cdi.registry import CdiRegistry
from allot.node.logs import LogOptions, parse_line, read_log
from allot.node.runtimes.port import (
    Container,
    ContainerSpec,
    Mount,
    PodName,
    Resources,
    RuntimeFailure,
    SandboxSpec,
    State,
    User,
)
from allot.node.runtimes.process import ProcessRuntime
from allot.node.runtimes.process_limits import make_group, remove_group
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from waiting import WAIT_S, until

POD = PodName(uid="u-1", namespace="default", name="p")
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

pytestmark = pytest.mark.slow


class World:
    """A runtime in a folder, which can be closed and opened again."""

    def __init__(self, folder: Path, host_commands: bool) -> None:
        self.folder = folder
        self.host_commands = host_commands
        self.runtime = self._make()
        self.sandbox = ""

    def _make(self) -> ProcessRuntime:
        cdi = CdiRegistry((self.folder / "cdi",))
        return ProcessRuntime(
            self.folder / "runtime",
            SystemClock(),
            SystemIds(),
            environment=PATH,
            cdi_of=lambda _pod: cdi,
            host_commands=self.host_commands,
        )

    async def reopen(self) -> None:
        await self.runtime.close()
        self.runtime = self._make()
        await self.runtime.open()

    async def start(self, *command: str, name: str = "c", **more: Any) -> str:
        if not self.sandbox:
            spec = SandboxSpec(pod=POD, hostname="p", log_directory=str(self.folder / "log"))
            self.sandbox = (await self.runtime.run_sandbox(spec)).id
        spec = ContainerSpec(pod=POD, name=name, command=command, image="busybox:1", log_path=f"{name}.log", **more)
        made = await self.runtime.create_container(self.sandbox, spec)
        await self.runtime.start_container(made)
        return made

    async def container(self, id_: str) -> Container:
        return next(each for each in (await self.runtime.list())[1] if each.id == id_)

    async def ended(self, id_: str) -> Container:
        async def look() -> Container | None:
            found = await self.container(id_)
            return found if found.state == State.EXITED else None

        ended: Container = await until(look)
        return ended

    async def until_said(self, text: bytes, name: str = "c") -> None:
        """Until the container has written this line."""
        await until(lambda: text in (said for _, said in self.said(name)))

    def said(self, name: str = "c") -> list[tuple[bytes, bytes]]:
        lines = (parse_line(line) for line in (self.folder / "log" / f"{name}.log").read_bytes().splitlines())
        return [(line.stream, line.text) for line in lines if line is not None]

    def pids(self, id_: str) -> tuple[int, int]:
        ran = msgspec.json.decode((self.folder / "runtime/containers" / id_ / "run.json").read_bytes())
        return ran["pid"], ran["shim"]


@asynccontextmanager
async def opened(folder: Path, host_commands: bool) -> AsyncIterator[World]:
    made = World(folder, host_commands)
    await made.runtime.open()
    isolation = await made.runtime.isolation()
    if not isolation.runs:
        await made.runtime.close()
        pytest.skip(isolation.message)
    yield made
    for sandbox in (await made.runtime.list())[0]:
        await made.runtime.stop_sandbox(sandbox.id)
        await made.runtime.remove_sandbox(sandbox.id)
    assert not list((folder / "runtime/containers").iterdir())
    await made.runtime.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """In sandboxes."""
    async with opened(tmp_path, host_commands=False) as made:
        yield made


@pytest.fixture(params=[False, True], ids=["sandbox", "host"])
async def either(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """In sandboxes, and on the machine itself."""
    async with opened(tmp_path, request.param) as made:
        yield made


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text()


def children(pid: int) -> set[int]:
    """The processes that a process has started."""
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


async def test_what_holds_a_pod_ends_if_the_agent_does_before_it_has_written_it_down(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SandboxSpec(pod=POD, hostname="p", log_directory=str(world.folder / "log"))
    begun = asyncio.Event()

    async def wait(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    launcher = world.runtime._launcher._program
    assert launcher is not None
    # What the look for isolation has started may still be ending.
    await until(lambda: not children(launcher.pid))
    with monkeypatch.context() as patched:
        # Between its start and its file.
        patched.setattr(world.runtime._network, "open_host_ports", wait)
        making = asyncio.create_task(world.runtime.run_sandbox(spec))
        await begun.wait()
        (holder,) = children(launcher.pid)
        making.cancel()
        await until(lambda: not is_alive(holder))
    kept = await world.runtime.run_sandbox(spec)
    (holder,) = children(launcher.pid)
    # It has nothing open that could tell it of an end.
    await until(lambda: not list(Path(f"/proc/{holder}/fd").iterdir()))
    await world.reopen()
    assert is_alive(holder)
    assert [each.id for each in (await world.runtime.list())[0]] == [kept.id]


async def test_a_command_runs_with_its_environment_and_leaves_log_and_exit_code(either: World) -> None:
    world = either
    id_ = await world.start("sh", "-c", "echo $A $HOSTNAME; pwd; echo bad >&2; exit 3", environment={"A": "b"})
    found = await world.ended(id_)
    assert (found.exit_code, found.reason) == (3, "Error")
    assert found.started_at <= found.finished_at
    work = str(world.folder / "runtime/containers" / id_ / "work").encode() if world.host_commands else b"/"
    assert sorted(world.said()) == [(b"stderr", b"bad"), (b"stdout", work), (b"stdout", b"b p")]
    again = await world.start("sh", "-c", "kill -9 $$", name="killed")
    assert (await world.ended(again)).exit_code == 137


async def test_a_command_that_is_not_there_says_so(world: World) -> None:
    with pytest.raises(RuntimeFailure, match=r'"nosuch": executable file not found .*pulls no image.*"busybox:1"'):
        await world.start("nosuch")
    (_, (found,)) = await world.runtime.list()
    assert (found.state, found.exit_code, found.reason) == (State.EXITED, 128, "StartError")
    with pytest.raises(RuntimeFailure, match="has no command"):
        await world.start()
    with pytest.raises(RuntimeFailure, match="working directory /no/such: no such file"):
        await world.start("true", working_directory="/no/such")


async def test_what_a_container_leaves_behind_goes_with_it(either: World) -> None:
    mark = f"600.{os.getpid()}{either.host_commands:d}"
    id_ = await either.start("sh", "-c", f"(setsid sleep {mark} & echo $!); sleep 0.1")
    await either.ended(id_)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _content(path)]


async def test_a_container_may_clean_up_until_its_grace_ends(world: World) -> None:
    kind = await world.start(
        "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while true; do sleep 0.05; done", name="kind"
    )
    deaf = await world.start("sh", "-c", "trap '' TERM; echo up; while true; do sleep 0.05; done", name="deaf")
    for name in ("kind", "deaf"):
        await world.until_said(b"up", name)
    await world.runtime.stop_container(kind, 10.0)
    assert (await world.container(kind)).exit_code == 0
    assert world.said("kind") == [(b"stdout", b"up"), (b"stdout", b"bye")]
    # A second, shorter grace period wins over the first.
    slow = asyncio.create_task(world.runtime.stop_container(deaf, 600.0))
    await world.runtime.stop_container(deaf, 0.1)
    await slow
    assert (await world.container(deaf)).exit_code == 137


async def test_a_container_that_is_stopped_right_after_its_start_hears_of_it(world: World) -> None:
    for number in range(20):
        id_ = await world.start("sh", "-c", "echo hi; sleep 600", name=f"c{number}")
        await world.runtime.stop_container(id_, 600.0 if number % 2 else 0.0)
        assert (await world.container(id_)).exit_code == (143 if number % 2 else 137)


async def test_a_program_that_nobody_talks_to_any_more_does_not_hold_its_container(world: World) -> None:
    id_ = await world.start("sleep", "600")
    for tty in (False, True):
        program = await world.runtime.exec(id_, ("sh", "-c", "trap '' TERM HUP; sleep 600"), tty=tty, stdin=True)
        await program.close()
    left = await world.runtime.exec(id_, ("sleep", "600"), tty=True, stdin=True)
    await world.runtime.stop_container(id_, 600.0)
    assert (await world.container(id_)).exit_code == 143
    assert await left.exit_code() == 137
    await left.close()


async def test_containers_outlive_the_agent_and_their_end_is_not_missed(world: World) -> None:
    stays = await world.start("sleep", "600", name="stays")
    shared = world.folder / "shared"
    shared.mkdir()
    script = "until [ -e /shared/gone ]; do sleep 0.05; done; echo late; exit 5"
    mount = Mount(host_path=str(shared), container_path="/shared")
    goes = await world.start("sh", "-c", script, name="goes", mounts=(mount,))
    _, shim = world.pids(goes)
    await world.runtime.close()
    (shared / "gone").touch()
    await until(lambda: not is_alive(shim))
    await world.reopen()
    assert (await world.container(stays)).state == State.RUNNING
    assert (await world.container(goes)).exit_code == 5
    assert world.said("goes") == [(b"stdout", b"late")]
    changes = world.runtime.changes()
    await world.runtime.stop_container(stays, 5.0)
    assert await asyncio.wait_for(anext(changes), WAIT_S) == POD.uid
    assert (await world.container(stays)).exit_code == 143


async def test_without_its_shim_a_container_is_ended(either: World) -> None:
    world = either
    first = await world.start("sleep", "600", name="first")
    pid, shim = world.pids(first)
    os.kill(shim, signal.SIGKILL)
    assert (await world.ended(first)).exit_code == 137
    second = await world.start("sleep", "600", name="second")
    other, shim = world.pids(second)
    await world.runtime.close()
    os.kill(shim, signal.SIGKILL)
    await until(lambda: not is_alive(shim))
    await world.reopen()
    assert (await world.container(second)).reason == "ContainerStatusUnknown"
    await until(lambda: not is_alive(pid) and not is_alive(other))


async def test_volumes_appear_where_the_container_wants_them(either: World) -> None:
    world = either
    source = world.folder / "volume"
    source.mkdir()
    (source / "file").write_text("hello")
    mounts = tuple(
        Mount(host_path=str(source), container_path=path, read_only=read_only)
        for path, read_only in (
            ("/no-such-folder/deep", False),
            ("/etc/allot-test", True),
            ("/var/run/secrets/x", True),
        )
    )
    single = Mount(host_path=str(source / "file"), container_path="/dev/allot-message")
    script = (
        "cat /no-such-folder/deep/file /etc/allot-test/file /var/run/secrets/x/file; echo; echo new > /dev/allot-message;"
        "touch /etc/allot-test/y || echo refused; test -e /etc/passwd && echo machine; sleep 600"
    )
    id_ = await world.start("sh", "-c", script, mounts=(*mounts, single))
    await world.until_said(b"machine")
    code, said = await world.runtime.exec_sync(id_, ("cat", "/no-such-folder/deep/file"), 10.0)
    assert (code, said) == (0, b"new\n")
    await world.runtime.stop_container(id_, 0.0)
    texts = [text for stream, text in world.said() if stream == b"stdout"]
    assert texts == [b"hellohellohello", b"refused", b"machine"]
    for path in ("/no-such-folder", "/etc/allot-test", "/dev/allot-message"):
        assert not Path(path).exists()


async def test_devices_bring_variables_mounts_and_hooks(world: World) -> None:
    (world.folder / "cdi").mkdir()
    tool = world.folder / "tool"
    tool.write_text("#!/bin/sh\necho it works\n")
    tool.chmod(0o755)
    seen = world.folder / "hook"
    hook = ["sh", "-c", f"cat > {seen}.$0"]
    edits = {
        "env": ["GPU=gpu-1"],
        "mounts": [{"hostPath": str(tool), "containerPath": "/usr/bin/allot-tool", "options": ["ro", "bind"]}],
        "deviceNodes": [{"path": "/dev/null"}],
        "hooks": [
            {"hookName": "createRuntime", "path": "/bin/sh", "args": [*hook, "before"], "env": ["PATH=/usr/bin:/bin"]},
            {"hookName": "poststop", "path": "/bin/sh", "args": [*hook, "after"], "env": ["PATH=/usr/bin:/bin"]},
        ],
    }
    spec = {"cdiVersion": "0.8.0", "kind": "example.com/gpu", "devices": [{"name": "one", "containerEdits": edits}]}
    (world.folder / "cdi/gpu.json").write_bytes(msgspec.json.encode(spec))
    with pytest.raises(RuntimeFailure, match=r"unresolvable CDI devices example\.com/gpu=two"):
        await world.start("true", cdi_devices=("example.com/gpu=two",))
    id_ = await world.start("sh", "-c", "echo $GPU; allot-tool", cdi_devices=("example.com/gpu=one",))
    assert (await world.ended(id_)).exit_code == 0
    assert [text for _, text in world.said()] == [b"gpu-1", b"it works"]
    assert msgspec.json.decode(Path(f"{seen}.before").read_bytes())["id"] == id_
    assert not Path(f"{seen}.after").exists()
    await world.runtime.remove_container(id_)
    assert msgspec.json.decode(Path(f"{seen}.after").read_bytes())["status"] == "stopped"


async def test_somebody_can_talk_to_a_container_and_to_programs_in_it(either: World) -> None:
    world = either
    id_ = await world.start(
        "sh", "-c", "while read line; do echo got $line; done; echo over", stdin=True, stdin_once=True
    )
    attached = await world.runtime.attach(id_)
    await attached.write(b"one\n")
    output = attached.output()
    assert await anext(output) == (1, b"got one\n")
    program = await world.runtime.exec(id_, ("sh", "-c", "cat; echo no >&2; exit 4"), tty=False, stdin=True)
    await program.write(b"typed")
    await program.write(b"")
    assert sorted([said async for said in program.output()]) == [(1, b"typed"), (2, b"no\n")]
    assert await program.exit_code() == 4
    await program.close()
    terminal = await world.runtime.exec(id_, ("sh", "-c", "stty size; tty"), tty=True, stdin=True)
    said = b"".join([data async for _, data in terminal.output()])
    assert b"/dev/pts/" in said
    assert await terminal.exit_code() == 0
    await terminal.close()
    # Input that was promised only once ends with whoever gave it.
    await attached.close()
    assert (await world.ended(id_)).exit_code == 0
    assert world.said()[-1] == (b"stdout", b"over")
    with pytest.raises(RuntimeFailure, match="not running"):
        await world.runtime.exec(id_, ("true",), tty=False, stdin=False)


async def test_a_log_is_followed_and_chosen_from(world: World) -> None:
    id_ = await world.start("sh", "-c", "for i in 1 2 3; do echo line $i; done; sleep 0.4; printf rest")
    path = world.folder / "log/c.log"

    async def is_running() -> bool:
        return (await world.container(id_)).state == State.RUNNING

    async def text(options: LogOptions) -> bytes:
        return b"".join([piece async for piece in read_log(path, options, is_running)])

    assert await text(LogOptions(follow=True)) == b"line 1\nline 2\nline 3\nrest\n"
    assert await text(LogOptions(tail=2)) == b"line 3\nrest\n"
    assert await text(LogOptions(tail=0)) == b""
    assert await text(LogOptions(limit_bytes=8)) == b"line 1\nl"
    assert await text(LogOptions(stream="Stderr")) == b""
    assert (await text(LogOptions(tail=1, timestamps=True))).endswith(b"Z rest\n")
    assert await text(LogOptions(since=(await world.ended(id_)).finished_at - 0.2)) == b"rest\n"


async def test_limits_hold_where_control_groups_can_be_made(world: World) -> None:
    limits = Resources(memory_limit_bytes=32 * 1024 * 1024, cpu_milli_limit=500, cpu_milli_request=100, cpuset_cpus="0")
    if not (group := make_group("probe", limits)).folders:
        pytest.skip("this machine lets us make no control groups")
    remove_group(group)
    eats = "import os; print(os.sched_getaffinity(0), flush=True); x = bytearray(200_000_000); print(len(x))"
    id_ = await world.start(sys.executable, "-c", eats, resources=limits)
    found = await world.ended(id_)
    assert (found.exit_code, found.reason) == (137, "OOMKilled")
    assert world.said() == [(b"stdout", b"{0}")]
    await world.runtime.remove_container(id_)
    assert not any(Path(folder).exists() for folder in group.folders)
    assert not list(Path("/sys/fs/cgroup").glob(f"**/allot-{id_}"))


async def test_a_process_gets_other_limits_while_it_runs_but_none_that_it_was_started_without(world: World) -> None:
    limits = Resources(memory_limit_bytes=64 * 2**20)
    if not (group := make_group("probe", limits)).folders:
        pytest.skip("this machine lets us make no control groups")
    remove_group(group)
    grows = "import sys, time; input(); x = bytearray(96_000_000); print(len(x), flush=True); time.sleep(600)"
    id_ = await world.start(sys.executable, "-c", grows, resources=limits, stdin=True)
    await world.runtime.update_container(id_, Resources(memory_limit_bytes=256 * 2**20))
    streams = await world.runtime.attach(id_)
    await streams.write(b"\n")
    assert await anext(streams.output()) == (1, b"96000000\n")
    await streams.close()
    if not (Path("/sys/fs/cgroup") / "cgroup.controllers").exists():
        with pytest.raises(RuntimeFailure, match="it runs without a limit of cpu, and gets one when it is restarted"):
            await world.runtime.update_container(id_, Resources(cpu_milli_limit=100))
    free = await world.start("sleep", "600")
    with pytest.raises(RuntimeFailure, match="it runs without a limit of memory"):
        await world.runtime.update_container(free, limits)
    assert not list(Path("/sys/fs/cgroup").glob(f"**/allot-{free}*"))
    for each in (id_, free):
        await world.runtime.stop_container(each, 0.0)


async def test_a_long_log_goes_on_in_a_new_file_and_is_followed_there(world: World) -> None:
    line = "x" * 1000
    script = f"i=0; while [ $i -lt 12000 ]; do echo {line}; i=$((i+1)); done; echo last"
    id_ = await world.start("sh", "-c", script)
    path = world.folder / "log/c.log"

    async def is_running() -> bool:
        return (await world.container(id_)).state == State.RUNNING

    count, end = 0, b""
    async for piece in read_log(path, LogOptions(follow=True), is_running):
        count += piece.count(b"\n")
        end = piece[-5:]
    assert (count, end) == (12001, b"last\n")
    assert path.with_name("c.log.1").stat().st_size > path.stat().st_size


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_is_at_home_below_a_folder_that_is_not_his(either: World, tmp_path: Path) -> None:
    """The agent's own folders are for nobody else, and so is pytest's."""
    tmp_path.chmod(0o700)
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    mounts = (Mount(host_path=str(volume), container_path="/volume"),)
    script = "echo here > file; cat file; id -u; echo mine > /volume/made; cat /volume/made"
    id_ = await either.start("sh", "-c", script, user=User(user=1234, group=1234), mounts=mounts)
    assert (await either.ended(id_)).exit_code == 0
    assert [text for _, text in either.said()] == [b"here", b"1234", b"mine"]
    lasting = await either.start("sleep", "600", name="lasting", user=User(user=1234, group=1234))
    code, said = await either.runtime.exec_sync(lasting, ("id", "-u"), 10.0)
    assert (code, said) == (0, b"1234\n")


async def test_a_setting_of_the_kernel_is_the_pods_or_is_refused(world: World) -> None:
    shared = SandboxSpec(pod=POD, hostname="p", sysctls={"net.ipv4.ip_unprivileged_port_start": "80"})
    with pytest.raises(RuntimeFailure, match="the pod has no separate namespace for that on this node"):
        await world.runtime.run_sandbox(shared)
    before = Path("/proc/sys/kernel/shm_rmid_forced").read_text()
    wanted = "0" if before.strip() == "1" else "1"
    own = SandboxSpec(pod=POD, hostname="p", sysctls={"kernel.shm_rmid_forced": wanted})
    own = msgspec.structs.replace(own, log_directory=str(world.folder / "log"))
    try:
        world.sandbox = (await world.runtime.run_sandbox(own)).id
    except RuntimeFailure as error:
        # Kernels before 5.19 let only the machine's root do that.
        assert "sysctl kernel.shm_rmid_forced" in str(error)
        pytest.skip(str(error))
    await world.ended(await world.start("cat", "/proc/sys/kernel/shm_rmid_forced"))
    assert [text for _, text in world.said()] == [wanted.encode()]
    assert Path("/proc/sys/kernel/shm_rmid_forced").read_text() == before
