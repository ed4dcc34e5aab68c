"""Who is let in, and what is never done: other names, other pages, tokens that were used, writes."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from allot.client.api import Client, PatchType
from allot.client.transport import Response
from allot.core.advice.snapshot import KINDS
from allot.dashboard.links import read_link, token_in
from allot.dashboard.measuring import METRICS
from allot.dashboard.rights import cluster_role
from allot.dashboard.serving import ServingOptions
from allot.reading.live import ReadOnly
from dashboard import scene
from dashboard.serving import Visitor, visitor_of_dump
from ports import free_port

DATA = (
    "api/about",
    "api/rows/nodes",
    "api/stream",
    "api/ask/queues",
    "api/object?kind=Node&name=node-0",
    "api/search?q=a",
)


@pytest.fixture
async def at_the_door(tmp_path: Path) -> AsyncIterator[Visitor]:
    async with visitor_of_dump(scene.write(tmp_path / "dump.json", [scene.node(0)])) as found:
        yield found


@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:{port}", "127.0.0.1:1", "localhost.evil.com:{port}", ""])  # fmt: skip
async def test_a_name_that_was_made_to_point_here_is_refused(at_the_door: Visitor, host: str) -> None:
    """DNS rebinding: the browser thinks that it talks to the attacker's page, and says so."""
    await at_the_door.enter()
    port = at_the_door.base.rpartition(":")[2]
    for path in ("", "app.js", *DATA):
        status, _, body = await at_the_door.ask(path, Host=host.format(port=port))
        assert status == 403, (path, body)


async def test_the_names_of_this_machine_are_known(at_the_door: Visitor) -> None:
    port = at_the_door.base.rpartition(":")[2]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert (await at_the_door.ask("", Host=host))[0] == 200, host


