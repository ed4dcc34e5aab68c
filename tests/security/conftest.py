"""Servers that are attacked: one of each kind per worker, and a namespace per test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from security.servers import Both, Server, allot_server, kube_apiserver

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`allot apiserver` as a process."""
    with allot_server(tmp_path_factory.mktemp("allot")) as started:
        yield started


@pytest.fixture(scope="session")
def both(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The same server, and a real kube-apiserver where KUBEBUILDER_ASSETS has one."""
    with kube_apiserver(tmp_path_factory.mktemp("kube-apiserver")) as kubernetes:
        yield Both(server, kubernetes)


@pytest.fixture
def namespace(both: Both) -> str:
    """A namespace of the test's own, on both servers."""
    name = f"attacked-{next(_numbers)}"
    both.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name
