"""`allot apiserver` and `allot up` as processes: start, signals, restarts, and what stands in the way."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from waiting import WAIT_S

pytestmark = pytest.mark.slow


@contextmanager
def started(folder: Path, *arguments: str, command: str = "apiserver") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that is ready, and its URL."""
    whole = [sys.executable, "-m", "allot", command, "--data-dir", str(folder), "--port", "0", *arguments]
    process = subprocess.Popen(whole, stderr=subprocess.PIPE, text=True)
    try:
        yield process, ready_url(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=WAIT_S)


def ready_url(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    until, said = time.monotonic() + WAIT_S, ""
    while time.monotonic() < until:
        if select.select([process.stderr], [], [], 0.1)[0]:
            line = process.stderr.readline()
            said += line
            if line.startswith("ready: "):
                return line.removeprefix("ready: ").strip()
            if not line:
                break
    raise AssertionError(f"not ready: {said}")


def kubectl(kubeconfig: Path, *arguments: str) -> str:
    binary = shutil.which("kubectl")
    if binary is None:
        pytest.skip("kubectl is not on the PATH")
    done = subprocess.run(
        [binary, "--kubeconfig", str(kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "allot", "apiserver", "--data-dir", str(folder), *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=WAIT_S, check=False)


@pytest.mark.parametrize("command", ["apiserver", "up"])
def test_it_starts_serves_and_stops_cleanly(tmp_path: Path, command: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    options = ("--node", "none") if command == "up" else ()
    with started(tmp_path / "data", "--kubeconfig", str(kubeconfig), *options, command=command) as (process, url):
        assert url.startswith("https://127.0.0.1:")
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        assert "kube-system" in kubectl(kubeconfig, "get", "namespaces")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WAIT_S) == 0


def test_objects_survive_a_restart_and_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data) as (process, _):
        kubectl(data / "admin.kubeconfig", "create", "configmap", "kept", "--from-literal=a=b")
        process.kill()
        process.wait(timeout=WAIT_S)
    with started(data) as (_, _):
        assert "kept" in kubectl(data / "admin.kubeconfig", "get", "configmaps")


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    with started(tmp_path / "data"):
        files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
        keys = [path for path in files if path.suffix == ".key" or "kubeconfig" in path.name]
        assert keys
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in keys)


def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with started(tmp_path / "data"):
        done = refused(tmp_path / "data", "--port", "0")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert str(tmp_path / "data") in done.stderr


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = refused(tmp_path / "data", "--port", str(port))
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"error: cannot listen on 127.0.0.1:{port}: the port is in use",
        "hint: choose another port with --port",
    ]


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = refused(tmp_path / "file" / "data", "--port", "0")
    assert done.returncode in (2, 3)
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "file") in done.stderr


def test_wrong_options_are_told(tmp_path: Path) -> None:
    done = refused(tmp_path, "--memory", "--etcd-servers", "http://127.0.0.1:1")
    assert done.returncode == 2
    done = refused(tmp_path, "--feature-gates", "Bogus=true")
    assert done.returncode == 2
    assert "Bogus" in done.stderr


def test_etcd_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = refused(tmp_path / "data", "--port", "0", "--etcd-servers", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with started(tmp_path / "data", "--memory") as (process, _):
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=WAIT_S) in (0, 130)


def test_an_audit_log_is_written(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with started(tmp_path / "data", "--audit-log", str(log)) as (process, _):
        kubectl(tmp_path / "data" / "admin.kubeconfig", "get", "pods")
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=WAIT_S)
    assert '"verb":"list"' in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--metric-resolution", "0.5s", "'0.5s' is less than 1s"),
        ("--metric-resolution", "soon", "'soon' is not a duration such as 15s or 1m30s"),
    ],
)
def test_periods_that_make_no_sense_are_refused(tmp_path: Path, option: str, value: str, text: str) -> None:
    done = refused(tmp_path / "data", option, value)
    assert done.returncode == 2
    assert f"invalid value for '{option}': {text}" in done.stderr
