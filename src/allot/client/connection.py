"""A connection to an API server: address and credentials, from a kubeconfig or in-cluster files.

It contains secrets: its text form shows none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A command that prints credentials (client.authentication.k8s.io)."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    # The cluster's extension client.authentication.k8s.io/exec, passed through.
    cluster_config: Any = None


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    """The user to impersonate."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of each request; groups and extras repeat theirs."""
        headers = [("Impersonate-User", self.user)]
        if self.uid:
            headers.append(("Impersonate-Uid", self.uid))
        headers.extend(("Impersonate-Group", group) for group in self.groups)
        for key, values in self.extra.items():
            headers.extend((f"Impersonate-Extra-{_escape_header_key(key)}", value) for value in values)
        return tuple(headers)


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """An API server and a client's identity. If a field has an inline and a file form, the inline one wins, as in kubectl."""

    server: str
    namespace: str = "default"
    # The source, for messages: file and context.
    source: str = ""

    ca_data: bytes = b""
    ca_file: Path | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False

    client_certificate_data: bytes = b""
    client_certificate_file: Path | None = None
    client_key_data: bytes = b""
    client_key_file: Path | None = None
    token: str = ""
    # Re-read when it gets old: service account tokens are renewed on disk.
    token_file: Path | None = None
    exec: ExecPlugin | None = None
    impersonation: Impersonation | None = None

    @property
    def has_client_certificate(self) -> bool:
        """Whether the client has its own certificate (besides one from an exec plugin)."""
        return bool(self.client_certificate_data or self.client_certificate_file)

    def __repr__(self) -> str:
        return f"Connection({self.server!r}, from {self.source!r})"


def _escape_header_key(key: str) -> str:
    """A key of user-extra as part of a header name: all but token characters are percent-encoded, as upstream does."""
    legal = frozenset("!#$&'*+-.^_`|~")
    return "".join(
        chr(byte) if (chr(byte).isascii() and chr(byte).isalnum()) or chr(byte) in legal else f"%{byte:02X}"
        for byte in key.encode()
    )
