"""Where the server goes because an object says so, and where never."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from allot.apiserver.access.certificates import Certificates
from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.errors import StatusError
from allot.apiserver.proxies.dialing import Dialler, Upstream
from allot.process.clock import SystemClock


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "pki", SystemClock())


async def refused(dialler: Dialler, host: str, port: int, *, kubelet: bool) -> str:
    with pytest.raises(StatusError) as error:
        await dialler.connect(Upstream(host=host, port=port, path="/", kubelet=kubelet, tls=kubelet))
    return f"{error.value.code} {error.value.message}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1"])
async def test_ports_of_etcd_are_never_kubelets(certificates: Certificates, host: str) -> None:
    dialler = Dialler(certificates, kubelets_on_loopback=True, own=(("localhost", 2379), ("192.0.2.200", 2380)))
    assert (await refused(dialler, host, 2379, kubelet=True)).endswith("is the control plane's own")
    assert (await refused(dialler, host, 2380, kubelet=True)).endswith("is the control plane's own")


async def test_endpoints_of_the_control_plane_on_other_machines_are_no_pods(certificates: Certificates) -> None:
    dialler = Dialler(certificates, own=(("192.0.2.200", 2379),))
    for kubelet in (True, False):
        told = await refused(dialler, "::ffff:192.0.2.200", 2379, kubelet=kubelet)
        assert told.startswith("400 address not allowed: ")


async def test_pods_have_addresses_and_no_names(certificates: Certificates) -> None:
    dialler = Dialler(certificates, kubelets_on_loopback=True)
    for name in ("localhost", "kubernetes.default.svc", "127.1", "fe80::1%lo", ""):
        assert (await refused(dialler, name, 80, kubelet=False)).endswith("is not an address")


async def test_kubelets_are_on_loopback_addresses_only_if_that_is_said(certificates: Certificates) -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        assert "--loopback-kubelets" in await refused(Dialler(certificates), host, 10250, kubelet=True)


async def test_pods_are_never_on_loopback_addresses(certificates: Certificates) -> None:
    dialler = Dialler(certificates, kubelets_on_loopback=True)
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        assert "kubectl port-forward" in await refused(dialler, "127.0.0.1", port, kubelet=False)


def test_an_authority_of_kubelets_that_cannot_be_read_ends_the_start(
    certificates: Certificates, tmp_path: Path
) -> None:
    with pytest.raises(SecretFileError, match="kubelet certificate authority"):
        Dialler(certificates, kubelet_authority=tmp_path / "missing.crt")
    (tmp_path / "broken.crt").write_text("no certificate")
    with pytest.raises(SecretFileError, match="kubelet certificate authority"):
        Dialler(certificates, kubelet_authority=tmp_path / "broken.crt")
