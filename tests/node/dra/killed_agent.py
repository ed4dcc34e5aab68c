"""An agent that prepares and gives back the claims of some pods without end, to be killed: python killed_agent.py ROOT KUBECONFIG PODS."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.http import HttpTransport
from allot.client.kubeconfig import load_kubeconfig
from allot.core.model.pods_v1 import decode_runnable
from allot.node.devices import PrepareFailed
from allot.node.dra.claim_preparer import ClaimPreparer, Periods
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds


async def main(root: Path, kubeconfig: Path, pods: list[dict[str, Any]]) -> None:
    """Until killed."""
    clock, ids = SystemClock(), SystemIds()
    connection = load_kubeconfig([kubeconfig], must_exist=True).connection()
    client = Client(HttpTransport(connection, clock, ids))
    preparer = ClaimPreparer(
        client, "node-1", root, clock, ids, active_pods=lambda: None, periods=Periods(registration_s=0.02)
    )

    async def live(pod: dict[str, Any], pause_s: float) -> None:
        while True:
            try:
                await preparer.prepare(decode_runnable(pod))
                await asyncio.sleep(pause_s)
                await preparer.unprepare(decode_runnable(pod))
            except PrepareFailed:
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(preparer.run())
        for number, pod in enumerate(pods):
            tasks.create_task(live(pod, 0.003 * number))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), msgspec.json.decode(Path(sys.argv[3]).read_bytes())))
