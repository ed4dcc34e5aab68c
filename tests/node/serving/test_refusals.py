"""Who is refused is explained in the log, now and then."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest

from allot.apiserver.access.certificates import Certificates, Identity
from allot.node.serving.certificates import server_context
from allot.node.serving.refusals import Refusals, watch_handshakes
from allot.process.clock import ManualClock, SystemClock


def test_a_reason_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    refusals = Refusals(clock)
    with caplog.at_level(logging.WARNING, "allot.node"):
        for _ in range(3):
            refusals.without_certificate("GET /pods")
        assert len(caplog.records) == 1
        assert "--kubelet-client-certificate" in caplog.text and "(it was GET /pods)" in caplog.text
        clock.advance(601)
        refusals.without_certificate("GET /pods")
        assert len(caplog.records) == 2


async def test_a_certificate_of_another_authority_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    ours, others = Certificates(tmp_path / "ours", clock), Certificates(tmp_path / "others", clock)
    others.client("caller", Identity("kube-apiserver", ("system:masters",)))
    context = server_context(tmp_path / "pki", "n", "127.0.0.1", ours.authority.pem, clock.seconds())
    watch_handshakes(context, Refusals(clock))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(others.directory / "caller.crt", others.directory / "caller.key")
    async with server:
        with caplog.at_level(logging.WARNING, "allot.node"):
            port = server.sockets[0].getsockname()[1]
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
                await reader.read()
                writer.close()
            except OSError:
                pass
    assert "a client's certificate does not count (" in caplog.text
    assert "with --client-ca-file" in caplog.text