async def test_a_further_name_can_be_allowed(tmp_path: Path) -> None:
    options = ServingOptions(hosts=("dashboard.example.com",))
    async with visitor_of_dump(scene.write(tmp_path / "dump.json", [scene.node(0)]), options) as found:
        for host in ("dashboard.example.com", "dashboard.example.com:443"):
            assert (await found.ask("", Host=host))[0] == 200
        assert (await found.ask("", Host="other.example.com"))[0] == 403
        # A proxy calls the server by its address, and browsers call the proxy by its name.
        token = {"X-Allot-Token": token_in(found.links[-1]), "Origin": "https://dashboard.example.com"}
        status, headers, _ = await found.ask("login", method="POST", **token)
        assert status == 200
        # Browsers come to the proxy over TLS, so they keep the cookie for that alone.
        assert headers["Set-Cookie"].endswith("; Secure")
        cookie = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
        assert (await found.ask("api/about", Origin="https://dashboard.example.com", **cookie))[0] == 200
        assert (await found.ask("api/about", Origin="https://other.example.com"))[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example.com", "null", "https://127.0.0.1", "http://localhost:1"])
async def test_what_another_page_sends_is_refused(at_the_door: Visitor, origin: str) -> None:
    token = token_in(at_the_door.links[-1])
    status, _, _ = await at_the_door.ask("login", method="POST", **{"X-Allot-Token": token, "Origin": origin})
    assert status == 403
    await at_the_door.enter()
    for path in DATA:
        assert (await at_the_door.ask(path, Origin=origin))[0] == 403


async def test_another_site_gets_no_data_even_with_the_cookie(at_the_door: Visitor) -> None:
    await at_the_door.enter()
    for site in ("cross-site", "same-site"):
        for path in DATA:
            assert (await at_the_door.ask(path, **{"Sec-Fetch-Site": site}))[0] == 403


async def test_nobody_without_a_session_gets_data(at_the_door: Visitor) -> None:
    for path in DATA:
        status, _, body = await at_the_door.ask(path)
        assert (status, body) == (401, {"error": "open the link that allot dashboard printed"})
    assert (await at_the_door.ask(""))[0] == 200


async def test_a_token_works_once_and_a_new_link_follows(at_the_door: Visitor) -> None:
    first = token_in(at_the_door.links[-1])
    await at_the_door.enter()
    assert len(at_the_door.links) == 2
    status, _, body = await at_the_door.ask("login", method="POST", **at_the_door.token(first))
    assert status == 403
    assert "each link works once" in body["error"]
    await at_the_door.enter()
    assert len(set(at_the_door.links)) == 3


async def test_a_token_is_exchanged_by_the_page_only(at_the_door: Visitor) -> None:
    token = token_in(at_the_door.links[-1])
    assert (await at_the_door.ask("login", method="POST", **{"X-Allot-Token": token}))[0] == 403
    assert (await at_the_door.ask("login", **at_the_door.token(token)))[0] == 405
    for wrong in ("", "x", token[:-1], f"{token}x"):
        assert (await at_the_door.ask("login", method="POST", **at_the_door.token(wrong)))[0] == 403
    # None of that has used it up.
    await at_the_door.enter()


async def test_the_cookie_is_for_this_server_alone(at_the_door: Visitor) -> None:
    token = token_in(at_the_door.links[-1])
    _, headers, _ = await at_the_door.ask("login", method="POST", **at_the_door.token(token))
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(f"allot-dashboard-{at_the_door.base.rpartition(':')[2]}=")
    assert "; Max-Age=86400; HttpOnly; SameSite=Strict" in cookie
    assert "Secure" not in cookie
    # Without a path it is for that of the page: behind a proxy others answer from the same origin.
    assert "Path" not in cookie


async def test_links_lead_through_the_proxy_whose_name_is_then_known(tmp_path: Path) -> None:
    options = ServingOptions(port=free_port(), external_url="https://gpus.example.com/dashboard/")
    async with visitor_of_dump(scene.write(tmp_path / "dump.json", [scene.node(0)]), options) as found:
        assert found.links[-1].startswith("https://gpus.example.com/dashboard/#token=")
        found.base = f"http://127.0.0.1:{options.port}"
        assert (await found.ask("", Host="gpus.example.com"))[0] == 200
        assert (await found.ask("", Host="other.example.com"))[0] == 403


async def test_every_answer_says_what_browsers_may_do_with_it(at_the_door: Visitor) -> None:
    answers = [await at_the_door.ask(path) for path in ("", "app.js", "style.css", "nothing", "api/about")]
    answers.append(await at_the_door.ask("", Host="evil"))
    await at_the_door.enter()
    answers += [await at_the_door.ask(path) for path in ("api/about", "api/rows/nodes", "api/nothing")]
    for status, headers, _ in answers:
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"), status
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers


async def test_nothing_can_be_written(at_the_door: Visitor) -> None:
    await at_the_door.enter()
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for path in ("", "api/about", "api/object?kind=Node&name=node-0"):
            assert (await at_the_door.ask(path, method=method))[0] == 405


@pytest.mark.parametrize("path", ["../pyproject.toml", "%2e%2e/server.py", "static/app.js", "pages/../../server.py", "api/rows/../about", "__init__.py"])  # fmt: skip
async def test_only_files_of_the_page_are_served(at_the_door: Visitor, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(at_the_door.base.rpartition(":")[2]))
    writer.write(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{at_the_door.base.rpartition(':')[2]}\r\nConnection: close\r\n\r\n".encode())  # fmt: skip
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    assert answer.split()[1] in ("401", "404"), answer[:200]


async def test_kinds_that_no_page_needs_are_never_read(at_the_door: Visitor) -> None:
    await at_the_door.enter()
    for kind in ("Secret", "ConfigMap", "ServiceAccount"):
        assert (await at_the_door.ask(f"api/object?kind={kind}&ns=default&name=x"))[0] == 404
    assert not {"secrets", "configmaps"} & {kind.plural for kind in KINDS}


async def test_the_link_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "link"
    async with visitor_of_dump(
        scene.write(tmp_path / "dump.json", [scene.node(0)]), ServingOptions(link_file=file)
    ) as found:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert read_link(file) == found.links[-1]
        await found.enter()
        assert read_link(file) == found.links[-1] != found.links[0]
    assert not file.exists()


async def test_others_are_served_over_tls_only(tmp_path: Path) -> None:
    async with visitor_of_dump(
        scene.write(tmp_path / "dump.json", [scene.node(0)]), ServingOptions(address="0.0.0.0")
    ) as found:
        assert found.base.startswith("https://127.0.0.1:")
        token = token_in(found.links[-1])
        status, headers, _ = await found.ask("login", method="POST", **found.token(token))
        assert status == 200
        assert headers["Set-Cookie"].endswith("; Secure")


async def test_whatever_would_write_does_not_leave_the_process() -> None:
    class Recorder:
        """Carries nothing anywhere."""

        def __init__(self) -> None:
            self.sent: list[str] = []

        async def request(self, method: str, *_arguments: object, **_named: object) -> Response:
            self.sent.append(method)
            return Response(200, {}, {"metadata": {}})

        def stream(self) -> None:
            """For Transport."""

        async def close(self) -> None:
            """For Transport."""

    recorder = Recorder()
    pods = Client(ReadOnly(recorder)).resource("", "v1", "pods", namespaced=True)
    await pods.get("a", "default")
    for write in (
        pods.create({"metadata": {"name": "a", "namespace": "default"}}),
        pods.delete("a", "default"),
        pods.patch("a", {}, PatchType.MERGE, "default"),
    ):
        with pytest.raises(PermissionError, match="nothing is written here"):
            await write
    assert recorder.sent == ["GET"]


def test_the_role_allows_to_look_and_nothing_else() -> None:
    rules = cluster_role()["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    allowed = {(group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]}
    measured = {("custom.metrics.k8s.io", f"pods/{metric}") for metric in METRICS}
    assert allowed == {*((kind.group, kind.plural) for kind in KINDS), ("", "configmaps"), *measured}
    assert [rule.get("resourceNames") for rule in rules if "configmaps" in rule["resources"]] == [["cluster-autoscaler-status"]]  # fmt: skip
