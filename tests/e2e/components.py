"""Kubernetes' own components as processes, from the folder in KUBEBUILDER_ASSETS."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import pytest

from waiting import WAIT_S

ASSETS = "KUBEBUILDER_ASSETS"
# From here on dynamic resource allocation is on by default.
_DRA_MINOR = 34

Found = TypeVar("Found")


def component(name: str) -> Path:
    """The binary of a component; the test is skipped without it."""
    folder = os.environ.get(ASSETS)
    if not folder:
        pytest.skip(f"{ASSETS} is not set: it names a folder with {name}")
    found = shutil.which(name, path=folder)
    if found is None:
        pytest.skip(f"there is no {name} in {folder} ({ASSETS})")
    return Path(found)


def gates(binary: Path) -> list[str]:
    """The flag that turns dynamic resource allocation on, for components that have it off."""
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
    minor = re.search(r"v1\.(\d+)", told)
    assert minor is not None, f"{binary} --version says {told!r}"
    return [] if int(minor[1]) >= _DRA_MINOR else ["--feature-gates=DynamicResourceAllocation=true"]


class Component:
    """A process with its log in a folder, from start to end of a block."""

    def __init__(self, binary: Path, arguments: Sequence[str], folder: Path) -> None:
        self._command = [str(binary), *arguments]
        self._log = folder / f"{binary.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._log.parent)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    def wait(self) -> int:
        """Its exit code, when it has ended by itself."""
        assert self._process is not None, "it was not started"
        return self._process.wait(WAIT_S)

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(errors="replace")

    def wait_for(self, what: str, look: Callable[[], Found | None]) -> Found:
        """What a look finds before long; fails with the log's end if it does not, or if the process ends."""
        assert self._process is not None
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and self._process.poll() is None:
            found = look()
            if found is not None:
                return found
            time.sleep(0.2)
        raise AssertionError(f"{what}: not within {WAIT_S} s, or the process has ended:\n{self.log()[-4000:]}")


class Caller:
    """Requests to an API server, one at a time."""

    def __init__(self, url: str, context: ssl.SSLContext, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._context = context
        self._headers = headers or {}

    def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Status and value of an answer."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {**self._headers, **({"Content-Type": kind} if data is not None else {})}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S, context=self._context) as response:
                return response.status, msgspec.json.decode(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(errors="replace")

    def stream(self, path: str, silence_s: float = WAIT_S) -> Iterator[Any]:
        """The events of a watch, until the server ends it, or says nothing for so long."""
        request = urllib.request.Request(self._url + path, headers=self._headers)
        with urllib.request.urlopen(request, timeout=silence_s, context=self._context) as response:
            for line in response:
                yield msgspec.json.decode(line)

    def get(self, path: str) -> Any:
        """What is there; None if it is not, or nobody listens."""
        try:
            status, value = self.send("GET", path)
        except (OSError, msgspec.DecodeError):
            return None
        return value if status == 200 else None

    def create(self, path: str, object_: dict[str, Any]) -> Any:
        """The object as it was stored."""
        status, value = self.send("POST", path, object_)
        assert status == 201, f"POST {path}: {status} {value}"
        return value
