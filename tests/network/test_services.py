"""Services inside of a pod network: real pods, the C library's own resolver, and the process inside killed in between."""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from allot.core.network.ranges import API_ADDRESS, GATEWAY
from allot.core.network.routes import routes_of
from allot.network.client import NetworkFailure
from allot.network.relays import Listener, bound, connected
from allot.network.service_client import ServiceNetwork
from network.running import Pods, Running, answer, asked
from waiting import until

pytestmark = pytest.mark.slow
WEB, OTHER = "10.96.77.1", "10.96.77.2"


@pytest.fixture
async def services(pods: Pods, tmp_path: Path) -> AsyncIterator[ServiceNetwork]:
    """Says which Services there are; the API server only says hello."""
    listener = Listener(bound("127.0.0.1", 0), _hello)
    made = ServiceNetwork(tmp_path / "network.sock", listener._socket.getsockname())
    made.start()
    yield made
    await made.close()
    listener.close()
    assert pods.network is not made


def _hello(connection: socket.socket) -> None:
    connection.sendall(b"hello")
    connection.close()


def tell(services: ServiceNetwork, name: str, address: str, *behind: str, hostnames: bool = False, **spec: Any) -> None:
    """A Service on port 80, and the addresses behind it on port 8080."""
    service = {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": address, "ports": [{"port": 80, "name": "main", **spec.pop("port", {})}], **spec},
    }
    endpoints = [
        {"addresses": [each], "conditions": {"ready": True}, **({"hostname": f"{name}-{number}"} if hostnames else {})}
        for number, each in enumerate(behind)
    ]
    slices = [{"addressType": "IPv4", "ports": [{"name": "main", "port": 8080}], "endpoints": endpoints}]
    services.update(f"default/{name}", routes_of(service, slices))


def connecting(address: str, port: int = 80) -> str:
    return f"import socket; print(socket.create_connection(('{address}', {port}), 30).recv(99).decode(), end='')"


async def said(pods: Pods, code: str) -> str:
    """What a program in the pod `client` says, once nobody is refused any more: what was told is done a moment later."""
    return str(await until(lambda: _unless_refused(pods, code)))


async def _unless_refused(pods: Pods, code: str) -> str:
    found = await pods.said("client", sys.executable, "-c", code)
    return "" if "ConnectionRefusedError" in found else found


async def test_a_service_spreads_over_its_endpoints_and_has_a_name(pods: Pods, services: ServiceNetwork) -> None:
    one, two = await pods.serve("one", 8080), await pods.serve("two", 8080)
    await pods.start("client", "sleep", "600")
    for each in (one, two):
        await asked(pods.network, each.ips[0], 8080)
    tell(services, "web", WEB, one.ips[0], two.ips[0])
    for name in (WEB, "web", "web.default", "web.default.svc.cluster.local"):
        came = Counter([await said(pods, connecting(name)) for _ in range(4)])
        assert came == {"one": 2, "two": 2}, name
    tell(services, "web", WEB, two.ips[0])
    assert await until(lambda: _only(pods, "two"))
    tell(services, "web", WEB)
    refused = await until(lambda: _refused(pods))
    assert "ConnectionRefusedError" in refused
    services.update("default/web", None)
    unknown = await pods.said("client", sys.executable, "-c", "import socket; socket.gethostbyname('web')")
    assert "gaierror" in unknown


async def _only(pods: Pods, name: str) -> bool:
    return {await said(pods, connecting(WEB)) for _ in range(3)} == {name}


async def _refused(pods: Pods) -> str:
    found = await pods.said("client", sys.executable, "-c", connecting(WEB))
    return found if "Refused" in found else ""


async def test_names_of_a_headless_service_are_its_pods(pods: Pods, services: ServiceNetwork) -> None:
    one, two = await pods.start("db-0", "sleep", "600"), await pods.start("db-1", "sleep", "600")
    await pods.start("client", "sleep", "600")
    tell(services, "db", "None", one.ips[0], two.ips[0], hostnames=True)
    look = "import socket; print(*sorted(each[4][0] for each in socket.getaddrinfo('{}', 80, type=socket.SOCK_STREAM)))"

    async def found(name: str) -> str:
        return (await pods.said("client", sys.executable, "-c", look.format(name))).strip()

    assert await until(lambda: _equal(found, "db", f"{one.ips[0]} {two.ips[0]}"))
    assert await found("db-1.db") == two.ips[0]
    back = f"import socket; print(socket.gethostbyaddr('{one.ips[0]}')[0])"
    assert (await pods.said("client", sys.executable, "-c", back)).strip() == "db-0.db.default.svc.cluster.local"


async def _equal(found: Any, name: str, expected: str) -> bool:
    return bool(await found(name) == expected)


async def test_a_client_stays_with_its_endpoint_if_the_service_says_so(pods: Pods, services: ServiceNetwork) -> None:
    made = [await pods.serve(name, 8080) for name in ("one", "two", "three")]
    await pods.start("client", "sleep", "600")
    for each in made:
        await asked(pods.network, each.ips[0], 8080)
    tell(services, "web", WEB, *(each.ips[0] for each in made), sessionAffinity="ClientIP")
    assert len({await said(pods, connecting(WEB)) for _ in range(5)}) == 1


