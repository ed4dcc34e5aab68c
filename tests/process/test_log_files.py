"""Log files: lines are appended, large files are set aside, and agents can read what is written."""

from __future__ import annotations

from pathlib import Path

from allot.node.logs import parse_line
from allot.process.log_files import SET_ASIDE_MAX, ContainerLog, LogFile


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    for text in ("one", "two"):
        file = LogFile(tmp_path / "log" / "a.log")
        file.write(text)
        file.close()
    assert (tmp_path / "log" / "a.log").read_text() == "one\ntwo\n"


def test_a_file_that_is_too_large_is_set_aside_and_the_oldest_go(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "a.log", bytes_max=10)
    for number in range(10):
        file.write(f"line {number}")
    file.close()
    assert (tmp_path / "a.log").read_text() == "line 9\n"
    assert (tmp_path / "a.log.1").read_text() == "line 8\n"
    assert len(list(tmp_path.iterdir())) == 1 + SET_ASIDE_MAX


def test_an_entry_is_what_an_agent_reads(tmp_path: Path) -> None:
    log = ContainerLog(tmp_path / "a.log")
    log.write_entry("2026-11-16T02:00:00.000001Z", "first\nsecond")
    log.close()
    lines = [parse_line(line) for line in (tmp_path / "a.log").read_bytes().splitlines()]
    assert [line.text for line in lines if line is not None] == [b"first", b"second"]
