"""Changes of small files are told to those who wait for them, by one thread."""

from __future__ import annotations

import threading
from pathlib import Path

from allot.devices.gpu.file_watcher import FileWatcher, stamp_of

PATIENCE_S = 60.0


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "file-watcher"}


def test_each_change_is_told_to_who_waits_for_it(tmp_path: Path) -> None:
    watcher = FileWatcher(poll_s=0.01)
    files = [tmp_path / str(number) for number in range(100)]
    events = [threading.Event() for _ in files]
    before = threads()
    for path, event in zip(files, events, strict=True):
        watcher.watch(path, stamp_of(path), event)
    (own,) = threads() - before
    files[7].write_text("there is a file now")
    assert events[7].wait(PATIENCE_S)
    assert sum(event.is_set() for event in events) == 1
    events[7].clear()
    watcher.watch(files[7], stamp_of(files[7]), events[7])
    files[7].unlink()
    assert events[7].wait(PATIENCE_S)
    for event in events:
        watcher.forget(event)
    own.join(PATIENCE_S)
    assert not own.is_alive()


def test_a_change_before_the_watch_is_told(tmp_path: Path) -> None:
    watcher = FileWatcher(poll_s=0.01)
    path = tmp_path / "file"
    known = stamp_of(path)
    path.write_text("written meanwhile")
    event = threading.Event()
    watcher.watch(path, known, event)
    assert event.wait(PATIENCE_S)
    watcher.forget(event)
