"""Why a connection or an answer failed, in Go's words where they are known: users search for them."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl


def in_go_words(error: Exception, host: str, port: int) -> str:
    """What went wrong on the way to a server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: {error.strerror}"
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, OSError):
        why = os.strerror(error.errno).lower() if error.errno else str(error) or type(error).__name__
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"dial tcp {place}: connect: {why}"
    return "EOF" if isinstance(error, asyncio.IncompleteReadError) else f"malformed HTTP response: {error}"
