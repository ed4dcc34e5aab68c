"""Programs and placeholders of the runtime for simulated nodes. Real processes, no agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from allot.node.containers import INIT_CONTAINER
from allot.node.runtimes.placeholders import Course, course_of
from allot.node.runtimes.port import Container, ContainerSpec, PodName, RuntimeFailure, SandboxSpec, State
from allot.node.runtimes.process import ProcessRuntime
from allot.node.runtimes.simulated import SimulatedRuntime
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from waiting import WAIT_S

POD = PodName(uid="u1", namespace="default", name="p1")
RUN, CODE = "allot.dev/run-seconds", "allot.dev/exit-code"


def runtime(root: Path, programs_max: int = 100) -> SimulatedRuntime:
    clock, ids = SystemClock(), SystemIds()
    programs = ProcessRuntime(root, clock, ids, environment={"PATH": "/usr/bin:/bin"})
    return SimulatedRuntime(programs, clock, ids, programs_max=programs_max)


async def start(on: SimulatedRuntime, root: Path, spec: ContainerSpec, annotations: dict[str, str]) -> str:
    """Start a container in a sandbox of its own."""
    sandbox = await on.run_sandbox(SandboxSpec(pod=POD, log_directory=str(root / "log"), annotations=annotations))
    id_ = await on.create_container(sandbox.id, spec)
    await on.start_container(id_)
    return id_


async def ended(on: SimulatedRuntime, id_: str) -> Container:
    """The container once it has ended, as the agent finds out: by a change."""
    async with asyncio.timeout(WAIT_S):
        async for uid in on.changes():
            assert uid == POD.uid
            _, found = await on.of(uid)
            container = next(each for each in found if each.id == id_)
            if container.state == State.EXITED:
                return container
    raise AssertionError("changes ended")


def spec(*command: str, init: bool = False) -> ContainerSpec:
    annotations = {INIT_CONTAINER: "true"} if init else {}
    return ContainerSpec(
        pod=POD, name="c", image="image:1", command=command, log_path="c/0.log", annotations=annotations
    )


@pytest.mark.parametrize(
    ("annotations", "course"),
    [
        ({}, None),
        ({RUN: "2.5"}, Course(2.5, 0)),
        ({CODE: "3"}, Course(0.0, 3)),
        ({RUN: "1", CODE: "255"}, Course(1.0, 255)),
    ],
)
def test_annotations_say_what_becomes_of_a_placeholder(annotations: dict[str, str], course: Course | None) -> None:
    assert course_of(annotations) == course


@pytest.mark.parametrize(
    "annotations", [{RUN: "-1"}, {RUN: "nan"}, {RUN: "1e99"}, {RUN: ""}, {CODE: "256"}, {CODE: "²"}]
)
def test_annotations_that_make_no_sense_are_refused_by_name(annotations: dict[str, str]) -> None:
    with pytest.raises(RuntimeFailure, match=f'annotation {next(iter(annotations))}: ".*": expected'):
        course_of(annotations)


async def test_a_placeholder_ends_when_its_time_is_over(tmp_path: Path) -> None:
    on = runtime(tmp_path / "runtime")
    await on.open()
    id_ = await start(on, tmp_path, spec("sh"), {RUN: "0.05", CODE: "7"})
    container = await ended(on, id_)
    await on.close()
    assert (container.exit_code, container.reason) == (7, "Error")
    assert round(container.finished_at - container.started_at, 3) == 0.05


async def test_a_placeholder_runs_until_it_is_stopped_and_init_containers_end_at_once(tmp_path: Path) -> None:
    on = runtime(tmp_path / "runtime")
    await on.open()
    first = await start(on, tmp_path, spec(init=True), {RUN: "60", CODE: "1"})
    assert (await ended(on, first)).exit_code == 0
    id_ = await start(on, tmp_path, spec(), {})
    sandboxes, containers = await on.of(POD.uid)
    assert [each.state for each in containers if each.id == id_] == [State.RUNNING]
    assert on.is_nowhere(sandboxes[-1].ips[0])
    await on.stop_container(id_, 30)
    assert (await ended(on, id_)).exit_code == 143
    for sandbox in sandboxes:
        await on.remove_sandbox(sandbox.id)
    assert await on.list() == ((), ())
    assert not on.is_nowhere(sandboxes[-1].ips[0])
    await on.close()


@pytest.mark.slow
async def test_programs_run_as_long_as_there_is_room_for_them(tmp_path: Path) -> None:
    on = runtime(tmp_path / "runtime", programs_max=1)
    await on.open()
    program = await start(on, tmp_path, spec("sleep", "600"), {})
    other = await start(on, tmp_path, spec("sleep", "600"), {})
    with pytest.raises(RuntimeFailure, match="this machine runs 1 programs for simulated nodes already"):
        await on.exec(other, ("sh",), tty=False, stdin=False)
    await on.stop_container(program, 10)
    assert (await ended(on, program)).exit_code == 143
    third = await start(on, tmp_path, spec("sh", "-c", "exit 6"), {})
    assert (await ended(on, third)).exit_code == 6
    for sandbox in (await on.list())[0]:
        await on.stop_sandbox(sandbox.id)
        await on.remove_sandbox(sandbox.id)
    await on.close()
