"""`allot top --watch` on a terminal: keys in, what is drawn out; and that it is a terminal on which it is drawn."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from allot.cli.screen.app import LINES_MAX, Screen
from allot.cli.screen.pages import PAGES, UNHEALTHY, Line, matches
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Pod
from allot.dashboard.following import Followed, dump_followed
from allot.process.clock import SystemClock
from allot.reading.listener import Notes
from cli.command import allot
from dashboard import scene
from waiting import WAIT_S, until


class Shown:
    """A screen, and what it says."""

    def __init__(self, app: Screen, pilot: Pilot[None], followed: Followed) -> None:
        self.app, self.pilot, self.followed = app, pilot, followed

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def rows(self) -> list[list[str]]:
        table = self.app.query_one(DataTable)
        return [[str(cell) for cell in table.get_row_at(place)] for place in range(table.row_count)]

    def text(self, name: str) -> str:
        return str(self.app.query_one(f"#{name}", Static).render())

    async def until(self, look: Callable[[], object]) -> None:
        async def looked() -> object:
            await self.pilot.pause()
            return look()

        await until(looked)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return scene.write(tmp_path / "dump.json")


@asynccontextmanager
async def shown(path: Path) -> AsyncIterator[Shown]:
    async with dump_followed((str(path),), Notes(), SystemClock()) as followed:
        app = Screen(followed)
        async with app.run_test(size=(160, 45)) as pilot:
            found = Shown(app, pilot, followed)
            await found.until(found.rows)
            yield found


async def test_every_page_shows_its_rows(dump: Path) -> None:
    async with shown(dump) as screen:
        rows = {row[0]: row for row in screen.rows()}
        assert rows["node-3"][4] == "cordoned" and rows["node-0"][2] == "6/8"
        assert rows["node-4"][1].endswith(UNHEALTHY[0]) and " " in rows["node-4"][1]
        assert "8 nodes" in screen.text("summary") and "7 pods wait" in screen.text("summary")
        expected = {
            "2": ("team-1/big-0", "Pending", "0/8 nodes are available: 8 cannot allocate all claims.", "3"),
            "3": ("team-2/sick", "in use", "not ready: fell off the bus"),
            "4": ("  evaluation", "gpu", "4"),
            "5": ("team-2/ring", "waiting", "0/4"),
            "6": ("node-3", "cordoned"),
            "7": (scene.DRIVER, "class"),
            "8": ("FailedScheduling",),
        }
        for key, cells in expected.items():
            await screen.press(key)
            await screen.until(lambda cells=cells: any(set(cells) <= set(row) for row in screen.rows()))


async def test_enter_explains_and_y_shows_the_object(dump: Path) -> None:
    async with shown(dump) as screen:
        await screen.press("2", "slash", *"big-0", "enter")
        await screen.until(lambda: [row[0] for row in screen.rows()] == ["team-1/big-0"])
        await screen.press("enter")
        await screen.until(lambda: "team-1/big-0 is pending because" in screen.text("answer"))
        await screen.press("y")
        await screen.until(lambda: "kind: Pod" in screen.text("answer") and "name: big-0" in screen.text("answer"))
        assert screen.app.query_one("#detail").has_class("open")
        await screen.press("escape")
        assert not screen.app.query_one("#detail").has_class("open")
        # A second one gives up the filter.
        await screen.press("escape")
        await screen.until(lambda: len(screen.rows()) == 7)


async def test_names_are_in_the_order_of_their_numbers_and_nothing_is_wider_than_the_terminal(tmp_path: Path) -> None:
    path = scene.write(tmp_path / "dump.json", scene.objects(12))
    async with shown(path) as screen:
        assert [row[0] for row in screen.rows()] == [f"node-{number}" for number in range(12)]
        for width in (120, 100):
            await screen.pilot.resize_terminal(width, 30)
            for key in "1258":
                await screen.press(key)
                await screen.until(screen.rows)
                await screen.until(lambda width=width: screen.app.query_one(DataTable).virtual_size.width <= width)
        # What was cut off is in the answer.
        await screen.press("2", "enter")
        await screen.until(lambda: "is pending because" in screen.text("answer"))


async def test_words_that_no_row_has_are_named(dump: Path) -> None:
    async with shown(dump) as screen:
        await screen.press("slash", *"unicorn")
        await screen.until(lambda: screen.text("note") == 'No row contains "unicorn".')
        assert screen.rows() == []


async def test_what_changes_is_drawn_and_the_cursor_stays_with_its_row(dump: Path) -> None:
    async with shown(dump) as screen:
        await screen.press("2", "down", "down")
        await screen.until(lambda: len(screen.rows()) == 7)
        chosen = screen.rows()[screen.app.query_one(DataTable).cursor_row][0]
        pod = decode_served(scene.pod("a-team", "new", said="0/8 nodes are available: 8 node(s) were full."), Pod)
        model = screen.followed.model
        model.apply([(None, pod)])
        model.refresh()
        screen.followed.told()
        await screen.until(lambda: len(screen.rows()) == 8)
        assert screen.rows()[screen.app.query_one(DataTable).cursor_row][0] == chosen
        model.apply(
            [(pod, msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Succeeded")))]
        )
        model.refresh()
        screen.followed.told()
        await screen.until(lambda: len(screen.rows()) == 7)


async def test_pages_turn_and_keys_are_told(dump: Path) -> None:
    async with shown(dump) as screen:
        await screen.press("shift+tab")
        await screen.until(
            lambda: screen.text("note") == "" and any("FailedScheduling" in row for row in screen.rows())
        )
        await screen.press("tab", "question_mark")
        await screen.until(lambda: "Enter" in screen.text("answer"))


async def test_of_very_many_rows_the_first_are_shown_and_that_is_said(tmp_path: Path) -> None:
    path = scene.write(tmp_path / "dump.json", [scene.node(number) for number in range(LINES_MAX + 5)])
    async with shown(path) as screen:
        assert len(screen.rows()) == LINES_MAX
        assert screen.text("note") == "The first 1,000 of 1,005; / finds the others."
        await screen.press("slash", *f"node-{LINES_MAX + 4}")
        await screen.until(lambda: [row[0] for row in screen.rows()] == [f"node-{LINES_MAX + 4}"])


def test_a_row_has_to_say_every_word() -> None:
    line = Line("team/a", (("Pending", ""),), (), "team/a pending")
    assert matches(line, "PEND team") and not matches(line, "pend other") and matches(line, "")


def test_pages_have_names_of_their_own_and_as_many_cells_as_columns() -> None:
    assert len({page.name for page in PAGES}) == len(PAGES) <= 9
    nodes = PAGES[0]
    assert len(nodes.cells("n", {}, 0.0)) == len(nodes.columns)


# --- the command ---


def test_elsewhere_than_on_a_terminal_it_is_the_plain_table(dump: Path) -> None:
    assert allot("top", "--watch", "-f", str(dump)).stdout == allot("top", "devices", "-f", str(dump)).stdout


def test_options_in_front_of_a_command_are_not_dropped() -> None:
    done = allot("top", "-w", "devices")
    assert (done.code, "options of allot top devices go after its name" in done.stderr) == (2, True)


def test_on_a_terminal_the_screen_is_drawn_until_q(dump: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-m", "allot", "top", "-w", "-f", str(dump)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        drawn = b""
        until_s = time.monotonic() + WAIT_S
        while b"cordoned" not in drawn and time.monotonic() < until_s:
            if select.select([ours], [], [], 0.1)[0]:
                drawn += os.read(ours, 65536)
        assert b"cordoned" in drawn
        os.write(ours, b"q")
        try:
            while select.select([ours], [], [], WAIT_S)[0] and os.read(ours, 65536):
                pass
        except OSError:
            pass  # the other end is closed
        assert process.wait(WAIT_S) == 0
    os.close(ours)
