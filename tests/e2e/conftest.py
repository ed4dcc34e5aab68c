"""Real servers and real kubectls for tests: one server per store and worker, one namespace per test."""

from __future__ import annotations

import itertools
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.clusters import cluster, namespace
from e2e.kube_cluster import kube_cluster, kube_managed_cluster
from e2e.kubectl import MISSING, Kubectl, find_kubectls
from e2e.servers import STORES, ServerProcess
from etcd_server import MISSING as NO_ETCD
from etcd_server import find_etcd

_KUBECTLS = find_kubectls()
_numbers = itertools.count(1)


# With this set every set-up runs every test.
_ALL = "ALLOT_ALL_KUBECTLS"


def _setups() -> list[tuple[str, str]]:
    """The newest kubectl on every store, older ones on memory; the default store first."""
    if not _KUBECTLS:
        return [("none", "memory")]
    newest, *older = _KUBECTLS
    stores = sorted(STORES, key=lambda store: store != "sqlite")
    return [(newest, store) for store in stores] + [(version, "memory") for version in older]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set-ups share the tests; the newest kubectl on SQLite runs half of them."""
    setups = _setups()
    shared = [setups[0]] * len(setups[1:]) + setups[1:]
    if os.environ.get(_ALL) or len(setups) < 2:
        return
    left_out = []
    for item in items:
        setup = item.callspec.params.get("kubectl") if isinstance(item, pytest.Function) and _varies(item) else None
        if setup in setups:
            name = item.nodeid.partition("[")[0]
            if shared[zlib.crc32(name.encode()) % len(shared)] != setup:
                left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _varies(item: pytest.Function) -> bool:
    return hasattr(item, "callspec")


@pytest.fixture(scope="session")
def server_on(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ServerProcess]]:
    """The server of this worker on a store, started when first asked for."""
    started: dict[str, ServerProcess] = {}
    with ExitStack() as stack:

        def get(store: str) -> ServerProcess:
            if store == "etcd" and find_etcd() is None:
                pytest.skip(NO_ETCD)
            if store not in started:
                folder = tmp_path_factory.mktemp(store)
                started[store] = stack.enter_context(ServerProcess(store, folder))
            return started[store]

        yield get


@pytest.fixture(params=STORES)
def any_server(request: pytest.FixtureRequest, server_on: Callable[[str], ServerProcess]) -> ServerProcess:
    """A server on each of the stores."""
    return server_on(request.param)


@pytest.fixture
def memory_server(server_on: Callable[[str], ServerProcess]) -> ServerProcess:
    """A server that keeps objects in memory."""
    return server_on("memory")


@pytest.fixture(params=_setups(), ids=lambda setup: f"{setup[0]}-{setup[1]}")
def kubectl(request: pytest.FixtureRequest, server_on: Callable[[str], ServerProcess]) -> Iterator[Kubectl]:
    """A kubectl of one version with a server on one store and a new namespace."""
    version, store = request.param
    if version not in _KUBECTLS:
        pytest.skip(MISSING)
    server = server_on(store)
    home = server.folder / f"home-{version}"
    home.mkdir(exist_ok=True)
    bound = Kubectl(_KUBECTLS[version], server.kubeconfig, home, f"test-{next(_numbers)}")
    bound("create", "namespace", bound.namespace)
    bound.calls = 0
    yield bound
    request.node.user_properties.append(("kubectl calls", [f"kubectl {version} on {store}", bound.calls]))


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Path]:
    """A cluster with three nodes; its kubeconfig."""
    with cluster("--node", "t4=3") as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="session")
def three_kube_nodes() -> Iterator[Path]:
    """The same around a real kube-apiserver, where KUBEBUILDER_ASSETS has one."""
    with kube_cluster() as kubeconfig:
        yield kubeconfig


@pytest.fixture
def user(three_nodes: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl on the cluster with three nodes, in a namespace of its own."""
    with namespace(three_nodes, _namespace_of(request)) as made:
        yield made


@pytest.fixture(scope="session")
def three_kube_managed_nodes() -> Iterator[Path]:
    """The same with a real kube-controller-manager, where KUBEBUILDER_ASSETS has one."""
    with kube_managed_cluster() as kubeconfig:
        yield kubeconfig


@pytest.fixture(
    params=["three_nodes", "three_kube_nodes", "three_kube_managed_nodes"],
    ids=["allot", "kube-apiserver", "kube-controller-manager"],
)
def user_anywhere(request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl on each of the clusters with three nodes, in a namespace of its own."""
    with namespace(request.getfixturevalue(request.param), _namespace_of(request)) as made:
        yield made


def _namespace_of(request: pytest.FixtureRequest) -> str:
    """A name that tells which test it is; one of the same name may still be on its way out."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:46].strip("-")
    return f"{name}-{next(_numbers)}"


@pytest.fixture
def unique(kubectl: Kubectl) -> Callable[[str], str]:
    """Names for objects outside of namespaces, which tests on the same server must not share."""
    return lambda name: f"{kubectl.namespace}-{name}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many kubectl calls were checked, by version and store."""
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("", []):
        for name, value in report.user_properties if report.when == "teardown" else ():
            if name == "kubectl calls":
                counts[value[0]] += value[1]
    for setup, count in sorted(counts.items()):
        terminalreporter.write_line(f"{setup}: {count} calls checked")
