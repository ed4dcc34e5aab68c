"""The dashboard in a real browser: every page of a dump and of a cluster that runs, by eye, by keyboard and by screen reader."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.http import HttpTransport
from allot.client.kubeconfig import connection_from_environment
from allot.core.advice.snapshot import read_object
from allot.core.model.core_v1 import Node
from allot.dashboard.links import read_link
from allot.dashboard.recordings import open_recording
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from dashboard import scene
from dashboard.accessibility import violations
from dashboard.browser import Browser, Page, chromium, find_chromium
from dashboard.test_model import objects
from dashboard.test_recordings import START, Told
from waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium: apt-get install chromium, or ALLOT_CHROMIUM=/path/to/it"),
]  # fmt: skip

DEVICE = f"{scene.DRIVER}/node-1/gpu-0"
# Every page, opened as far as it goes, and a text that shows that it is there.
PAGES = {
    "cluster": (f"node=node-1&device={DEVICE}&by=example.com/rack", "NVLink domain"),
    "pending": ("pod=team-1/big-0", "What helps, smallest change first"),
    "claims": ("s=idle", "team-1/forgotten"),
    "queues": ("queue=evaluation", "holds more than it deserves"),
    "gangs": ("gang=team-2/ring", "is pending because"),
    "nodes": ("", "No autoscaler reports here"),
    "capacity": ("like=machine:h100x4&add=2", "assumed as their drivers install them: DeviceClasses gpu.nvidia.com"),
    "timeline": ("", "FailedScheduling"),
    # What objects say stays text.
    "events": ("", scene.ATTACK),
    "object": ("kind=Pod&ns=team-1&name=big-0", "image: train:1"),
    "graph": ("kind=Pod&ns=team-1&name=train-1-0", "pool node-1"),
}
WIDTHS = (360, 800, 1400)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def dashboard(folder: Path, *arguments: str, ending: int = signal.SIGTERM) -> Iterator[Path]:
    """The command, as people start it; the file that has its link."""
    link = folder / "link"
    command = [sys.executable, "-m", "allot", "dashboard", "--link-file", str(link), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for("the link of the dashboard", lambda: read_link(link) or process.poll())
        assert process.poll() is None, process.communicate()[0]
        yield link
    finally:
        process.send_signal(ending)
        process.communicate()


def to(page: Page, name: str, query: str = "") -> None:
    page.evaluate(f"location.hash = {json.dumps(f'#/{name}?{query}' if query else f'#/{name}')}")
    page.at(name)


def is_well(page: Page, name: str) -> None:
    """Nothing to complain of, and nothing wider than the window."""
    assert not page.faults, (name, page.faults)
    assert not violations(page), name
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{name} is {wide} pixels wider than its window"


def test_every_page_of_a_dump_at_three_widths_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    with dashboard(tmp_path, "--snapshot", str(scene.write(tmp_path / "dump.json"))) as link, browser.page() as page:
        first = read_link(link)
        page.go(first)
        page.at("cluster")
        assert "token" not in page.evaluate("location.href")
        for place, (name, (query, text)) in enumerate(PAGES.items()):
            to(page, name, query)
            page.shows(text)
            for round_, width in enumerate(WIDTHS):
                # Each width of each page in one of the two, each page in both.
                page.colour("dark" if (place + round_) % 2 else "light")
                page.resize(width, 800)
                is_well(page, f"{name} at {width}")
        to(page, "cluster", "q=device.driver+==+'nobody'")
        page.shows("0 of 65 devices match")
        is_well(page, "a selection")
        page.press("?")
        page.shows("From device to device")
        is_well(page, "the help")
        server = first.partition("/#")[0]
        others = {url for url in page.requests if not url.startswith((server, "data:", "blob:"))}
        assert not others, "requests to other hosts"
        # The link was used up; without a session there is a door with a handle.
        with browser.page() as other:
            other.go(first)
            other.shows("Come in with the link")
            assert not violations(other)
            other.faults = [fault for fault in other.faults if "401" not in fault and "403" not in fault]
            is_well(other, "the door")


def test_a_page_whose_files_were_cut_off_is_loaded_again(browser: Browser, tmp_path: Path) -> None:
    with dashboard(tmp_path, "--snapshot", str(scene.write(tmp_path / "dump.json"))) as link, browser.page() as page:
        page.go(read_link(link))
        page.at("cluster")
        # Pauses between tries end when the test says so.
        page.evaluate(
            "held = [], timer = setTimeout, setTimeout = (f, ms) => [200, 1000].includes(ms) ? held.push(f) : timer(f, ms)"
        )
        page.send("Network.setBlockedURLs", {"urls": ["*/pages/nodes.js"]})
        page.evaluate("location.hash = '#/nodes'")
        page.until("held.length")
        page.send("Network.setBlockedURLs", {"urls": ["*/pages/events.js"]})
        page.evaluate("held.pop()()")
        page.at("nodes")
        # Nothing helps.
        page.evaluate("location.hash = '#/events'")
        for _ in range(2):
            page.until("held.length")
            page.evaluate("held.pop()()")
        page.shows("pages/events.js of the dashboard could not be loaded")
        # The page that was left is made anew, not taken for being shown.
        page.evaluate("location.hash = '#/nodes'")
        page.shows("node-0")
        page.send("Network.setBlockedURLs", {"urls": []})
        to(page, "events")
        is_well(page, "events")


def test_the_keyboard_alone_reaches_everything(browser: Browser, tmp_path: Path) -> None:
    with dashboard(tmp_path, "--snapshot", str(scene.write(tmp_path / "dump.json"))) as link, browser.page() as page:
        page.go(read_link(link))
        page.at("cluster")
        # Tab goes through all that can be used, and back to the beginning.
        seen = []
        for _ in range(60):
            page.press("Tab")
            seen.append(page.focused())
        for wanted in (
            "Skip to the page",
            "Cluster",
            "Events",
            "Filter nodes by name, model, holder or label, or select devices by a CEL expression",
            "Table",
        ):
            assert wanted in seen, (wanted, seen)
        assert any(each.startswith("Devices by node") for each in seen)
        # The heat map: from device to device, open one, and back to where one was.
        page.evaluate("document.querySelector('.heat').focus()")
        page.press("ArrowDown", "ArrowRight", "ArrowRight")
        page.until("document.getElementById('said').textContent.includes('node-0, gpu-2: A100 40GB')")
        page.press("Enter")
        page.until(
            "document.querySelector('.drawer h2')?.textContent === 'gpu-2' && document.activeElement.tagName === 'H2'"
        )
        assert "device=" in page.evaluate("location.hash")
        page.press("Escape")
        page.until("document.querySelector('.drawer').hidden && document.activeElement.className === 'heat'")
        # Pages by two letters, lists by j and k, Enter opens, Escape closes, the back button works.
        page.press("g", "p")
        page.at("pending")
        page.press("j")
        page.until("document.activeElement.closest('tr')?.dataset.key")
        page.press("j")
        page.press("Enter")
        page.until("document.activeElement.tagName === 'H2'")
        opened = page.evaluate("location.hash")
        assert "shape=" in opened
        page.press("Escape")
        page.until("!document.querySelector('.detail').textContent")
        page.press("g", "l")
        page.at("claims")
        page.press("f")
        page.press(*"forgotten")
        page.until("document.querySelectorAll('tbody tr[data-key]').length === 1")
        assert page.evaluate("location.hash") == "#/claims?q=forgotten"
        page.evaluate("history.back()")
        page.at("pending")
        page.evaluate("history.forward()")
        page.at("claims")
        page.until("document.querySelectorAll('tbody tr[data-key]').length === 1")
        # Search.
        page.evaluate("document.activeElement.blur()")
        page.press("/")
        page.press(*"ring-2")
        page.until("document.querySelectorAll('#found [data-to]').length === 2")
        page.press("ArrowDown", "Enter")
        page.at("object")
        page.shows("ring-2")
        assert not page.faults


def test_a_recording_is_shown_at_any_moment(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    asyncio.run(_record(path))
    with dashboard(tmp_path, "--replay", str(path)) as link, browser.page() as page:
        page.go(read_link(link))
        page.at("cluster")
        page.shows("A recording: test in recording.")
        page.shows("4 nodes take pods")
        # By keyboard from change to change; links keep the moment, and so does the back button.
        page.press(",")
        page.until("document.querySelector('.player output').textContent.includes('10 s of 20 s')")
        page.shows("of 3 nodes take pods")
        assert f"at={START + 20:.0f}" in page.evaluate("location.hash")
        page.click("#to-pending")
        page.at("pending")
        page.shows("team-1/late")
        page.press(".")
        page.until("!document.querySelector('table').textContent.includes('team-1/late')")
        to(page, "pending", f"at={START + 20:.0f}")
        page.shows("team-1/late")
        to(page, "timeline", f"at={START + 20:.0f}")
        page.until("!!document.querySelector('.now') && document.querySelectorAll('.held').length > 4")
        for width in WIDTHS:
            page.resize(width, 800)
            is_well(page, f"a recording at {width}")
        # A click shows the moment that was clicked.
        box = page.evaluate("(b => [b.x, b.y, b.width])(document.querySelector('.chart svg').getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            page.send("Input.dispatchMouseEvent", {"type": kind, "x": box[0] + box[2] - 2, "y": box[1] + 40, "button": "left", "clickCount": 1})  # fmt: skip
        page.until("document.querySelector('.player output').textContent.includes('20 s of 20 s')")
        page.evaluate("document.querySelector('.player button').click()")
        page.until("document.querySelector('.player button').textContent === 'Pause'")
        assert not page.faults


async def _record(path: Path) -> None:
    """Three moments: four nodes, one less and a pod that waits, and as before."""
    told = Told(path, objects(4))
    await told.step()
    node = next(each for each in objects(4) if isinstance(each, Node) and each.metadata.name == "node-2")
    late = read_object(scene.pod("team-1", "late", said="not yet", claims=()))
    await told.step((node, None), (None, late))
    await told.step((None, node), (late, None))
    await told.recorder.close()


# --- a cluster that runs ---


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """`allot up`, with its dashboard; the data directory."""
    data = folder / "data"
    environment = {**os.environ, "HOME": str(folder)}
    allot = [sys.executable, "-m", "allot"]
    done = subprocess.run(
        [*allot, "up", "--detach", "--port", "0", "--data-dir", str(data), "--node", "h100x8=2"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "dashboard: http://127.0.0.1:" in done.stderr
    try:
        yield data
    finally:
        subprocess.run([*allot, "down", "--data-dir", str(data)], env=environment, check=False, capture_output=True)


@asynccontextmanager
async def client(data: Path) -> AsyncIterator[Client]:
    connection = connection_from_environment({}, kubeconfig=data / "admin.kubeconfig")
    found = Client(HttpTransport(connection, SystemClock(), SystemIds()))
    try:
        yield found
    finally:
        await found.close()


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "all", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 9}}]}}},
}  # fmt: skip


def pod(name: str) -> dict[str, Any]:
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "train:1", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "all"}],
    }
    metadata = {"name": name, "namespace": "default", "annotations": {"allot.dev/gpu-utilization": "83"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def create(data: Path, *objects: dict[str, Any]) -> None:
    async with client(data) as found:
        for each in objects:
            await (await found.of_kind(each["apiVersion"], each["kind"])).create(each)


async def delete(data: Path, kind: str, name: str, api_version: str = "v1") -> None:
    async with client(data) as found:
        await (await found.of_kind(api_version, kind)).delete(name, "default")


def record_until_killed(folder: Path, data: Path) -> None:
    """A dashboard that is killed leaves a recording that can be read."""
    path = folder / "recording"
    with dashboard(
        folder, "--kubeconfig", str(data / "admin.kubeconfig"), "--record", str(path), ending=signal.SIGKILL
    ):
        wait_for("the recording", lambda: path.stat().st_size > 1000)
    pieces = open_recording(path)
    pieces.close()
    assert pieces.pieces[0].head.is_whole and pieces.pieces[0].head.sample.in_use == 8


def held(page: Page) -> int:
    return int(
        page.evaluate("Number(document.querySelector('.legend .u').parentElement.textContent.match(/[0-9]+/)[0])")
    )


def test_a_pod_is_followed_from_pending_to_running_to_deleted(browser: Browser, tmp_path: Path) -> None:
    with cluster(tmp_path) as data, browser.page() as page:
        page.go(read_link(data / "dashboard.link"))
        page.at("cluster")
        page.shows("of 16 devices free")
        assert held(page) == 0
        to(page, "pending")
        page.shows("No pod waits")
        # More than a node has: it waits, the scheduler says so at once, and why comes soon after.
        asyncio.run(create(data, TEMPLATE, pod("train")))
        page.shows("default/train")
        page.click("tbody a")
        page.shows("cannot allocate all claims")
        page.shows("default/train is pending because")
        assert not violations(page)
        asyncio.run(delete(data, "Pod", "train"))
        page.shows("No pod waits")
        # As many as there are: it runs.
        asyncio.run(delete(data, "ResourceClaimTemplate", "all", "resource.k8s.io/v1"))
        template = json.loads(json.dumps(TEMPLATE))
        template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 8
        asyncio.run(create(data, template, pod("train")))
        to(page, "claims")
        page.shows("in use")
        to(page, "cluster")
        page.until("document.querySelector('.legend .u').parentElement.textContent === 'in use 8'")
        for name, text in (("nodes", "h100x8-0"), ("events", "Scheduled"), ("timeline", "8 of 16 devices in use"), ("capacity", "gpu.nvidia.com"), ("queues", "There are no queues"), ("gangs", "There are no gangs")):  # fmt: skip
            to(page, name)
            page.shows(text)
            is_well(page, name)
        to(page, "object", "kind=Pod&ns=default&name=train")
        page.shows("nodeName: h100x8")
        to(page, "graph", "kind=Pod&ns=default&name=train")
        page.shows("Devices 8")
        record_until_killed(tmp_path, data)
        to(page, "claims")
        # The user of the dashboard may read what devices are used for; the server asks nodes for that from time to time.
        page.shows("83 %")
        to(page, "cluster")
        # An update takes the page less than the time in which nobody sees a delay; what it took is told, not asserted.
        assert float(page.evaluate("document.documentElement.dataset.update")) >= 0
        asyncio.run(delete(data, "Pod", "train"))
        page.until("document.querySelector('.legend .u').parentElement.textContent === 'in use 0'")
        assert not page.faults
        # Nothing that a visitor can reach writes: the user of the dashboard may not.
        status = json.loads(subprocess.run([sys.executable, "-m", "allot", "status", "--data-dir", str(data), "-o", "json"], capture_output=True, check=True).stdout)  # fmt: skip
        assert status["dashboard"] == read_link(data / "dashboard.link")
        assert "dashboard" in {part["name"] for part in status["parts"]}
        # Who has the page open when the cluster ends is told.
        subprocess.run(
            [sys.executable, "-m", "allot", "down", "--data-dir", str(data)], check=True, capture_output=True
        )
        page.shows("The dashboard does not answer")
    assert not (data / "dashboard.link").exists()
