"""Current credentials: tokens that are renewed on disk, and commands that print credentials (exec plugins).

A plugin's credentials are cached until they expire or the server refuses them. However many requests wait, the plugin runs once.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

import msgspec

from allot.client.connection import Connection, ExecPlugin
from allot.process.clock import Clock

# client-go re-reads token files about as often; the kubelet renews them long before they expire.
_TOKEN_FILE_AGE_MAX_S = 10.0
_EXEC_TIMEOUT_S = 60.0
_EXEC_OUTPUT_BYTES_MAX = 1 << 20
_TOLD_LENGTH_MAX = 500


class CredentialError(Exception):
    """No credentials: a plugin or a file failed. The text names it, its context and the failure."""


class Credential(msgspec.Struct, frozen=True):
    """The credentials for a request."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        return (
            f"Credential(token={'set' if self.token else 'none'}, certificate={'set' if self.certificate else 'none'})"
        )


class Credentials:
    """The credentials of a connection."""

    def __init__(self, connection: Connection, clock: Clock, environ: Mapping[str, str]) -> None:
        self._connection = connection
        self._clock = clock
        self._environ = environ
        self._file_token = ""
        self._file_read_at: float | None = None
        self._printed: Credential | None = None
        self._expires_at: float | None = None
        self._running: asyncio.Future[CredentialError | None] | None = None

    async def current(self) -> Credential:
        """The current credentials. A static token wins over a plugin's, as in client-go."""
        if self._connection.token_file is not None:
            return Credential(self._token_from_file())
        if self._connection.token:
            return Credential(self._connection.token)
        if self._connection.exec is not None:
            return await self._from_plugin(self._connection.exec)
        return Credential()

    def refused(self, credential: Credential) -> bool:
        """Report that the server refused the credentials. Returns whether a retry may yield others."""
        if self._connection.token_file is not None:
            self._file_read_at = None
            return self._token_from_file() != credential.token
        if self._connection.exec is None or self._connection.token:
            return False
        if self._printed == credential:
            self._printed = None
        return True

    # --- files ---

    def _token_from_file(self) -> str:
        now = self._clock.monotonic()
        if self._file_read_at is not None and now - self._file_read_at < _TOKEN_FILE_AGE_MAX_S:
            return self._file_token
        path = self._connection.token_file
        assert path is not None
        try:
            token = path.read_text().strip()
            problem = "" if token else "is empty"
        except (OSError, UnicodeDecodeError) as error:
            token, problem = "", f"cannot be read: {error}"
        # While a file is being replaced, the previous token is the best available.
        token = token or self._file_token or self._connection.token
        if not token:
            raise CredentialError(f"{self._connection.source}: token file {path} {problem}")
        self._file_token, self._file_read_at = token, now
        return token

    # --- plugins ---

    async def _from_plugin(self, plugin: ExecPlugin) -> Credential:
        while True:
            fresh = self._expires_at is None or self._clock.seconds() < self._expires_at
            if self._printed is not None and fresh:
                return self._printed
            if self._running is None:
                return await self._run_for_all(plugin)
            (done,), _ = await asyncio.wait([self._running])
            error = done.result()
            if error is not None:
                raise error

    async def _run_for_all(self, plugin: ExecPlugin) -> Credential:
        """Run the plugin; concurrent callers wait for its result. If this run is cancelled, one of them starts it again."""
        self._running = running = asyncio.get_running_loop().create_future()
        outcome: CredentialError | None = None
        try:
            credential, self._expires_at = await self._run(plugin)
            self._printed = credential
            return credential
        except CredentialError as error:
            outcome = error
            raise
        finally:
            self._running = None
            running.set_result(outcome)

    async def _run(self, plugin: ExecPlugin) -> tuple[Credential, float | None]:
        name = f"{self._connection.source}: exec plugin {plugin.command!r}"
        environ = {
            **self._environ,
            **dict(plugin.env),
            "KUBERNETES_EXEC_INFO": json.dumps(_exec_info(plugin, self._connection)),
        }
        with _scratch_file() as out, _scratch_file() as told:
            try:
                process = subprocess.Popen(
                    [plugin.command, *plugin.args],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=told,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                hint = f"; {' '.join(plugin.install_hint.split())}" if plugin.install_hint else ""
                raise CredentialError(f"{name}: cannot be started: {error}{hint}") from error
            try:
                async with asyncio.timeout(_EXEC_TIMEOUT_S):
                    await _wait(process, out)
            except TimeoutError as error:
                raise CredentialError(f"{name}: gave no answer within {_EXEC_TIMEOUT_S:g} s") from error
            finally:
                _end(process)
            printed = os.pread(out.fileno(), _EXEC_OUTPUT_BYTES_MAX + 1, 0)
            text = os.pread(told.fileno(), _TOLD_LENGTH_MAX, 0).decode(errors="replace")
        if len(printed) > _EXEC_OUTPUT_BYTES_MAX:
            raise CredentialError(f"{name}: printed more than {_EXEC_OUTPUT_BYTES_MAX >> 20} MiB")
        if process.returncode != 0:
            text = " ".join(text.split())
            raise CredentialError(f"{name}: exit status {process.returncode}{f': {text}' if text else ''}")
        return _parse_exec_credential(printed, plugin, name)


def _scratch_file() -> IO[bytes]:
    """An unnamed file for a plugin's output; in memory if possible, since it contains tokens.

    Not a pipe: a grandchild that keeps one open would block us after the plugin has ended or was killed.
    """
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("allot-exec-plugin"), "w+b")
    return tempfile.TemporaryFile()


