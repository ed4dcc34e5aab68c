"""The driver dies at every single write of a claim's life, and the next start puts everything right."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.driver.conformance.bench import Bench
from allot.driver.conformance.kubelet import KubeletError
from allot.driver.conformance.process import command_of, describe
from allot.process.ids import SystemIds
from driver.cluster import cluster

DICE = Path(__file__).resolve().parents[2] / "examples" / "drivers" / "dice.py"
# Counts the renames and removals of files from the moment that a file says at which to die, and kills the process there.
_DYING = """
import os, signal, sys, types
sys.path.insert(0, {folder!r})
import allot.driver.files as files
from allot.driver import run
from dice import Dice

point = ""
steps = 0

def dying(function):
    def wrapper(*arguments, **named):
        global point, steps
        with open({die_at!r}) as file:
            told = file.read()
        if told != point:
            point, steps = told, 0
        steps += 1
        if point == str(steps):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapper

dangerous = ("replace", "rename", "unlink")
files.os = types.SimpleNamespace(**vars(os) | {{name: dying(getattr(os, name)) for name in dangerous}})

if __name__ == "__main__":
    run(Dice())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_crash_at_any_write_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    module, die_at = tmp_path / "dying.py", tmp_path / "die-at"
    module.write_text(_DYING.format(folder=str(DICE.parent), die_at=str(die_at)))
    die_at.write_text("")
    async with cluster(tmp_path) as plane:
        kubeconfig = tmp_path / "admin.kubeconfig"
        plane.server.access.write_admin_kubeconfig(kubeconfig, plane.server.url)
        command = command_of(str(module))
        bench = Bench(plane.client(), kubeconfig, tmp_path, command, await describe(command), SystemIds())
        await bench.set_up()
        deaths = 0
        try:
            await bench.start()
            # A crash after a step is one before the next; who has recovered from one is the next to crash.
            for step in range(1, 40):
                die_at.write_text(str(step))
                if not await _died(bench):
                    break
                deaths += 1
                die_at.write_text("")
                await _check_recovered(bench)
                await bench.clean_up()
        finally:
            await bench.close()
        # Begun, CDI file, metadata and its CDI file, completed in two steps; then the removal of three of them.
        assert deaths >= 9


async def _died(bench: Bench) -> bool:
    claim = await bench.claim(await bench.independent(1))
    try:
        await bench.kubelet.prepare([claim])
        await bench.kubelet.unprepare([claim])
    except KubeletError:
        await bench.kill()
        return True
    return False


async def _check_recovered(bench: Bench) -> None:
    await bench.start()
    claim = bench.open_claims[0]
    first = await bench.prepared(claim)
    assert await bench.prepared(claim) == first
    await bench.unprepared(claim)
    left = [path for folder in (bench.cdi, bench.data) for path in folder.rglob("*.json")]
    assert left == []
