"""Pictures of the dashboard for the documentation: `make screenshots`. A browser looks at a cluster that is always the same."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

from allot.core.advice.snapshot import read_object
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.links import read_link
from dashboard import scene
from dashboard.browser import Page, chromium
from dashboard.test_browser import dashboard, to
from dashboard.test_recordings import START, Told

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WIDTH, HEIGHT = 1180, 720
# Name, page, what is opened, the text to wait for.
PICTURES = (
    (
        "cluster",
        "cluster",
        f"by=example.com/rack&node=node-1&device={scene.DRIVER}/node-1/gpu-6",
        "Attributes and capacity",
    ),
    ("pending", "pending", "pod=team-1/big-0", "What helps, smallest change first"),
    ("graph", "graph", "kind=Pod&ns=team-1&name=train-1-0", "pool node-1"),
    ("queues", "queues", "queue=evaluation", "Jobs in their order"),
    ("capacity", "capacity", f"what=class:large.{scene.DRIVER}&count=4&like=node-1&add=6", "changed"),
)


def take(page: Page, name: str, at: str, query: str, text: str) -> None:
    """One picture, when all is there."""
    page.evaluate("document.documentElement.dataset.ready = ''; location.hash = '#/events'")
    page.at("events")
    to(page, at, query)
    page.until(f"document.body.textContent.includes({text!r})", text)
    # Two frames: what was drawn last can be seen.
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    path = FOLDER / f"dashboard-{name}.png"
    page.picture(path)
    sys.stdout.write(f"{path} {path.stat().st_size // 1024} KiB\n")


def main() -> None:
    """All of them, light, and the first one dark and on a phone."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        dump = scene.write(Path(folder) / "dump.json", scene.objects(32))
        with dashboard(Path(folder), "--snapshot", str(dump)) as link, browser.page(width=WIDTH, height=HEIGHT) as page:
            page.go(read_link(link))
            page.at("cluster")
            # The banner would show where the dump was.
            page.evaluate("document.getElementById('banner').style.setProperty('display', 'none')")
            for picture in PICTURES:
                take(page, *picture)
            page.colour("dark")
            take(page, "dark", "cluster", "by=nvidia.com/gpu.clique&colour=namespace", "Cluster")
            page.resize(390, 720)
            page.colour("light")
            take(page, "phone", "cluster", "", "Cluster")
        recording = Path(folder) / "monday.recording"
        asyncio.run(_record(recording))
        with (
            dashboard(Path(folder), "--replay", str(recording)) as link,
            browser.page(width=WIDTH, height=HEIGHT) as page,
        ):
            page.go(read_link(link))
            page.at("cluster")
            take(page, "use", "cluster", "by=example.com/rack&colour=use", "75 % or more")
            page.resize(WIDTH, 960)
            take(page, "recording", "timeline", f"at={START + 3000:.0f}", "Who held what")


async def _record(path: Path) -> None:
    """Claims and pods come and go for two hours; some of what they hold is hardly used."""
    dice, every = random.Random(3), [read_object(value) for value in scene.objects(16)]
    told = Told(path, every, title="prod")
    moving = [each for each in every if isinstance(each, ResourceClaim | Pod) and "train" in each.metadata.name]
    pods = [each for each in every if isinstance(each, Pod) and each.spec.node_name]
    await told.step()
    for _ in range(160):
        told.clock.time += dice.random() * 70
        await told.toggle(dice.choice(moving))
    use = {pod.key: (dice.choice((1.0, 15.0, 40.0, 60.0, 90.0, 95.0)), 20_000.0) for pod in pods}
    told.recorder.measured(use)
    await told.recorder.close()


if __name__ == "__main__":
    main()