async def _wait(process: subprocess.Popen[bytes], out: IO[bytes]) -> None:
    """Wait until the plugin ends or has printed too much."""
    pause = 0.001
    while process.poll() is None and os.fstat(out.fileno()).st_size <= _EXEC_OUTPUT_BYTES_MAX:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a running plugin and everything that it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _exec_info(plugin: ExecPlugin, connection: Connection) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        ca_data = connection.ca_data or (connection.ca_file.read_bytes() if connection.ca_file else b"")
        members = {
            "server": connection.server,
            "tls-server-name": connection.tls_server_name,
            "insecure-skip-tls-verify": connection.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(ca_data).decode(),
            "proxy-url": connection.proxy_url,
            "disable-compression": connection.disable_compression,
            "config": plugin.cluster_config,
        }
        spec["cluster"] = {key: value for key, value in members.items() if value}
    return {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}


def _parse_exec_credential(data: bytes, plugin: ExecPlugin, name: str) -> tuple[Credential, float | None]:
    """The credential and its expiry, in seconds since 1970. Messages never quote the output: it contains secrets."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CredentialError(f"{name}: expected an ExecCredential in JSON: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != "ExecCredential":
        raise CredentialError(f"{name}: expected an object of kind ExecCredential")
    if document.get("apiVersion") != plugin.api_version:
        raise CredentialError(
            f"{name}: printed apiVersion {str(document.get('apiVersion'))[:100]!r}, expected {plugin.api_version!r}"
        )
    status = document.get("status")
    if not isinstance(status, dict):
        raise CredentialError(f"{name}: the ExecCredential has no status")
    texts: dict[str, str] = {}
    for field in ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp"):
        value = status.get(field)
        if value is not None and not isinstance(value, str):
            raise CredentialError(f"{name}: status.{field}: expected text")
        texts[field] = value or ""
    if bool(texts["clientCertificateData"]) != bool(texts["clientKeyData"]):
        raise CredentialError(f"{name}: expected both or none of status.clientCertificateData and status.clientKeyData")
    if not texts["token"] and not texts["clientKeyData"]:
        raise CredentialError(f"{name}: expected status.token or status.clientCertificateData and status.clientKeyData")
    credential = Credential(texts["token"], texts["clientCertificateData"].encode(), texts["clientKeyData"].encode())
    return credential, _parse_expiry(texts["expirationTimestamp"], name)


def _parse_expiry(text: str, name: str) -> float | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise CredentialError(f"{name}: status.expirationTimestamp: invalid time {text[:100]!r}") from error
    if time.tzinfo is None:
        raise CredentialError(f"{name}: status.expirationTimestamp: {text[:100]!r} has no time zone")
    return time.timestamp()