async def test_the_api_server_is_reached_by_its_service(pods: Pods, services: ServiceNetwork) -> None:
    await pods.start("client", "sleep", "600")
    tell(services, "kubernetes", API_ADDRESS)
    assert await said(pods, connecting(API_ADDRESS)) == "hello"


async def test_endpoints_that_are_no_pods_are_never_reached(pods: Pods, services: ServiceNetwork) -> None:
    await pods.start("client", "sleep", "600")
    written = ("127.0.0.1", GATEWAY, WEB, API_ADDRESS, "192.0.2.1", "10.128.99.99")
    tell(services, "web", WEB, *written)

    async def reset() -> str:
        found = await pods.said("client", sys.executable, "-c", connecting(WEB))
        return found if "ConnectionReset" in found else ""

    for _ in written:
        assert await until(reset)


async def test_sockets_of_the_machine_lead_to_endpoints_also_after_a_kill(
    running: Running, pods: Pods, services: ServiceNetwork
) -> None:
    one, two = await pods.serve("one", 8080), await pods.serve("two", 8080)
    for each in (one, two):
        await asked(pods.network, each.ips[0], 8080)
    listening = bound("127.64.3.3", 0)
    place = listening.getsockname()
    tell(services, "web", WEB, one.ips[0], two.ips[0])
    services.listen(("default/web", "TCP", 80), [listening])

    async def visit() -> str:
        return await answer(await connected(*place))

    assert {await visit() for _ in range(4)} == {"one", "two"}
    await running.kill()
    await running.start()
    assert {await visit() for _ in range(4)} == {"one", "two"}
    services.listen(("default/web", "TCP", 80), [])
    assert await until(lambda: _is_closed(place))


async def _is_closed(place: tuple[str, int]) -> bool:
    try:
        await answer(await connected(*place))
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # It was still being closed.
    return False


async def test_what_was_withdrawn_while_the_connection_was_broken_is_forgotten(
    pods: Pods, services: ServiceNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await pods.serve("one", 8080)
    await pods.start("client", "sleep", "600")
    await asked(pods.network, one.ips[0], 8080)
    listening = bound("127.64.3.4", 0)
    place = listening.getsockname()
    for name, address in (("web", WEB), ("other", OTHER)):
        tell(services, name, address, one.ips[0])
    services.listen(("default/web", "TCP", 80), [listening])
    assert await until(lambda: _answers(place)) == "one"
    assert await said(pods, connecting("web")) == await said(pods, connecting("other")) == "one"
    channel = services._channel
    assert channel is not None
    with monkeypatch.context() as broken:
        broken.setattr("allot.network.client.connect_unix", _refuse)
        channel.close()
        services.listen(("default/web", "TCP", 80), [])
        services.update("default/web", None)
    assert await until(lambda: _is_closed(place))
    assert "gaierror" in await pods.said("client", sys.executable, "-c", connecting("web"))
    assert await said(pods, connecting("other")) == "one"


def _refuse(_path: Path) -> socket.socket:
    raise ConnectionRefusedError("nobody listens")


async def _answers(place: tuple[str, int]) -> str:
    try:
        return await answer(await connected(*place))
    except ConnectionResetError:
        return ""


async def test_who_has_been_replaced_sends_no_services_any_more(
    pods: Pods, services: ServiceNetwork, tmp_path: Path
) -> None:
    one = await pods.serve("one", 8080)
    await pods.start("client", "sleep", "600")
    await asked(pods.network, one.ips[0], 8080)
    tell(services, "web", WEB, one.ips[0])
    assert await said(pods, connecting("web")) == "one"
    later = ServiceNetwork(tmp_path / "network.sock", ("127.0.0.1", 1))
    try:
        tell(later, "other", OTHER, one.ips[0])
        later.start()
        assert await said(pods, connecting("other")) == "one"
        with pytest.raises(NetworkFailure, match="another client sends the Services"):
            await services.ask({"do": "service", "key": "default/web", "routes": None})
        tell(services, "web", WEB, one.ips[0])
        assert "gaierror" in await pods.said("client", sys.executable, "-c", connecting("web"))
    finally:
        await later.close()


ECHO = """
import socket
hearing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
hearing.bind(("", 8080))
while True:
    data, client = hearing.recvfrom(9999)
    hearing.sendto(socket.gethostname().encode() + b" heard " + data, client)
"""
ASK = f"""
import socket
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(1)
for _ in range(60):
    asking.sendto(b"x", ("{WEB}", 80))
    try:
        print(asking.recv(99).decode(), end="")
        break
    except OSError:
        pass
"""


async def test_datagrams_are_relayed_too(pods: Pods, services: ServiceNetwork) -> None:
    one = await pods.start("one", sys.executable, "-c", ECHO)
    await pods.start("client", "sleep", "600")
    tell(services, "web", WEB, one.ips[0], port={"protocol": "UDP"})
    assert await said(pods, ASK) == "one heard x"
