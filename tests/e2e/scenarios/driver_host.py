"""A process that runs drivers as files say, with the project's SDK: python driver_host.py FOLDER KUBECONFIG.

`FOLDER/wanted/NAME.json` is a driver (`wanted.Wanted`); it stops when the file goes. What it does is written to
`FOLDER/said/NAME.jsonl`. Drivers follow the convention of Kubernetes' own test driver: parameters of a claim become variables
`user_*`, those of a class `admin_*`, and each request `claim_<claim>_<request>=true`, for extended resources
`container_<i>_request_<j>=true`; besides, each device `device_<name>=true` and each share's capacity `capacity_<name>=<amount>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.http import HttpTransport
from allot.client.kubeconfig import connection_from_environment
from allot.core.model.codec import decode_served
from allot.core.model.resource_v1 import (
    FROM_CLASS,
    POD_CLAIM_NAME_ANNOTATION,
    CounterSet,
    Device,
    NetworkDeviceData,
)
from allot.driver import (
    AllocatedDevice,
    Claim,
    ConfigKind,
    DeviceHealth,
    DeviceStatus,
    Driver,
    DriverFailed,
    Edits,
    Health,
    Options,
    Pool,
    Prepared,
    PreparedClaim,
    PrepareError,
    running,
)
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from e2e.scenarios.wanted import Said, Wanted

_POLL_S = 0.02
_EXTENDED = re.compile(r"container-\d+-request-\d+")


class Paper:
    """The file that says what is wanted, and the one with what was done."""

    def __init__(self, folder: Path, name: str) -> None:
        self._wanted = folder / "wanted" / f"{name}.json"
        self._said = folder / "said" / f"{name}.jsonl"

    @property
    def wanted(self) -> Wanted:
        """As it is now."""
        return msgspec.json.decode(self._wanted.read_bytes(), type=Wanted)

    def say(self, what: str, claim: Claim | PreparedClaim | None = None) -> None:
        """Note something."""
        said = Said(what=what, claim=claim.name if claim else "", uid=claim.uid if claim else "")
        with self._said.open("ab") as file:
            file.write(msgspec.json.encode(said) + b"\n")


class ConventionDriver(Driver):
    """Does what its paper says."""

    configs = (ConfigKind("", "", dict[str, str]),)
    serialize = False
    rescan_s = 0.0
    paper: Paper

    def devices(self) -> list[Pool]:
        """The pools of the paper."""
        return [
            Pool(
                name=each.get("name") or self.paper.wanted.node,
                devices=tuple(decode_served(raw, Device) for raw in each.get("devices", ())),
                counter_sets=tuple(decode_served(raw, CounterSet) for raw in each.get("sharedCounters", ())),
                skip_node_operations=tuple(each.get("skipNodeOperations", ())),
            )
            for each in self.paper.wanted.pools
        ]

    def prepare(self, claim: Claim) -> list[Prepared]:
        """Variables by the convention."""
        self.paper.say("prepare", claim)
        while self.paper.wanted.blocks:
            time.sleep(_POLL_S)
        wanted = self.paper.wanted
        if wanted.refuses:
            raise PrepareError(wanted.refuses)
        status = _status(wanted.status) if wanted.status is not None else None
        network = status.network if status is not None else None
        return [
            Prepared(each, Edits(env=dict(_variables(claim, each))), status=status, network=network)
            for each in claim.devices
        ]

    def unprepare(self, claim: PreparedClaim) -> None:
        """Nothing to undo."""
        self.paper.say("unprepare", claim)
        if self.paper.wanted.refuses_unprepare:
            raise PrepareError(self.paper.wanted.refuses_unprepare)

    def health(self) -> list[DeviceHealth]:
        """As the paper says."""
        wanted = self.paper.wanted
        found = []
        for pool in wanted.pools:
            for device in pool.get("devices", ()):
                health, message = wanted.health.get(device["name"], ("HEALTHY", ""))
                found.append(DeviceHealth(name=device["name"], health=Health[health], message=message))
        return found


def _status(raw: dict[str, Any]) -> DeviceStatus:
    network = decode_served(raw["networkData"], NetworkDeviceData) if "networkData" in raw else None
    return DeviceStatus(data=raw.get("data"), network=network)


def _variables(claim: Claim, device: AllocatedDevice) -> Iterator[tuple[str, str]]:
    for config in device.configs:
        prefix = "admin" if config.source == FROM_CLASS else "user"
        yield from ((f"{prefix}_{key}", value) for key, value in config.value.items())
    request = device.base_request
    if not _EXTENDED.fullmatch(request):
        name = claim.object.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, claim.name)
        request = f"claim_{name}_{request}"
    yield re.sub("[^A-Za-z0-9]", "_", request), "true"
    yield re.sub("[^A-Za-z0-9]", "_", f"device_{device.name}"), "true"
    for name, amount in (device.consumed_capacity or {}).items():
        yield f"capacity_{name}", str(amount)


async def _run(paper: Paper, client: Client, is_over: asyncio.Event, is_changed: asyncio.Event) -> None:
    try:
        await _serve(paper, client, is_over, is_changed)
    except DriverFailed as error:
        # The others of this process go on.
        sys.stderr.write(f"{error}\n")
    paper.say("stopped")


async def _serve(paper: Paper, client: Client, is_over: asyncio.Event, is_changed: asyncio.Event) -> None:
    wanted = paper.wanted
    type_ = type("OneDriver", (ConventionDriver,), {"name": wanted.driver, "has_device_metadata": wanted.has_metadata})
    driver = type_()
    driver.paper = paper
    options = Options(
        node_name=wanted.node,
        kubelet_root=Path(wanted.kubelet_root),
        cdi_directory=Path(wanted.cdi_directory),
        pod_uid=wanted.instance,
        versions=wanted.versions,
        health_versions=wanted.health_versions,
        repair_delay_s=0.1,
    )
    async with running(driver, client, options, clock=SystemClock(), ids=SystemIds()) as plugin:
        paper.say("ready")
        is_registered: bool | None = None
        while not is_over.is_set():
            if plugin.registration.is_registered != is_registered:
                is_registered = plugin.registration.is_registered
                paper.say("registered" if is_registered else "refused")
            if is_changed.is_set():
                is_changed.clear()
                plugin.changed()
            await asyncio.sleep(_POLL_S)


class _Runner:
    def __init__(
        self, task: asyncio.Task[None], changed_ns: int, is_over: asyncio.Event, changed: asyncio.Event
    ) -> None:
        self.task, self.changed_ns, self.is_over, self.is_changed = task, changed_ns, is_over, changed


async def _host(folder: Path, kubeconfig: Path) -> None:
    connection = connection_from_environment(os.environ, kubeconfig=kubeconfig)
    client = Client(
        HttpTransport(connection, SystemClock(), SystemIds(), environ=os.environ, user_agent="test drivers")
    )
    runners: dict[str, _Runner] = {}
    sys.stderr.write("drivers can come\n")
    sys.stderr.flush()
    async with asyncio.TaskGroup() as tasks:
        while True:
            there = {}
            with contextlib.suppress(FileNotFoundError):
                there = {each.stem: each.stat().st_mtime_ns for each in (folder / "wanted").glob("*.json")}
            for name, runner in list(runners.items()):
                if runner.task.done():
                    del runners[name]
                elif name not in there:
                    runner.is_over.set()
            for name, changed_ns in there.items():
                known = runners.get(name)
                if known is None:
                    is_over, is_changed = asyncio.Event(), asyncio.Event()
                    task = tasks.create_task(_run(Paper(folder, name), client, is_over, is_changed))
                    runners[name] = _Runner(task, changed_ns, is_over, is_changed)
                elif known.changed_ns != changed_ns:
                    known.changed_ns = changed_ns
                    known.is_changed.set()
            await asyncio.sleep(_POLL_S)


if __name__ == "__main__":
    asyncio.run(_host(Path(sys.argv[1]), Path(sys.argv[2])))
