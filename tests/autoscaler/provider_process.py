"""A provider as a process of its own: `python provider_process.py ADDRESS FOLDER [ca cert key]`, which prints its port and serves a small cloud."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from allot.autoscaler.external_grpc import Credentials, serving
from allot.autoscaler.simulated_cloud import SimulatedCloud
from allot.cli.up.cloud import cloud_pools
from allot.devices.pool_files import parse_pools
from allot.process.clock import SystemClock


class NoMachines:
    """Machines that become no nodes."""

    async def start(self, pool: str, name: str, provider_id: str) -> None:
        """Nothing."""

    async def publish(self, name: str) -> None:
        """Nothing."""

    async def stop(self, name: str) -> None:
        """Nothing."""


async def main(address: str, folder: str, *files: str) -> None:
    """Until killed."""
    pools = cloud_pools(parse_pools(("a100=a2-ultragpu-1g,max=2", "cpu=n2-standard-4,price=0.2"), "--pool").pools)
    cloud = SimulatedCloud(pools, NoMachines(), SystemClock(), Path(folder) / "cloud.json")
    credentials = Credentials.read(*(Path(each) for each in files)) if files else None
    async with serving(cloud, address, credentials) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
