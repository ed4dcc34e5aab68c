"""How many claims each driver prepares and unprepares per second.

    python benchmarks/driver.py [NAME...]

The driver of the examples and those that come with allot, each in a separate process, with an API server and a kubelet of this
process: real sockets, real HTTPS, simulated hardware.
Each round prepares and unprepares a claim that holds one device. Times are of the clock on the wall, and of the driver's
processor beside them, since the API server and the kubelet run on the same machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from allot.apiserver.assembly import Settings
from allot.controlplane.plane import control_plane
from allot.driver.conformance.bench import Bench
from allot.driver.conformance.process import command_of, describe
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore

_DICE = Path(__file__).resolve().parents[1] / "examples" / "drivers" / "dice.py"
DRIVERS = {
    "dice": (str(_DICE),),
    "gpu": ("allot.devices.gpu", "--profile=h100x8"),
    "nic": ("allot.devices.nic", "--profile=a3-ultragpu-8g"),
    "cpu": ("allot.devices.cpu", "--profile=a3-ultragpu-8g"),
    # All chips of a machine are one claim's.
    "tpu": ("allot.devices.tpu", "--profile=v6ex1"),
}
STREAMS = (1, 4)
ROUNDS = 500
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process_id: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def measure(name: str, bench: Bench, streams: int) -> None:
    """So many claims at a time, each prepared and unprepared again and again."""
    devices = (await bench.devices())[:streams]
    if len(devices) < streams:
        return
    claims = [await bench.claim([device]) for device in devices]
    process_id = bench.running.process_id

    async def rounds(claim: object, count: int) -> None:
        for _ in range(count):
            await bench.prepared(claim)  # type: ignore[arg-type]
            await bench.unprepared(claim)  # type: ignore[arg-type]

    await rounds(claims[0], 20)
    started, used = time.monotonic(), processor_seconds(process_id)
    await asyncio.gather(*(rounds(claim, ROUNDS // streams) for claim in claims))
    wall, processor = time.monotonic() - started, processor_seconds(process_id) - used
    done = ROUNDS // streams * streams
    print(
        f"{name:>4}, {streams} at a time: {done / wall:7.0f} prepare+unprepare/s, "
        f"{processor / done * 1000:.2f} ms of the driver's processor each ({done / processor:.0f}/s of one processor)"
    )
    await bench.clean_up()


async def run(name: str) -> None:
    """Measure a driver and print."""
    module, *options = DRIVERS[name]
    command = (*command_of(module), *options)
    with tempfile.TemporaryDirectory(prefix="allot-") as folder:
        directory = Path(folder)
        async with control_plane(Settings(directory=directory / "pki", port=0), MemoryStore()) as plane:
            kubeconfig = directory / "admin.kubeconfig"
            plane.server.access.write_admin_kubeconfig(kubeconfig, plane.server.url)
            bench = Bench(plane.client(), kubeconfig, directory, command, await describe(command), SystemIds())
            await bench.set_up()
            await bench.start()
            try:
                for streams in STREAMS:
                    await measure(name, bench, streams)
            finally:
                await bench.close()


if __name__ == "__main__":
    for each in sys.argv[1:] or DRIVERS:
        asyncio.run(run(each))
