"""The runtime `cri` against a real containerd, with an image made of busybox. Needs root and scripts/fetch-containerd."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from allot.core.lifecycle.pull_secrets import Credentials
from allot.node.runtimes.cri import CriOptions, CriRuntime
from allot.node.runtimes.port import (
    Confinement,
    Container,
    ContainerSpec,
    Mount,
    PodName,
    Resources,
    RuntimeFailure,
    SandboxSpec,
    State,
    Streams,
    User,
)
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from containerd_server import IMAGE, ContainerdServer, Registry, why_not
from waiting import WAIT_S

pytestmark = pytest.mark.slow
REFUSALS = ("operation not supported", "operation not permitted", "permission denied")
LASTS = ("sleep", "1000")


@pytest.fixture(scope="module")
def server() -> Iterator[ContainerdServer]:
    if reason := why_not():
        pytest.skip(reason)
    # Sockets below it must have short names.
    server = ContainerdServer(Path(tempfile.mkdtemp(prefix="allot-cri-")))
    try:
        server.start()
        server.import_image()
        try:
            asyncio.run(_try_sandbox(server))
        except RuntimeFailure as error:
            if any(each in str(error).lower() for each in REFUSALS):
                pytest.skip(f"this machine does not let containers run: {error}")
            raise
        yield server
        server.remove_containers()
    finally:
        server.kill()
        server.clean()


async def _try_sandbox(server: ContainerdServer) -> None:
    runtime = await _open(server)
    try:
        sandbox = await runtime.run_sandbox(SandboxSpec(pod=_new_pod()))
        await runtime.remove_sandbox(sandbox.id)
    finally:
        await runtime.close()


async def _open(server: ContainerdServer, *, poll_s: float = 0.1, relist_s: float = 30.0) -> CriRuntime:
    options = CriOptions(socket=str(server.socket), poll_s=poll_s, relist_s=relist_s)
    runtime = CriRuntime(SystemClock(), options)
    await runtime.open()
    return runtime


@pytest.fixture
async def runtime(server: ContainerdServer) -> AsyncIterator[CriRuntime]:
    runtime = await _open(server)
    yield runtime
    await runtime.close()


def _new_pod() -> PodName:
    uid = SystemIds().new_uid()
    return PodName(uid=uid, namespace="team", name=f"pod-{uid[:8]}")


class RunningPod:
    """A pod with a sandbox, for one test."""

    def __init__(self, runtime: CriRuntime, spec: SandboxSpec, sandbox_id: str) -> None:
        self.runtime = runtime
        self.spec = spec
        self.sandbox_id = sandbox_id
        self.pod = spec.pod

    async def create(self, name: str = "main", **more: object) -> str:
        image_id = await self.runtime.ensure_image(IMAGE, "IfNotPresent", self.pod)
        spec = ContainerSpec(pod=self.pod, name=name, image=IMAGE, image_id=image_id, log_path=f"{name}/0.log", **more)  # type: ignore[arg-type]
        return await self.runtime.create_container(self.sandbox_id, spec)

    async def start(self, name: str = "main", **more: object) -> str:
        id_ = await self.create(name, **more)
        await self.runtime.start_container(id_)
        return id_

    async def container(self, id_: str) -> Container:
        _, containers = await self.runtime.list()
        return next(each for each in containers if each.id == id_)

    async def ended(self, id_: str) -> Container:
        while (found := await self.container(id_)).state != State.EXITED:
            await asyncio.sleep(0.02)
        return found

    async def log(self, name: str = "main", *, lines: int = 1) -> list[tuple[str, str]]:
        """What a container has said, line by line with its stream. containerd writes the last lines soon after the end."""
        path = Path(self.spec.log_directory) / name / "0.log"
        async with asyncio.timeout(WAIT_S):
            while len(said := path.read_text().splitlines()) < lines:
                await asyncio.sleep(0.02)
        return [(line.split(" ")[1], line.split(" ", 3)[3]) for line in said]


async def _run_pod(runtime: CriRuntime, logs: Path, **more: object) -> RunningPod:
    spec = SandboxSpec(pod=_new_pod(), hostname="box", log_directory=str(logs), **more)  # type: ignore[arg-type]
    return RunningPod(runtime, spec, (await runtime.run_sandbox(spec)).id)


@pytest.fixture
async def pod(runtime: CriRuntime, tmp_path: Path) -> AsyncIterator[RunningPod]:
    pod = await _run_pod(runtime, tmp_path / "logs")
    yield pod
    await runtime.remove_sandbox(pod.sandbox_id)


async def _all(streams: Streams) -> dict[int, bytes]:
    said = {1: b"", 2: b""}
    async for kind, data in streams.output():
        said[kind] += data
    return said


async def test_containerd_is_ready_and_says_who_it_is(runtime: CriRuntime) -> None:
    status = await runtime.status()
    assert (status.name, status.ready, status.network_ready, status.message) == ("containerd", True, True, "")
    assert status.version.startswith("2.")


async def test_an_image_that_is_there_is_not_pulled_and_one_that_is_not_fails_as_its_policy_says(
    runtime: CriRuntime,
) -> None:
    pod = _new_pod()
    assert (await runtime.ensure_image(IMAGE, "IfNotPresent", pod)).startswith("sha256:")
    assert await runtime.ensure_image(IMAGE, "Never", pod) == await runtime.ensure_image(IMAGE, "", pod)
    absent = "127.0.0.1:1/absent:1"
    for image, policy, reason, text in (
        (absent, "Never", "ErrImageNeverPull", f'Container image "{absent}" is not present with pull policy of Never'),
        (absent, "IfNotPresent", "ErrImagePull", "connection refused"),
        ("127.0.0.1:1/absent", "", "ErrImagePull", "absent:latest"),
        ("no such name", "Always", "InvalidImageName", 'couldn\'t parse image name "no such name"'),
    ):
        with pytest.raises(RuntimeFailure) as failed:
            await runtime.ensure_image(image, policy, pod)
        assert failed.value.reason == reason
        assert text in str(failed.value)


async def test_an_image_is_pulled_by_whom_its_registry_knows(server: ContainerdServer, runtime: CriRuntime) -> None:
    pod = _new_pod()
    registry = Registry((server.binaries / "busybox").read_bytes(), "me", "right")
    wrong, right = Credentials(username="me", password="wrong"), Credentials(username="me", password="right")
    async with registry.serving() as image:
        for refused in ((), (wrong,)):
            with pytest.raises(RuntimeFailure, match=r"401|authorization failed") as failed:
                await runtime.ensure_image(image, "IfNotPresent", pod, refused)
            assert failed.value.reason == "ErrImagePull"
        id_ = await runtime.ensure_image(image, "IfNotPresent", pod, (wrong, right))
        assert await runtime.ensure_image(image, "IfNotPresent", pod) == id_
        assert registry.pulls == 1
        assert await runtime.ensure_image(image, "Always", pod, (right,)) == id_
        assert registry.pulls == 2


async def test_a_container_gets_what_its_cdi_device_adds(
    server: ContainerdServer, pod: RunningPod, tmp_path: Path
) -> None:
    (tmp_path / "smi").write_text("one device")
    edits = {
        "env": ["VISIBLE_DEVICES=0"],
        "deviceNodes": [{"path": "/dev/accelerator0", "hostPath": "/dev/null"}],
        "mounts": [{"hostPath": str(tmp_path / "smi"), "containerPath": "/opt/smi", "options": ["ro", "bind"]}],
    }
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "example.com/gpu",
        "devices": [{"name": "claim-0", "containerEdits": edits}],
        "containerEdits": {"env": ["SPEC_WIDE=1"]},
    }
    # containerd notices files that are renamed inside its folder, not those that come from elsewhere.
    temporary = server.cdi / "gpu.new"
    temporary.write_text(json.dumps(spec))
    temporary.rename(server.cdi / "example.com-gpu.json")
    id_ = await pod.start(command=LASTS, cdi_devices=("example.com/gpu=claim-0", "example.com/gpu=claim-0"))
    script = "echo $VISIBLE_DEVICES $SPEC_WIDE; cat /opt/smi; echo; test -c /dev/accelerator0 && echo x > /dev/accelerator0; echo $?"
    code, said = await pod.runtime.exec_sync(id_, ("sh", "-c", script), 10)
    assert (code, said.decode().split("\n")) == (0, ["0 1", "one device", "0", ""])


async def test_a_cdi_name_that_nobody_knows_fails_with_its_name(pod: RunningPod) -> None:
    with pytest.raises(RuntimeFailure, match=r"does not know CDI device example\.com/gpu=absent: ") as failed:
        await pod.create(command=LASTS, cdi_devices=("example.com/gpu=absent",))
    assert failed.value.reason == "CreateContainerError"
    with pytest.raises(RuntimeFailure, match="not a name"):
        await pod.create(command=LASTS, cdi_devices=("not a name",))
    # The pod can go on with others.
    await pod.start(command=LASTS)


async def test_what_a_container_says_is_in_its_log_and_how_it_ended_in_the_list(pod: RunningPod) -> None:
    # containerd notes the start of a container after it was started: one that ends at once may end before that.
    script = "echo out; echo err >&2; sleep 0.3; exit 7"
    ended = await pod.ended(await pod.start(command=("sh", "-c"), args=(script,)))
    assert (ended.exit_code, ended.reason, ended.pod, ended.name) == (7, "Error", pod.pod, "main")
    assert ended.created_at <= ended.started_at <= ended.finished_at
    assert sorted(await pod.log(lines=2)) == [("stderr", "err"), ("stdout", "out")]
    ended = await pod.ended(await pod.start("second", command=("true",)))
    assert (ended.exit_code, ended.reason) == (0, "Completed")


async def test_environment_directory_mounts_and_user_are_as_asked_for(pod: RunningPod, tmp_path: Path) -> None:
    for name in ("open", "closed"):
        (tmp_path / name).mkdir(mode=0o777)
        (tmp_path / name).chmod(0o777)
    user = User(
        seccomp=Confinement(kind="RuntimeDefault"),
        user=1000,
        group=2000,
        supplemental_groups=(3000,),
        read_only_root=True,
        allow_privilege_escalation=False,
    )
    id_ = await pod.start(
        command=LASTS,
        environment={"GREETING": "hi $USER", "EMPTY": ""},
        working_directory="/tmp",
        user=user,
        mounts=(
            Mount(host_path=str(tmp_path / "open"), container_path="/open"),
            Mount(host_path=str(tmp_path / "closed"), container_path="/closed", read_only=True),
        ),
    )
    script = (
        'echo "$GREETING|$EMPTY|$FROM_IMAGE|$HOSTNAME|$PWD"; id -u; id -g; id -G; echo x > /open/written; '
        "for place in /closed /bin; do echo x 2>/dev/null > $place/x || echo no $place; done; cat /proc/self/status"
    )
    code, said = await pod.runtime.exec_sync(id_, ("sh", "-c", script), 10)
    lines = said.decode().splitlines()
    assert code == 0
    assert lines[:4] == ["hi $USER||yes|box|/tmp", "1000", "2000", "2000 3000"]
    assert (tmp_path / "open" / "written").read_text() == "x\n"
    assert [line for line in lines if line.startswith("no ")] == ["no /closed", "no /bin"]
    assert "NoNewPrivs:\t1" in lines
    # Filtered.
    assert "Seccomp:\t2" in lines


async def test_a_group_without_a_user_joins_the_image_s_own_user(pod: RunningPod) -> None:
    id_ = await pod.start(command=LASTS, user=User(group=2000))
    assert await pod.runtime.exec_sync(id_, ("sh", "-c", "echo $(id -u) $(id -g)"), 10) == (0, b"0 2000\n")


async def test_a_privileged_pod_sees_the_machine(runtime: CriRuntime, tmp_path: Path) -> None:
    pod = await _run_pod(runtime, tmp_path, privileged=True, host_network=True, host_pid=True)
    id_ = await pod.start(command=LASTS, user=User(privileged=True))
    for kind in ("net", "pid"):
        code, said = await runtime.exec_sync(id_, ("readlink", f"/proc/self/ns/{kind}"), 10)
        assert (code, said.decode().strip()) == (0, os.readlink(f"/proc/self/ns/{kind}"))  # noqa: PTH115 - no path
    sandboxes, _ = await runtime.list()
    assert next(each for each in sandboxes if each.id == pod.sandbox_id).ips == ()
    await runtime.remove_sandbox(pod.sandbox_id)


async def test_a_container_that_takes_too_much_memory_is_ended_and_the_list_says_so(pod: RunningPod) -> None:
    resources = Resources(cpu_milli_limit=500, memory_limit_bytes=16 * 1024 * 1024)
    # tail keeps a line that never ends.
    id_ = await pod.start(command=("tail", "-n", "1", "/dev/zero"), resources=resources)
    ended = await pod.ended(id_)
    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


async def test_a_program_that_the_image_has_not_got_fails_at_the_start(pod: RunningPod) -> None:
    id_ = await pod.create(command=("nvidia-smi",))
    assert (await pod.container(id_)).state == State.CREATED
    with pytest.raises(RuntimeFailure, match="executable file not found") as failed:
        await pod.runtime.start_container(id_)
    assert failed.value.reason == "RunContainerError"


async def test_programs_are_run_inside_with_input_output_and_exit_code(pod: RunningPod) -> None:
    id_ = await pod.start(command=LASTS)
    streams = await pod.runtime.exec(id_, ("sh", "-c", "cat; echo problem >&2; exit 3"), tty=False, stdin=True)
    data = os.urandom(1024) * 1024
    writing = asyncio.create_task(_write_all(streams, data))
    said = await _all(streams)
    await writing
    assert said[1] == data
    assert said[2] == b"problem\n"
    assert await streams.exit_code() == 3
    await streams.close()
    absent = await pod.runtime.exec(id_, ("absent",), tty=False, stdin=False)
    await _all(absent)
    with pytest.raises(RuntimeFailure, match='"absent": executable file not found'):
        await absent.exit_code()
    await absent.close()


async def _write_all(streams: Streams, data: bytes) -> None:
    for start in range(0, len(data), 100_000):
        await streams.write(data[start : start + 100_000])
    await streams.write(b"")


# The size is set beside the input, not in its order.
SIZED = 'read line; until [ "$(stty size 2>/dev/null)" = "43 132" ]; do sleep 0.05; done; stty size; echo $line >&2'


async def test_a_terminal_has_a_size_and_one_stream(pod: RunningPod) -> None:
    id_ = await pod.start(command=LASTS)
    streams = await pod.runtime.exec(id_, ("sh", "-c", SIZED), tty=True, stdin=True)
    await streams.resize(132, 43)
    await streams.write(b"typed\n")
    said = await _all(streams)
    assert said[1].replace(b"\r", b"").split() == [b"typed", b"43", b"132", b"typed"]
    assert (said[2], await streams.exit_code()) == (b"", 0)
    await streams.close()


async def test_probes_get_exit_code_and_output_within_their_time(pod: RunningPod) -> None:
    id_ = await pod.start(command=LASTS)
    assert await pod.runtime.exec_sync(id_, ("sh", "-c", "echo out; echo err >&2; exit 4"), 5) == (4, b"out\nerr\n")
    with pytest.raises(TimeoutError):
        await pod.runtime.exec_sync(id_, ("sleep", "100"), 1)
    await pod.runtime.stop_container(id_, 0)
    with pytest.raises(RuntimeFailure) as failed:
        await pod.runtime.exec_sync(id_, ("true",), 5)
    assert failed.value.reason == "ExecError"


async def test_attach_talks_to_the_container_itself(pod: RunningPod) -> None:
    script = "while read line; do echo got $line; done; echo over"
    id_ = await pod.start(command=("sh", "-c", script), stdin=True, stdin_once=True)
    streams = await pod.runtime.attach(id_)
    output = streams.output()
    await streams.write(b"one\n")
    assert await anext(output) == (1, b"got one\n")
    await streams.write(b"two\n")
    assert await anext(output) == (1, b"got two\n")
    await streams.write(b"")
    assert b"".join([data async for _, data in output]) == b"over\n"
    assert await streams.exit_code() == 0
    await streams.close()
    await pod.ended(id_)
    assert await pod.log(lines=3) == [("stdout", "got one"), ("stdout", "got two"), ("stdout", "over")]


async def test_ports_of_a_pod_are_reached(pod: RunningPod) -> None:
    id_ = await pod.start(command=("sh", "-c", "nc -l -p 8080 -e cat; sleep 1000"))
    listens = "until grep -q ':1F90 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done"
    assert (await pod.runtime.exec_sync(id_, ("sh", "-c", listens), WAIT_S))[0] == 0
    streams = await pod.runtime.connect(pod.sandbox_id, 8080)
    output = streams.output()
    await streams.write(b"echo this")
    assert await anext(output) == (1, b"echo this")
    await streams.close()
    closed = await pod.runtime.connect(pod.sandbox_id, 9)
    with pytest.raises(RuntimeFailure, match="connection refused") as failed:
        await _all(closed)
    assert failed.value.reason == "PortForwardError"
    await closed.close()


async def test_another_agent_finds_everything_and_goes_on_with_it(server: ContainerdServer, pod: RunningPod) -> None:
    annotations = {"allot.dev/termination-message-file": "/some/file"}
    first = await pod.start(command=LASTS, attempt=2, annotations=annotations)
    before = await pod.runtime.list()
    later = await _open(server)
    assert await later.list() == before
    found = next(each for each in before[1] if each.id == first)
    assert (found.attempt, found.state, found.image, found.pod) == (2, State.RUNNING, IMAGE, pod.pod)
    assert found.annotations["allot.dev/termination-message-file"] == "/some/file"
    assert found.annotations["io.kubernetes.container.restartCount"] == "2"
    # An agent that has not even listed makes a container in a sandbox of an earlier one.
    latest = await _open(server)
    again = RunningPod(latest, pod.spec, pod.sandbox_id)
    ended = await again.ended(await again.start("second", command=("sh", "-c", "echo $HOSTNAME")))
    assert ended.exit_code == 0
    assert await again.log("second") == [("stdout", "box")]
    await later.close()
    await latest.close()


async def test_a_container_that_an_earlier_agent_did_not_start_makes_room(
    server: ContainerdServer, pod: RunningPod
) -> None:
    await pod.create(command=LASTS)
    again = RunningPod(await _open(server), pod.spec, pod.sandbox_id)
    id_ = await again.start(command=LASTS)
    _, containers = await again.runtime.list()
    assert [each.id for each in containers if each.pod == pod.pod] == [id_]
    # One that runs stays.
    with pytest.raises(RuntimeFailure, match="reserved"):
        await again.start(command=LASTS)
    assert (await again.container(id_)).state == State.RUNNING
    await again.runtime.close()


async def test_stopping_and_removing_twice_or_what_is_not_there_succeeds(pod: RunningPod) -> None:
    runtime = pod.runtime
    id_ = await pod.start(command=("sh", "-c", "trap 'exit 5' TERM; echo ready; while true; do sleep 0.05; done"))
    assert await pod.log() == [("stdout", "ready")]
    await runtime.stop_container(id_, 20)
    assert (await pod.container(id_)).exit_code == 5
    await runtime.stop_container(id_, 20)
    for _ in range(2):
        await runtime.remove_container(id_)
    # Still running when it is removed.
    running = await pod.start("second", command=LASTS)
    await runtime.remove_container(running)
    await pod.start("third", command=LASTS)
    for _ in range(2):
        await runtime.stop_sandbox(pod.sandbox_id)
    sandboxes, containers = await runtime.list()
    assert [each.ready for each in sandboxes if each.id == pod.sandbox_id] == [False]
    assert [each.state for each in containers if each.pod == pod.pod] == [State.EXITED]
    for _ in range(2):
        await runtime.remove_sandbox(pod.sandbox_id)
    for stop in (runtime.stop_sandbox, runtime.remove_sandbox, runtime.remove_container):
        await stop("f" * 64)
    await runtime.stop_container("f" * 64, 1)
    sandboxes, containers = await runtime.list()
    assert pod.pod not in {each.pod for each in (*sandboxes, *containers)}


async def test_a_container_that_does_not_listen_is_ended_after_its_grace_period(pod: RunningPod) -> None:
    id_ = await pod.start(command=("sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 0.05; done"))
    assert await pod.log() == [("stdout", "deaf")]
    await pod.runtime.stop_container(id_, 0.5)
    assert (await pod.container(id_)).exit_code == 137


async def _next_of(changes: AsyncIterator[str], pod: PodName) -> None:
    async with asyncio.timeout(WAIT_S):
        async for uid in changes:
            if uid == pod.uid:
                return


async def test_the_runtime_tells_when_something_changed(server: ContainerdServer, pod: RunningPod) -> None:
    # One that would not find out by lists.
    runtime = await _open(server, poll_s=1000.0, relist_s=1000.0)
    changes = runtime.changes()
    await _next_of(changes, pod.pod)
    id_ = await pod.start(command=("sh", "-c", "sleep 0.5"))
    while (await pod.container(id_)).state != State.EXITED:
        await _next_of(changes, pod.pod)
    await pod.runtime.remove_container(id_)
    await _next_of(changes, pod.pod)
    await changes.aclose()
    await runtime.close()


async def test_containers_outlive_the_runtime_and_changes_go_on_after_its_restart(
    server: ContainerdServer, pod: RunningPod
) -> None:
    id_ = await pod.start(command=LASTS)
    changes = pod.runtime.changes()
    await _next_of(changes, pod.pod)
    server.kill()
    status = await pod.runtime.status()
    assert (status.ready, status.network_ready) == (False, False)
    assert "cannot be reached" in status.message
    with pytest.raises(RuntimeFailure, match="cannot be reached"):
        await pod.runtime.list()
    server.start()
    async with asyncio.timeout(WAIT_S):
        while not (await pod.runtime.status()).ready:
            await asyncio.sleep(0.05)
    assert (await pod.container(id_)).state == State.RUNNING
    stopping = asyncio.create_task(pod.runtime.stop_container(id_, 0))
    await _next_of(changes, pod.pod)
    await stopping
    await changes.aclose()


async def test_usage_is_told_for_running_containers(pod: RunningPod) -> None:
    id_ = await pod.start(command=("sh", "-c", "while true; do true; done"))
    async with asyncio.timeout(WAIT_S):
        while not (used := {each.id: each for each in await pod.runtime.usage()}[id_]).processor_seconds:
            await asyncio.sleep(0.02)
    assert used.memory_bytes > 0


async def test_an_address_that_is_no_runtime_is_told(tmp_path: Path) -> None:
    runtime = CriRuntime(SystemClock(), CriOptions(socket=f"unix://{tmp_path}/absent.sock"))
    with pytest.raises(RuntimeFailure, match=r"absent\.sock cannot be reached"):
        await runtime.open()
    await runtime.close()
    shutil.rmtree(tmp_path, ignore_errors=True)
