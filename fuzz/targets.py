"""The fuzzing targets: servers of allot, each a separate process with fresh data, and what can be seen of it from outside."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

NODE_NAME = "fuzz-node"
_READY_S = 60.0
_STOP_S = 20.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
# Who asks: by certificate or, with these tokens, as someone with fewer rights.
_TOKENS = {
    "edit": ("fuzz-edit-token", "fuzz-editor", "people"),
    "node": ("fuzz-node-token", f"system:node:{NODE_NAME}", "system:nodes"),
}
USERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "admin": (),
    **{user: (("Authorization", f"Bearer {token}"),) for user, (token, _, _) in _TOKENS.items()},
    "anonymous": (),
    "stranger": (("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),),
}


class Usage(NamedTuple):
    """What a process has used so far, in seconds: processor time of all threads, and how long its main thread was kept waiting
    for a processor by others."""

    cpu_s: float
    delayed_s: float


class Target:
    """A server that runs."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, kubeconfig: Path, port: int, *, has_status: bool = True
    ) -> None:
        """has_status: whether it tells what is wrong with a Status, not in plain text."""
        self._process = process
        self._log = log
        self.port = port
        self.has_status = has_status
        # The API server behind it, if it is not one.
        self.apiserver: Target | None = None
        self._log_read = 0
        self._anybody = _context(kubeconfig, certificate=False)
        self._admin = _context(kubeconfig, certificate=True)

    def context(self, user: str) -> ssl.SSLContext:
        """TLS as a user."""
        return self._admin if user == "admin" else self._anybody

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def rss_bytes(self) -> int:
        """Its memory."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE

    def usage(self) -> Usage:
        """What it has used; all zero when it has died."""
        folder = Path(f"/proc/{self._process.pid}")
        try:
            with (folder / "stat").open("rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            with (folder / "schedstat").open("rb") as file:
                delayed = int(file.read().split()[1])
        except OSError:
            return Usage(0.0, 0.0)
        return Usage((int(fields[11]) + int(fields[12])) / _TICK, delayed / 1e9)

    def new_log(self) -> str:
        """What it has written since the last time."""
        if self._log.stat().st_size == self._log_read:
            return ""
        with self._log.open("rb") as file:
            file.seek(self._log_read)
            data = file.read()
        self._log_read += len(data)
        return data.decode(errors="replace")


def _context(kubeconfig: Path, *, certificate: bool) -> ssl.SSLContext:
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    # Agents have certificates of their own making; who the server is does not matter here.
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        with tempfile.NamedTemporaryFile() as both:
            both.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
            both.flush()
            context.load_cert_chain(both.name)
    return context


def _until(log: Path, process: subprocess.Popen[bytes], mark: str) -> str:
    """The line of a log with which a server says that it is ready."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text(errors="replace").splitlines():
            if mark in line:
                return line
        time.sleep(0.05)
    raise RuntimeError(f"the server did not get ready: {log.read_text(errors='replace')[-2000:]}")


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", "allot", *command], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def apiserver(folder: Path) -> Iterator[Target]:
    """`allot apiserver` on a free port of the loopback."""
    tokens, kubeconfig, log = folder / "tokens.csv", folder / "kubeconfig", folder / "apiserver.log"
    tokens.write_text(
        "".join(f'{token},{name},uid-{user},"{group}"\n' for user, (token, name, group) in _TOKENS.items())
    )
    tokens.chmod(0o600)
    command = ["apiserver", "--port", "0", "--data-dir", str(folder / "data"), "--kubeconfig", str(kubeconfig)]
    with _process([*command, "--token-auth-file", str(tokens)], log) as process:
        line = _until(log, process, "ready: ")
        yield Target(process, log, kubeconfig, int(line.rpartition(":")[2]))


@contextmanager
def node(folder: Path) -> Iterator[Target]:
    """`allot node` with a simulated machine, and the API server that it needs."""
    kubeconfig, log = folder / "kubeconfig", folder / "node.log"
    command = ["node", "--runtime", "simulated", "--name", NODE_NAME, "--root-dir", str(folder / "node"), "--port", "0"]
    command += ["--kubeconfig", str(kubeconfig), "--address", "127.0.0.1", "--node-ip", "127.0.0.1"]
    with apiserver(folder) as server, _process(command, log) as process:
        line = _until(log, process, "serving ")
        target = Target(process, log, kubeconfig, int(line.rpartition(":")[2]), has_status=False)
        target.apiserver = server
        yield target
