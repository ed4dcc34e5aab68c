"""The command `allot apiserver` as a process of its own, on each of its stores."""

from __future__ import annotations

import ssl
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from etcd_server import EtcdServer
from waiting import WAIT_S

STORES = ("memory", "sqlite", "etcd")
TOKEN_FILE = 'powerless-token,powerless,uid-1,"people"\n'


class ServerProcess:
    """A server in a process, with its files in a folder."""

    def __init__(self, store: str, folder: Path, arguments: Sequence[str] = (), tokens: str = TOKEN_FILE) -> None:
        self.store = store
        self.folder = folder
        self._arguments = arguments
        self._tokens = tokens
        self.kubeconfig = folder / "kubeconfig"
        self._etcd = EtcdServer(folder) if store == "etcd" else None
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        tokens = self.folder / "tokens.csv"
        tokens.write_text(self._tokens)
        tokens.chmod(0o600)
        command = [sys.executable, "-m", "allot", "apiserver", "--port", "0", "--data-dir", str(self.folder / "data")]
        command += ["--kubeconfig", str(self.kubeconfig), "--token-auth-file", str(tokens), *self._arguments]
        if self._etcd is not None:
            return [*command, "--etcd-servers", self._etcd.address]
        return [*command, "--memory"] if self.store == "memory" else command

    def __enter__(self) -> Self:
        if self._etcd is not None:
            self._etcd.start()
        log = self.folder / "server.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(self._command(), stdout=output, stderr=output)
        for _ in range(600):
            if b"ready: " in log.read_bytes():
                return self
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        self.__exit__()
        raise RuntimeError(f"the server on {self.store} did not get ready: {log.read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._etcd is not None:
            self._etcd.kill()

    @property
    def url(self) -> str:
        """Where it listens."""
        config: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())
        url: str = config["clusters"][0]["cluster"]["server"]
        return url

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def etcd_address(self) -> str:
        """Where its etcd listens."""
        assert self._etcd is not None, f"a server on {self.store} has no etcd"
        return self._etcd.address

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "server.log").read_text()


def client_context(kubeconfig: Path, *, certificate: bool = True) -> ssl.SSLContext:
    """TLS as a kubeconfig says: its authority and, if asked for, its client certificate."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    if certificate:
        with tempfile.NamedTemporaryFile() as both:
            both.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
            both.flush()
            context.load_cert_chain(both.name)
    return context
