"""`allot controllers` as a process: what it refuses, and a run against a real server from start to signal."""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from allot.cli.main import run
from allot.client.api import Client
from allot.client.errors import NotFound
from allot.store.memory import MemoryStore
from apiserver.live import live_server
from client.conftest import http_transport
from waiting import WAIT_S


def test_unknown_controllers_are_refused_with_the_names_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["controllers", "--controllers=*,-no-such-controller"]) == 2
    told = capsys.readouterr().err
    assert "unknown controller 'no-such-controller'" in told and "garbage-collector-controller" in told


def test_a_kubeconfig_that_is_missing_or_a_wrong_duration_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["controllers", "--kubeconfig", str(tmp_path / "none"), "--port=-1"]) == 2
    assert "none: No such file" in capsys.readouterr().err
    assert run(["controllers", "--node-monitor-period=soon"]) == 2
    assert "'soon' is not a duration such as 15s or 1m30s" in capsys.readouterr().err


def test_a_key_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["controllers", "--service-account-private-key-file", str(tmp_path / "sa.key")]) == 2
    assert "sa.key: does not exist" in capsys.readouterr().err
    (tmp_path / "sa.key").write_text("no key")
    (tmp_path / "sa.key").chmod(0o600)
    assert run(["controllers", "--service-account-private-key-file", str(tmp_path / "sa.key")]) == 2
    assert "is not a private key" in capsys.readouterr().err


def test_an_authority_that_is_half_or_missing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = f"--cluster-signing-cert-file={tmp_path / 'ca.crt'}"
    assert run(["controllers", certificate]) == 2
    assert "--cluster-signing-cert-file and --cluster-signing-key-file need each other" in capsys.readouterr().err
    assert run(["controllers", certificate, f"--cluster-signing-key-file={tmp_path / 'ca.key'}"]) == 2
    assert "ca.crt: cannot be read: No such file" in capsys.readouterr().err
    assert run(["controllers", "--cluster-signing-duration=1m"]) == 2
    assert "'1m' is less than 600s" in capsys.readouterr().err


def test_help_names_every_controller(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["controllers", "--help"]) == 0
    told = capsys.readouterr().out
    assert "node-lifecycle-controller" in told and "--beside-kube-controller-manager" in told


@pytest.mark.slow
async def test_controllers_lead_work_tell_their_health_and_give_the_lease_back(tmp_path: Path) -> None:
    async with live_server(tmp_path, MemoryStore()) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "allot",
            "controllers",
            f"--kubeconfig={server.kubeconfig}",
            "--port=0",
            "--controllers=*,-node-lifecycle-controller",
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        client = Client(http_transport(server))
        try:
            async with asyncio.timeout(60):
                address = (await process.stderr.readline()).decode().removeprefix("health and metrics: ").strip()
                held = (await process.stderr.readline()).decode()
                assert held.startswith("lease kube-system/allot-controllers: held by ")
                running = (await process.stderr.readline()).decode()
                assert "namespace-controller" in running and "node-lifecycle-controller" not in running
                assert await asyncio.to_thread(_read, f"{address}/healthz") == "ok"
                namespaces = client.resource("", "v1", "namespaces", namespaced=False)
                await namespaces.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}})
                await namespaces.delete("going")
                while True:
                    try:
                        await namespaces.get("going")
                        await asyncio.sleep(0.05)
                    except NotFound:
                        break
                assert 'workqueue_adds_total{name="namespace"}' in await asyncio.to_thread(_read, f"{address}/metrics")
                process.send_signal(signal.SIGTERM)
                rest = (await process.stderr.read()).decode()
                assert await process.wait() == 0
                assert rest.splitlines() == ["lease kube-system/allot-controllers: held by nobody", "stopping"], rest
                leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
                lease = await leases.get("allot-controllers", "kube-system")
                assert not lease["spec"].get("holderIdentity")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await client.close()


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=WAIT_S) as response:
        return str(response.read().decode())
