"""`allot scheduler` as a process: what it refuses, a run from start to signal, and kill -9 in a loop."""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from allot.cli.main import run
from scheduler.world import DRIVER, World, world
from waiting import WAIT_S


def test_a_configuration_that_is_wrong_is_refused_with_file_field_and_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.yaml"
    assert run(["scheduler", "--config", str(path)]) == 2
    assert f"error: {path}: no such file or directory" in capsys.readouterr().err
    path.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: 3\n")
    assert run(["scheduler", "--config", str(path)]) == 2
    assert f"error: {path}: profiles: expected `array`, got `int`" in capsys.readouterr().err
    path.write_text("a: 1\n---\nb: 2\n")
    assert run(["scheduler", "--config", str(path)]) == 2
    assert "expected one KubeSchedulerConfiguration, got 2 documents" in capsys.readouterr().err
    path.write_text("a: [\n")
    assert run(["scheduler", "--config", str(path)]) == 2
    assert f"error: {path}:" in capsys.readouterr().err


def test_a_name_for_several_profiles_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(head + "profiles: [{schedulerName: a}, {schedulerName: b}]\n")
    assert run(["scheduler", "--config", str(path), "--scheduler-name=c"]) == 2
    assert "--scheduler-name cannot be used with a --config that has several profiles" in capsys.readouterr().err


async def _start(made: World, *arguments: str) -> asyncio.subprocess.Process:
    kubeconfig = made.plane.settings.directory / "admin.kubeconfig"
    made.plane.server.access.write_admin_kubeconfig(kubeconfig, made.plane.server.url)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "allot",
        "scheduler",
        f"--kubeconfig={kubeconfig}",
        "--port=0",
        *arguments,
        stderr=asyncio.subprocess.PIPE,
    )


async def _line(process: asyncio.subprocess.Process, start: str) -> str:
    """The rest of the next line that starts so."""
    assert process.stderr is not None
    while True:
        line = (await process.stderr.readline()).decode()
        assert line, f"the scheduler ended before it said {start!r}"
        if line.startswith(start):
            return line.removeprefix(start).strip()


@pytest.mark.slow
async def test_a_scheduler_leads_works_tells_its_health_and_gives_the_lease_back(tmp_path: Path) -> None:
    async with world(tmp_path) as made, asyncio.timeout(60):
        await made.device_class()
        await made.node("n1")
        await made.devices("n1", 1)
        await made.namespace("ns")
        await made.claim("ns", "c")
        process = await _start(made)
        try:
            address = await _line(process, "health and metrics: ")
            await _line(process, "lease kube-system/kube-scheduler: held by ")
            assert await _line(process, "scheduling pods of ") == "default-scheduler"
            await made.pod("ns", "p", "c")
            assert await made.bound("ns", "p") == "n1"
            for path in ("healthz", "livez", "readyz"):
                assert await asyncio.to_thread(_read, f"{address}/{path}") == "ok"
            metrics = await asyncio.to_thread(_read, f"{address}/metrics")
            assert 'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0' in metrics
            assert 'scheduler_pending_pods{queue="unschedulable"} 0.0' in metrics
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            rest = (await process.stderr.read()).decode()
            assert await process.wait() == 0
            assert f"DRA: pod ns/p to node n1: claim c gets {DRIVER}/n1/gpu-0" in rest
            assert rest.splitlines()[-2:] == ["lease kube-system/kube-scheduler: held by nobody", "stopping"]
            (event,) = await made.events("ns", "Scheduled")
            assert event["note"] == "Successfully assigned ns/p to n1"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.mark.slow
async def test_killing_schedulers_again_and_again_loses_nothing(tmp_path: Path) -> None:
    pods, kills = 60, 4
    async with world(tmp_path) as made, asyncio.timeout(100):
        await made.device_class()
        for number in range(3):
            await made.node(f"n{number}", cpu="64")
            await made.devices(f"n{number}", pods // 3)
        await made.namespace("ns")
        for number in range(pods):
            await made.claim("ns", f"c{number}")
        process = await _start(made, "--no-leader-elect", "--log-level=error")
        try:
            for kill in range(kills):
                await _line(process, "ready")
                for number in range(kill * pods // kills, (kill + 1) * pods // kills):
                    await made.pod("ns", f"p{number}", f"c{number}")
                process.kill()
                await process.wait()
                process = await _start(made, "--no-leader-elect", "--log-level=error")
            bound = await made.all_bound("ns", pods)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        held = await made.holders()
        assert len(held) == pods
        assert all(len(holders) == 1 for holders in held.values())
        where = {pod["metadata"]["name"][1:]: pod["spec"]["nodeName"] for pod in bound}
        assert all(where[claim[1:]] == pool for (pool, _), (claim,) in held.items())


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=WAIT_S) as response:
        return str(response.read().decode())
