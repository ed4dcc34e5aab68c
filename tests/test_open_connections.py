"""Connections that a test leaves open are told of that test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = "from open_connections import pytest_runtest_teardown\n"
TESTS = """
import asyncio, socket

kept, peers = [], []

async def connect(closed):
    ours, theirs = socket.socketpair()
    peers.append(theirs)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    kept.append(transport)
    if closed:
        transport.close()
        await asyncio.sleep(0)

def test_that_leaves_one():
    asyncio.run(connect(closed=False))

def test_that_closes_its_own():
    asyncio.run(connect(closed=True))

def test_after_them():
    kept.clear()
    while peers:
        peers.pop().close()
"""


def test_a_test_that_leaves_a_connection_open_fails_and_none_after_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_them.py").write_text(TESTS)
    quietly = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", *quietly, f"--rootdir={tmp_path}", tmp_path],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed, 1 error" in ended.stdout, ended.stdout
    assert "test_that_leaves_one left 1 connections open when its loop ended" in ended.stdout
    assert "opened by test_them.py::test_that_leaves_one (call)" in ended.stdout
