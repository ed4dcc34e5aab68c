"""A whole site as processes: a control plane, agents of two nodes on this machine, and a process that runs drivers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec

from allot.client.api import Client
from allot.client.http import HttpTransport
from allot.client.kubeconfig import connection_from_environment
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from e2e.scenarios.wanted import Said, Wanted
from node.cluster import AllotProcess, write_node_kubeconfig
from waiting import wait_for

NODES = ("n1", "n2")
# All that the scenarios need beyond the defaults of 1.37.
GATES = "DRAWorkloadResourceClaims=true,GenericWorkload=true,DRANodeAllocatableResources=true,DRAOptionalNodeOperations=true"
# Where the kubelet waits for half a minute or a minute, these agents wait for a second or two.
PERIODS = "call=3,registration=0.05,registration_pause=0.05,reconcile=1,look=0.05,wipe=2,redial=0.1"
WIPE_S = 2.0


def client_of(kubeconfig: Path) -> Client:
    """A client for this event loop."""
    connection = connection_from_environment(os.environ, kubeconfig=kubeconfig)
    return Client(HttpTransport(connection, SystemClock(), SystemIds(), environ=os.environ, user_agent="scenarios"))


class Agent:
    """The agent of a node, which can be killed and started again."""

    def __init__(self, site: Site, name: str, *options: str) -> None:
        self.name = name
        self.root = site.folder / name
        self.cdi = site.folder / f"{name}-cdi"
        self.kubeconfig = site.folder / f"{name}.kubeconfig"
        self._site = site
        self._process = AllotProcess(
            site.folder,
            f"{name}-agent",
            *("node", "--name", name, "--kubeconfig", str(self.kubeconfig), "--root-dir", str(self.root)),
            *("--node-ip", "127.0.0.1", "--address", "127.0.0.1", "--port", "0", "--cdi-spec-dir", str(self.cdi)),
            *("--dra-periods", PERIODS, *(options or ("--feature-gates", GATES))),
        )

    @property
    def log(self) -> str:
        """What it has said."""
        return self._process.log

    def start(self) -> None:
        """Until it serves."""
        if not self.kubeconfig.exists():
            write_node_kubeconfig(self.kubeconfig, self.name, self._site.data, self._site.kubeconfig)
        self._process.start("serving ")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Containers go on."""
        self._process.stop(number)

    def start_if_dead(self) -> None:
        """After a test that has stopped it."""
        if not self._process.is_alive:
            self.start()

    def claims(self, namespace: str) -> list[str]:
        """The claims of a namespace that are recorded as in use on the node."""
        file = self.root / "dra_manager_state"
        if not file.exists():
            return []
        listed = json.loads(json.loads(file.read_text())["Data"]).get("ClaimInfoStateList") or ()
        return [each["ClaimName"] for each in listed if each["Namespace"] == namespace]

    def cdi_files(self, driver: str) -> list[str]:
        """The files of prepared claims of a driver."""
        return [each.name for each in self.cdi.glob(f"*{driver}*")]


class DriverHost:
    """A process that runs drivers."""

    def __init__(self, site: Site, name: str) -> None:
        self.folder = site.folder / name
        for each in ("wanted", "said"):
            (self.folder / each).mkdir(parents=True)
        self._site = site
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until drivers can come."""
        tests = Path(__file__).parents[2]
        command = [sys.executable, str(Path(__file__).with_name("driver_host.py")), str(self.folder)]
        with self._log.open("wb") as log:
            environment = {**os.environ, "PYTHONPATH": str(tests)}
            self._process = subprocess.Popen(
                [*command, str(self._site.kubeconfig)], stdout=log, stderr=log, env=environment
            )
        wait_for("a host of drivers", lambda: b"drivers can come" in self._log.read_bytes())

    def kill(self) -> None:
        """At once: drivers have no time for anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")


class DriverHandle:
    """A driver of a host as a test sees it."""

    def __init__(self, host: DriverHost, name: str, wanted: Wanted) -> None:
        self._host = host
        self._name = name
        self.wanted = wanted
        self._file = host.folder / "wanted" / f"{name}.json"
        self._said = host.folder / "said" / f"{name}.jsonl"

    def want(self, **changes: Any) -> None:
        """From now on."""
        self.wanted = msgspec.structs.replace(self.wanted, **changes)
        draft = self._file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(self.wanted))
        draft.replace(self._file)

    def begin(self) -> None:
        """Start it without waiting for anything."""
        self.want()

    def start(self) -> None:
        """Start it and wait until it is registered."""
        before = len(self.said("registered"))
        self.begin()
        self._wait("registered", before + 1)

    def stop(self) -> None:
        """As SIGTERM would."""
        before = len(self.said("stopped"))
        self._file.unlink()
        self._wait("stopped", before + 1)

    def forget(self) -> None:
        """Its process is gone."""
        self._file.unlink()

    @property
    def is_wanted(self) -> bool:
        """Whether it should run."""
        return self._file.exists()

    def said(self, what: str) -> list[Said]:
        """What it has done of a kind."""
        lines = self._said.read_bytes().splitlines() if self._said.exists() else []
        return [each for line in lines if (each := msgspec.json.decode(line, type=Said)).what == what]

    def _wait(self, what: str, count: int) -> None:
        try:
            wait_for(f"{self._name}: {what}", lambda: len(self.said(what)) >= count)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._host.log[-2000:]}") from None


class Site:
    """The processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.kubeconfig = folder / "kubeconfig"
        self._plane = AllotProcess(
            folder,
            "up",
            *("up", "--node", "none", "--port", "0", "--memory"),
            *("--data-dir", str(self.data), "--kubeconfig", str(self.kubeconfig)),
            *("--feature-gates", GATES),
        )
        self.agents = {name: Agent(self, name) for name in NODES}
        self.host = DriverHost(self, "drivers")
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.callback(self._plane.stop)
            self._plane.start("ready: ")
            for agent in self.agents.values():
                started.callback(agent.stop)
                agent.start()
            started.callback(self.host.kill)
            self.host.start()
            self._ends = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def start_again(self) -> None:
        """What a test has stopped."""
        for agent in self.agents.values():
            agent.start_if_dead()
