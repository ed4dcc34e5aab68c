"""`pytest -n`: what happens to tests in other processes is told as if they had run in the first one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import workers

def pytest_addoption(parser):
    workers.add_option(parser)

def pytest_runtestloop(session):
    by_file = {}
    for number, item in enumerate(session.items):
        by_file.setdefault(item.path, []).append(number)
    workers.run_pieces(session, session.config.getoption("workers"), by_file.values())
    return True
"""
SHARED = """
import os, pytest, warnings

@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    yield os.getpid(), made
    (made / "ended").touch()

def test_one(begun):
    warnings.warn("be careful")
    assert begun[0] == os.getpid() != int(os.environ["FIRST"])

def test_two(begun, record_property):
    assert not (begun[1] / "ended").exists()
    record_property("seen", "property")
"""
FAILS = """
import os, pytest

def test_that_fails():
    print("what it said")
    assert 1 + 1 == 3

def test_that_dies():
    os.abort()

def test_after_it():
    pass

@pytest.mark.skip(reason="not today")
def test_that_is_skipped():
    pass

@pytest.fixture
def bad_end():
    yield
    raise OSError("at the end")

def test_whose_end_fails(bad_end):
    pass
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_shared.py").write_text(SHARED)
    (folder / "test_fails.py").write_text(FAILS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = "import os, pytest, sys; os.environ['FIRST'] = str(os.getpid()); sys.exit(pytest.main(sys.argv[1:]))"
    plain = ("-p", "no:xdist", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}")
    whole = [sys.executable, "-c", command, *plain, *options, str(folder)]
    return subprocess.run(whole, env=environment, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.slow
def test_everything_that_happens_is_told(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    done = run(tmp_path, "-n", "2", f"--junit-xml={report}", "-o", "junit_family=xunit1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"2 failed, 4 passed, 1 skipped, 1 warning, 1 error in ", done.stdout), done.stdout
    assert "assert (1 + 1) == 3" in done.stdout and "what it said" in done.stdout
    assert "the process that ran this test ended with -6" in done.stdout
    assert "OSError: at the end" in done.stdout
    assert done.stdout.count("UserWarning: be careful") == 1
    assert 'name="seen" value="property"' in report.read_text()


@pytest.mark.slow
def test_the_first_failure_may_be_the_last(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "1", "-x")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout and "stopping after 1 failures" in done.stdout
    assert "test_after_it" not in done.stdout
