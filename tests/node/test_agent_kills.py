"""Agent, driver and control plane are killed again and again while pods with claims come and go: nothing is lost and nothing is left."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from e2e.kubectl import MISSING
from node.cluster import Cluster, sharing, shell
from node.driver_process import CLASS, TEMPLATE, DriverProcess, cdi_files, prepared
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason=MISSING)]

# More rounds on request: each takes about three seconds.
ROUNDS = int(os.environ.get("ALLOT_KILL_ROUNDS", "4"))


@pytest.mark.timeout(120 + 40 * ROUNDS)
def test_nothing_is_lost_however_often_processes_die(tmp_path_factory: pytest.TempPathFactory) -> None:
    # A short path: those of sockets have a limit.
    tmp_path = tmp_path_factory.mktemp("k")
    dice = random.Random(ROUNDS)
    held = tmp_path / "held"
    held.mkdir()
    # Whoever has a device makes a folder for it and takes it away at its end: two at once cannot.
    script = (
        f"name=$(env | grep ^GPU_ | cut -d= -f2); mkdir {held}/$name || exit 3;"
        f"trap 'rmdir {held}/$name; exit 0' TERM; while true; do sleep 0.05; done"
    )
    with Cluster(tmp_path, is_durable=True) as cluster:
        cluster.apply(CLASS, TEMPLATE)
        driver = DriverProcess(cluster)
        driver.start()
        wait_for("a slice", lambda: cluster.run("get", "resourceslices", "-o", "name"))
        try:
            for number in range(ROUNDS):
                _round(cluster, driver, dice, number, script, held)
            _settle(cluster, held)
        finally:
            driver.stop()


def _round(cluster: Cluster, driver: DriverProcess, dice: random.Random, number: int, script: str, held: Path) -> None:
    volume, mount = sharing(held)
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    for each in range(2):
        container = shell("main", script, resources={"claims": [{"name": "gpu"}]}, volumeMounts=[mount])
        cluster.pod(f"p{number}-{each}", container, resourceClaims=claims, volumes=[volume], restartPolicy="Never")
    time.sleep(dice.random())
    if dice.random() < 0.7:
        cluster.node.stop(signal.SIGKILL)
    if dice.random() < 0.5:
        driver.stop(signal.SIGKILL)
    if number:
        cluster.run("delete", "pod", f"p{number - 1}-0", f"p{number - 1}-1", "--wait=false")
    if dice.random() < 0.3:
        cluster.plane.stop(signal.SIGKILL)
    time.sleep(dice.random() / 2)
    cluster.start_plane_if_dead()
    driver.start_if_dead()
    cluster.start_node_if_dead()


def _settle(cluster: Cluster, held: Path) -> None:
    last = ROUNDS - 1

    def both_run() -> bool:
        pods = json.loads(cluster.run("get", "pods", "-o", "json"))["items"]
        phases = {each["metadata"]["name"]: each["status"].get("phase") for each in pods}
        assert "Failed" not in phases.values(), f"{phases}: {cluster.node.log[-2000:]}"
        return phases == {f"p{last}-0": "Running", f"p{last}-1": "Running"}

    wait_for("the pods that should run, and no others", both_run, 90.0)
    # A container runs before its first command has.
    wait_for("a folder for each device", lambda: len(list(held.iterdir())) == 2)
    assert prepared(cluster) == len(cdi_files(cluster)) == 2
    cluster.run("delete", "pods", "--all", "--timeout=60s")
    wait_for("no claim left", lambda: prepared(cluster) == 0, 60.0)
    wait_for("nothing left", lambda: not list((cluster.root / "runtime/containers").iterdir()))
    assert cdi_files(cluster) == []
    assert list(held.iterdir()) == []
