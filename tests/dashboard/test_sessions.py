"""Sessions survive a restart with a key in a file, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from allot.dashboard import server
from allot.dashboard.links import token_in
from allot.dashboard.serving import ServingOptions
from allot.dashboard.sessions import LASTS_S, BadKey, Sessions
from dashboard import scene
from dashboard.serving import visitor_of_dump
from dashboard.test_recordings import Steered
from ports import free_port

KEY = "k" * 44


def key_file(folder: Path, key: str = KEY) -> Path:
    path = folder / "key"
    new = folder / "key.new"
    new.write_text(key)
    new.chmod(0o600)
    new.replace(path)
    return path


def test_a_session_is_good_until_it_ends() -> None:
    clock = Steered()
    sessions = Sessions(clock)
    session = sessions.new()
    assert sessions.is_good(session)
    clock.time += LASTS_S - 1
    assert sessions.is_good(session)
    clock.time += 2
    assert not sessions.is_good(session)


def test_what_was_not_given_is_refused() -> None:
    clock = Steered()
    sessions = Sessions(clock)
    session = sessions.new()
    until, rest = session.split(".", 1)
    later = f"{int(until) + 1}.{rest}"
    for wrong in (
        "",
        ".",
        "..",
        "a.b.c",
        session[:-1],
        f"{session}x",
        later,
        f"{until}é.{rest}",
        rest,
        f"{until}.x.{'0' * 64}",
    ):
        assert not sessions.is_good(wrong), wrong
    # Nor what another process gave, or the same one for another address.
    assert not Sessions(clock).is_good(session)


def test_a_session_from_a_clock_that_was_ahead_is_refused(tmp_path: Path) -> None:
    ahead, clock = Steered(), Steered()
    ahead.time += 10 * LASTS_S
    session = Sessions(ahead, "", key_file(tmp_path)).new()
    assert not Sessions(clock, "", tmp_path / "key").is_good(session)


def test_with_a_key_in_a_file_another_process_takes_it(tmp_path: Path) -> None:
    clock, path = Steered(), key_file(tmp_path)
    first = Sessions(clock, "https://a/", path)
    session = first.new()
    assert first.outlive_process
    assert Sessions(clock, "https://a/", path).is_good(session)
    assert not Sessions(clock, "https://b/", path).is_good(session)


def test_another_key_ends_all_sessions_at_once(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    sessions = Sessions(Steered(), "", path)
    session = sessions.new()
    key_file(tmp_path, "x" * 44)
    assert not sessions.is_good(session)
    assert sessions.is_good(sessions.new())
    # A key that is gone, or too short, is none: nobody gets in with an empty one.
    for change in (path.unlink, lambda: key_file(tmp_path, "short")):
        before = sessions.new()
        change()
        assert not sessions.is_good(before) or not sessions.outlive_process
        assert not sessions.outlive_process


def test_without_the_file_each_process_has_its_own_key(tmp_path: Path) -> None:
    """In a cluster the Secret may come later."""
    sessions = Sessions(Steered(), "", tmp_path / "key")
    session = sessions.new()
    assert sessions.is_good(session) and not sessions.outlive_process
    key_file(tmp_path)
    assert not sessions.is_good(session)
    assert sessions.outlive_process


@pytest.mark.parametrize("key", ["", "  \n", "k" * 31])
def test_a_short_key_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(BadKey, match="expected a key of at least 32"):
        Sessions(Steered(), "", key_file(tmp_path, key))


def test_a_key_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key_file(tmp_path)
    path.chmod(0o640)
    os.chown(path, 1000, -1) if os.getuid() == 0 else None
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid)
    with pytest.raises(BadKey, match="others can read it: expected mode 0600"):
        Sessions(Steered(), "", path)
    # A mounted Secret belongs to root.
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    Sessions(Steered(), "", path)


async def test_a_page_that_is_open_learns_nothing_more_when_its_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEARTBEAT_S", 0.05)
    options = ServingOptions(session_key=key_file(tmp_path))
    async with visitor_of_dump(scene.write(tmp_path / "dump.json", [scene.node(0)]), options) as inside:
        await inside.enter()
        async with inside.session.get(f"{inside.base}/api/stream?tables=nodes&since=0") as stream:
            assert (await stream.content.readline()).startswith(b"retry")
            key_file(tmp_path, "x" * 44)
            # It ends, where it would go on for as long as the page is open.
            await stream.content.read()
        assert (await inside.ask("api/stream?tables=nodes"))[0] == 401


async def test_a_browser_stays_in_when_the_dashboard_starts_again_and_its_link_does_not(tmp_path: Path) -> None:
    dump = scene.write(tmp_path / "dump.json", [scene.node(0)])
    options = ServingOptions(port=free_port(), session_key=key_file(tmp_path))
    async with visitor_of_dump(dump, options) as first:
        await first.enter()
        unused = token_in(first.links[-1])
        (cookie,) = [f"{each.key}={each.value}" for each in first.session.cookie_jar]
    async with visitor_of_dump(dump, options) as second:
        assert (await second.ask("api/about", Cookie=cookie))[0] == 200
        # Neither the link that was used nor the one that was not lets anybody in now.
        for token in (token_in(first.links[0]), unused):
            assert (await second.ask("login", method="POST", **second.token(token)))[0] == 403
