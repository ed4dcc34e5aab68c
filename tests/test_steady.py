"""`make steady`: tests that sometimes fail are found, those that start processes run more often, and hours of runs go on where they were."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from waiting import wait_for

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
# Each test leaves a letter when it runs.
CONFTEST = """
import subprocess
import pytest
from pathlib import Path

@pytest.fixture
def ran(request):
    letters = Path(__file__).parent / "ran" / request.node.name.removeprefix("test_")
    letters.parent.mkdir(exist_ok=True)
    with letters.open("a") as runs:
        runs.write("x")
    return letters.read_text()

@pytest.fixture(params=["thread", "process"])
def helper(request):
    if request.param == "process":
        subprocess.run(["true"], check=True)

@pytest.fixture(scope="session")
def server():
    yield
    subprocess.run(["true"], check=True)
"""
TESTS = """
import subprocess
import pytest

@pytest.fixture(scope="module")
def shared():
    subprocess.run(["true"], check=True)

def test_first(shared, ran): pass
def test_second(shared, ran): pass
def test_by_name(request, ran):
    request.getfixturevalue("shared")
def test_helped(helper, ran): pass
def test_served(server, ran): pass
def test_alone(ran): pass

class TestMany:
    def test_starts(self, ran):
        subprocess.run(["true"], check=True)
        assert len(ran) != 2, "the second time"

def test_last_of_all(ran): pass
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for tests, beneath the repository, as its own tests are."""
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as made:
        yield Path(made)


def steady(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*options), cwd=ROOT, capture_output=True, text=True, check=False)


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "steady", "--busy", "0", "--workers", "0", *options]


def test_what_starts_processes_is_repeated_and_what_ever_fails_is_named(folder: Path) -> None:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_all.py").write_text(TESTS)
    done = steady("--suites", "1", "--repeats", "1", "--busy", "1", str(folder))
    assert done.returncode == 1, done.stdout + done.stderr
    repeated = {"first", "second", "by_name", "helped[process]", "served", "starts"}
    ran = {path.name: len(path.read_text()) for path in (folder / "ran").iterdir()}
    assert ran == {**dict.fromkeys(repeated, 2), "helped[thread]": 1, "alone": 1, "last_of_all": 1}
    assert re.search(r"^failed 1 times: \S*test_all.py::TestMany::test_starts$", done.stdout, re.MULTILINE)
    assert "repeat 1 of 1: 6 tests, 1 failed, " in done.stdout and "of processor; about 0 min left" in done.stdout
    assert "2 runs, 15 tests, 6 of them start processes, 1 failures, 1 processors kept busy" in done.stdout
    more = ROOT / done.stdout.partition("more: ")[2].split("\n")[0]
    assert "the second time" in more.read_text()
    more.unlink()


QUICK = """
from pathlib import Path

def test_quick():
    with (Path(__file__).parent / "quick").open("a") as runs:
        runs.write("x")
"""
HANGS = """
import subprocess, time
from pathlib import Path

FOLDER = Path(__file__).parent

def test_that_hangs_the_second_time():
    with (FOLDER / "runs").open("a") as runs:
        runs.write("x")
    if (FOLDER / "runs").read_text() == "xx":
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        (FOLDER / "child").write_text(str(child.pid))
        child.wait()
"""


def test_an_interrupted_run_leaves_nothing_and_goes_on_later(folder: Path) -> None:
    (folder / "test_a_quick.py").write_text(QUICK)
    (folder / "test_hangs.py").write_text(HANGS)
    state = folder / "state.json"
    options = ("--state", str(state), "--suites", "3", "--repeats", "0", str(folder))
    begun = subprocess.Popen(command(*options), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    child = int(wait_for("the second run", lambda: (folder / "child").exists() and (folder / "child").read_text()))
    begun.send_signal(signal.SIGTERM)
    told, _ = begun.communicate()
    first, second = told.splitlines()
    assert begun.returncode == 128 + signal.SIGTERM and first.startswith("suite 1 of 3: 2 tests, 0 failed, "), told
    assert second.startswith("interrupted: 1 tests, 0 failed, "), told
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)

    other = steady(*options, "--repeats", "4")
    assert other.returncode == 2 and not other.stdout
    assert f"error: {state}: earlier runs were about repeats 0, and not 4" in other.stderr

    done = steady(*options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(",")[0] for line in done.stdout.splitlines()[:2]] == [
        "suite 2 of 3: 1 tests",
        "suite 3 of 3: 2 tests",
    ]
    assert "4 runs, 6 tests, 1 of them start processes, 0 failures" in done.stdout
    # What had ended before the interruption does not run again.
    assert [len((folder / name).read_text()) for name in ("quick", "runs")] == [3, 4]

    more = steady(*options, "--suites", "4", "--anyway")
    assert more.returncode == 0 and "5 runs, 8 tests" in more.stdout, more.stdout + more.stderr


LEAVES = """
import subprocess

def test_that_leaves_a_process():
    subprocess.Popen(["sh", "-c", "sleep 1234 & "], start_new_session=True).wait()
"""


def test_a_process_that_is_left_is_named_and_ended(folder: Path) -> None:
    (folder / "test_leaves.py").write_text(LEAVES)
    done = steady("--suites", "1", "--repeats", "0", "--grace", "0.1", str(folder))
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("left running: sleep 1234 (") == 2
    assert (
        done.stdout.count("started by ") == done.stdout.count("test_leaves.py::test_that_leaves_a_process (call)") == 2
    )
    assert done.stdout.count(str(Path.cwd())) >= 2


def test_a_file_that_is_no_state_is_not_overwritten(folder: Path) -> None:
    state = folder / "state.json"
    state.write_text('{"runs": 5}')
    done = steady("--state", str(state), "--suites", "1", str(folder))
    assert done.returncode == 2 and f"error: {state}: not the state of earlier runs: " in done.stderr
    assert state.read_text() == '{"runs": 5}'
