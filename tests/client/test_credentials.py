"""Exec plugins, run for real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from allot.client.connection import Connection, ExecPlugin
from allot.client.credentials import Credential, CredentialError, Credentials
from allot.process.clock import ManualClock
from waiting import WAIT_S

V1 = "client.authentication.k8s.io/v1"


def printing(tmp_path: Path, status: Any, *, api_version: str = V1, more: str = "") -> Path:
    """A plugin that counts its runs, notes what it was told and prints a credential."""
    path = tmp_path / "plugin"
    document = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
    path.write_text(
        f"#!/bin/sh\necho run >>{tmp_path}/runs\n"
        f'printf %s "$KUBERNETES_EXEC_INFO" >{tmp_path}/info\nprintf %s "$1-$EXTRA" >{tmp_path}/told\n{more}\n'
        f"cat <<'END'\n{json.dumps(document)}\nEND\n"
    )
    path.chmod(0o700)
    return path


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def credentials(command: Path | str, clock: ManualClock, **more: Any) -> Credentials:
    plugin = ExecPlugin(command=str(command), api_version=V1, args=("arg",), env=(("EXTRA", "env"),), **more)
    connection = Connection(
        server="https://example.com", source="kubeconfig f, context 'c'", ca_data=b"pem", exec=plugin
    )
    return Credentials(connection, clock, {"PATH": "/usr/bin:/bin"})


async def test_a_plugin_runs_once_until_what_it_printed_expires(tmp_path: Path) -> None:
    clock = ManualClock(1_800_000_000.0)
    status = {"token": "t", "expirationTimestamp": "2027-01-15T08:01:00Z"}
    made = credentials(printing(tmp_path, status), clock, provide_cluster_info=True, cluster_config={"a": 1})
    all_ = await asyncio.gather(*(made.current() for _ in range(5)))
    assert all_ == [Credential("t")] * 5
    assert runs(tmp_path) == 1
    clock.advance(59)
    await made.current()
    assert runs(tmp_path) == 1
    clock.advance(2)
    await made.current()
    assert runs(tmp_path) == 2
    info = json.loads((tmp_path / "info").read_text())
    assert info["kind"] == "ExecCredential"
    assert info["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://example.com", "certificate-authority-data": "cGVt", "config": {"a": 1}},
    }
    assert (tmp_path / "told").read_text() == "arg-env"


async def test_what_the_server_refuses_is_asked_for_again(tmp_path: Path) -> None:
    made = credentials(printing(tmp_path, {"token": "t"}), ManualClock())
    credential = await made.current()
    assert made.refused(credential)
    await made.current()
    assert runs(tmp_path) == 2
    # Somebody else has renewed it meanwhile: no third run.
    assert made.refused(Credential("older"))
    await made.current()
    assert runs(tmp_path) == 2


async def test_a_certificate_can_be_printed(tmp_path: Path) -> None:
    made = credentials(printing(tmp_path, {"clientCertificateData": "C", "clientKeyData": "K"}), ManualClock())
    assert await made.current() == Credential("", b"C", b"K")


@pytest.mark.parametrize(
    ("status", "more", "told"),
    [
        ({"token": "x"}, "echo 'no  luck' >&2; exit 3", "exit status 3: no luck"),
        ({"token": "x"}, "echo '{'; exit 0", "expected an ExecCredential in JSON"),
        ({"token": "x"}, 'echo \'{"kind":"Pod"}\'; exit 0', "expected an object of kind ExecCredential"),
        (None, "", "the ExecCredential has no status"),
        ({}, "", "expected status.token or"),
        ({"token": 5}, "", "status.token: expected text"),
        ({"clientKeyData": "K"}, "", "expected both or none of"),
        ({"token": "x", "expirationTimestamp": "soon"}, "", "status.expirationTimestamp: invalid time 'soon'"),
        ({"token": "x", "expirationTimestamp": "2027-01-15T08:01:00"}, "", "has no time zone"),
        ({"token": "x"}, "head -c 3000000 /dev/zero", "printed more than 1 MiB"),
    ],
)
async def test_plugins_that_fail_are_named(tmp_path: Path, status: Any, more: str, told: str) -> None:
    path = printing(tmp_path, status, more=more)
    with pytest.raises(CredentialError) as error:
        await credentials(path, ManualClock()).current()
    assert str(error.value).startswith(f"kubeconfig f, context 'c': exec plugin '{path}': ")
    assert told in str(error.value)


async def test_another_version_than_asked_for_is_refused(tmp_path: Path) -> None:
    path = printing(tmp_path, {"token": "x"}, api_version="client.authentication.k8s.io/v1beta1")
    with pytest.raises(CredentialError, match=r"printed apiVersion 'client.authentication.k8s.io/v1beta1', expected"):
        await credentials(path, ManualClock()).current()


async def test_a_plugin_that_is_not_there_gives_its_hint() -> None:
    made = credentials("no-such-plugin", ManualClock(), install_hint="get it\nfrom us")
    with pytest.raises(CredentialError, match=r"cannot be started: .*; get it from us"):
        await made.current()


async def test_a_cancelled_run_leaves_the_others_alone(tmp_path: Path) -> None:
    made = credentials(printing(tmp_path, {"token": "t"}, more=f"[ -e {tmp_path}/go ] || sleep 20"), ManualClock())
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(made.current())
        while not (tmp_path / "runs").exists():
            await asyncio.sleep(0.005)
        second = tasks.create_task(made.current())
        await asyncio.sleep(0)
        (tmp_path / "go").touch()
        first.cancel()
    assert second.result() == Credential("t")
    assert runs(tmp_path) == 2


async def test_what_a_plugin_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    left = tmp_path / "left"
    made = credentials(printing(tmp_path, {"token": "t"}, more=f"sleep 600 & echo $! >{left}"), ManualClock())
    # Far less than the sleep, far more than the plugin needs on a busy machine.
    async with asyncio.timeout(WAIT_S):
        assert await made.current() == Credential("t")
    os.kill(int(left.read_text()), signal.SIGKILL)


async def test_an_empty_token_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" \n")
    connection = Connection(server="https://x", source="here", token_file=tmp_path / "token")
    with pytest.raises(CredentialError, match=r"here: token file .* is empty"):
        await Credentials(connection, ManualClock(), {}).current()
