"""A real etcd for tests: found where one is installed, started in a folder of its own on free ports."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ports import free_port

MISSING = "no etcd found: run scripts/fetch-etcd, or set KUBEBUILDER_ASSETS or ALLOT_ETCD to a folder with one"


def find_etcd() -> str | None:
    """The etcd binary: from KUBEBUILDER_ASSETS, ALLOT_ETCD, the PATH or the folder of scripts/fetch-etcd."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allot" / "etcd"
    folders = [os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("ALLOT_ETCD"), os.environ.get("PATH"), str(cache)]
    for folder in filter(None, folders):
        found = shutil.which("etcd", path=folder)
        if found:
            return found
    return None


class EtcdServer:
    """One etcd on loopback, with its data in a folder. It can be killed and started again with the same data."""

    def __init__(
        self, folder: Path, *, tls: tuple[Path, Path, Path] | None = None, arguments: Sequence[str] = ()
    ) -> None:
        """tls: CA, certificate and key; clients must then show a certificate of that CA."""
        self.folder = folder
        self.scheme = "https" if tls else "http"
        self.address = f"{self.scheme}://127.0.0.1:{free_port()}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._tls = tls
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        binary = find_etcd()
        assert binary is not None, MISSING
        command = [
            *(binary, "--name", "test", "--data-dir", str(self.folder / "data"), "--log-level", "error"),
            *("--listen-client-urls", self.address, "--advertise-client-urls", self.address),
            *("--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer),
            *("--initial-cluster", f"test={self._peer}"),
            *self._arguments,
        ]
        if self._tls:
            ca, certificate, key = self._tls
            command += ["--client-cert-auth", "--trusted-ca-file", str(ca), "--cert-file", str(certificate)]
            command += ["--key-file", str(key)]
        with (self.folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        port = int(self.address.rpartition(":")[2])
        for _ in range(200):
            if self._process.poll() is not None:
                raise RuntimeError(f"etcd ended: {(self.folder / 'etcd.log').read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("etcd does not accept connections")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
