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
# Counts the renames and removals of files once a claim is being worked on, and kills the process at one of them.
_DYING = """
import os, signal, sys, types
sys.path.insert(0, {folder!r})
import allot.driver.files as files
from allot.driver import run
from dice import Dice

point = os.environ.get("DIE_AT", "")
steps = 0
is_armed = False

def dying(function):
    def wrapper(*arguments, **named):
        global steps
        if not is_armed:
            return function(*arguments, **named)
        steps += 1
        if point == str(steps):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapper

dangerous = ("replace", "rename", "unlink")
files.os = types.SimpleNamespace(**vars(os) | {{name: dying(getattr(os, name)) for name in dangerous}})

class Dying(Dice):
    async def devices(self):
        return Dice.devices(self)

    def start(self):
        global is_armed
        is_armed = True

if __name__ == "__main__":
    run(Dying())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_crash_at_any_write_loses_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "dying.py"
    module.write_text(_DYING.format(folder=str(DICE.parent)))
    async with cluster(tmp_path) as plane:
        kubeconfig = tmp_path / "admin.kubeconfig"
        plane.server.access.write_admin_kubeconfig(kubeconfig, plane.server.url)
        command = command_of(str(module))
        bench = Bench(plane.client(), kubeconfig, tmp_path, command, await describe(command), SystemIds())
        await bench.set_up()
        deaths = 0
        try:
            # A crash after a step is one before the next.
            for step in range(1, 40):
                monkeypatch.setenv("DIE_AT", str(step))
                if not await _died(bench):
                    break
                deaths += 1
                monkeypatch.setenv("DIE_AT", "")
                await _check_recovered(bench)
                await bench.clean_up()
                await bench.stop()
        finally:
            await bench.close()
        # Begun, CDI file, metadata and its CDI file, completed in two steps; then the removal of three of them.
        assert deaths >= 9


async def _died(bench: Bench) -> bool:
    await bench.start()
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
