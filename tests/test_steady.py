"""`make steady`: tests that sometimes fail are found, and those that start processes run more often."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALONE = """
from pathlib import Path

def test_alone():
    with Path({runs!r}).open("a") as runs:
        runs.write("a")
"""
STARTS = """
import subprocess
from pathlib import Path

def test_starts():
    subprocess.run(["true"], check=True)
    runs = Path({runs!r})
    runs.write_text(runs.read_text() + "s" if runs.exists() else "s")
    assert len(runs.read_text()) != 2, "the second time"
"""


@pytest.mark.slow
def test_what_starts_processes_is_repeated_and_what_ever_fails_is_named(tmp_path: Path) -> None:
    for name, text in (("alone", ALONE), ("starts", STARTS)):
        (tmp_path / f"test_{name}.py").write_text(text.format(runs=str(tmp_path / name)))
    options = ("--suites", "1", "--repeats", "1", "--busy", "1", "--workers", "0")
    done = subprocess.run(
        [sys.executable, "-m", "steady", *options, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert [len((tmp_path / each).read_text()) for each in ("alone", "starts")] == [1, 2]
    assert re.search(r"failed 1 times: \S*test_starts.py::test_starts$", done.stdout, re.MULTILINE)
    assert "2 runs, 3 tests, 1 failures, 1 processors kept busy" in done.stdout
    more = ROOT / done.stdout.partition("more: ")[2].split("\n")[0]
    assert "the second time" in more.read_text()
    more.unlink()
