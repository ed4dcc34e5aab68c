"""`allot dashboard` as people start it: what it says, what it refuses, how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from allot.dashboard.links import read_link
from cli.command import allot
from waiting import wait_for

pytestmark = pytest.mark.slow

DUMP = """
apiVersion: v1
kind: Node
metadata: {name: a}
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.yaml"
    path.write_text(DUMP)
    return path


def test_it_prints_a_link_and_ends_with_a_signal(dump: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    command = [sys.executable, "-m", "allot", "dashboard", "--snapshot", str(dump), "--link-file", str(link)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    found = wait_for("the link", lambda: read_link(link))
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 0
    assert f"dashboard: {found}" in said.splitlines()
    assert found.startswith("http://127.0.0.1:")
    assert not link.exists()


def test_a_port_that_is_in_use_is_told(dump: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = allot("dashboard", "-f", str(dump), "--port", port)
    assert done.code == 3
    assert f"error: cannot listen on 127.0.0.1:{port}: the port is in use" in done.stderr
    assert "hint: choose another port with --port" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-f", "missing.yaml"], 2, "missing.yaml"),
        (["--kubeconfig", "missing"], 2, "missing"),
        (["--address", "localhost", "-f", "x"], 2, "'localhost' is not an IP address"),
        (["--tls-cert-file", "a.pem", "-f", "x"], 2, "must be set together"),
        (["--record", "a", "-f", "x"], 2, "--record needs a cluster"),
        (["--record", "a", "--replay", "b"], 2, "--record needs a cluster"),
        (["--replay", "a", "--context", "b"], 2, "--replay shows a recording"),
        (["--replay", "missing.recording"], 2, "missing.recording: no such file or directory"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], code: int, said: str) -> None:
    done = allot("dashboard", *arguments)
    assert done.code == code, done.stderr
    assert said in done.stderr


def test_files_that_are_no_recording_or_no_key_are_told(dump: Path, tmp_path: Path) -> None:
    done = allot("dashboard", "--replay", str(dump))
    assert (done.code, f"{dump}: not a recording" in done.stderr) == (2, True)
    recording = tmp_path / "recording"
    recording.write_bytes(b"allot recording 1\n")
    done = allot("dashboard", "-f", str(recording))
    assert (done.code, "a recording is shown with --replay FILE" in done.stderr) == (2, True)
    key = tmp_path / "key"
    key.write_text("short")
    key.chmod(0o600)
    done = allot("dashboard", "-f", str(dump), "--session-key-file", str(key))
    assert (done.code, f"--session-key-file {key}: has 5 bytes: expected a key of at least 32" in done.stderr) == (
        2,
        True,
    )


def test_a_certificate_that_is_none_is_told(dump: Path, tmp_path: Path) -> None:
    for name in ("a.pem", "b.pem"):
        (tmp_path / name).write_text("nothing")
    done = allot(
        "dashboard",
        "-f",
        str(dump),
        "--tls-cert-file",
        str(tmp_path / "a.pem"),
        "--tls-private-key-file",
        str(tmp_path / "b.pem"),
    )
    assert done.code == 2
    assert "a.pem: no certificate with its key in" in done.stderr


def test_a_server_that_is_away_is_told(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}], "
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    done = allot("dashboard", "--kubeconfig", str(config))
    assert done.code == 3
    assert "127.0.0.1:1" in done.stderr
