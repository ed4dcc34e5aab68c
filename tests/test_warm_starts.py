"""Programs that are started warm behave as those with an interpreter of their own."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm_starts
from allot.process.parent_death import ending_with_parent
from waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not isinstance(getattr(subprocess, "_fork_exec", None), warm_starts.Starter), reason="cold starts"
    ),
]

TELLS = """
import json, os, sys
told = {
    "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(), "name": __name__, "file": __file__, "parent": os.getppid(),
    "files": sorted(int(each) for each in os.listdir("/proc/self/fd")), "session": os.getsid(0), "variables": dict(os.environ),
    "main": sys.modules["__main__"].__dict__ is globals(), "random": __import__("random").random(), "input": sys.stdin.read(),
}
print(json.dumps(told))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "tells.py"
    path.write_text(TELLS)
    return path


def run(script: Path, code: int = 0, **options: Any) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(script), str(code)], capture_output=True, text=True, check=False, **options
    )
    return done.returncode, json.loads(done.stdout)


def test_a_program_has_the_arguments_files_folder_and_variables_that_it_was_given(script: Path, tmp_path: Path) -> None:
    given = {**os.environ, "ONE": "1", "TWO": "=2\udcff"}
    code, told = run(script, 7, cwd=tmp_path, env=given, input="said")
    assert code == 7
    assert told["argv"] == [str(script), "7"] and told["file"] == str(script) and told["path"] == str(tmp_path)
    assert told["cwd"] == str(tmp_path) and told["name"] == "__main__" and told["main"]
    assert told["variables"] == given
    assert told["input"] == "said"
    # The fourth is the folder that lists them.
    assert told["files"] == [0, 1, 2, 3]
    assert told["parent"] == os.getpid() and told["session"] == os.getsid(0)


def test_no_two_programs_are_the_same(script: Path) -> None:
    assert run(script, input="")[1]["random"] != run(script, input="")[1]["random"]


def test_a_program_may_lead_a_session(script: Path) -> None:
    _, told = run(script, input="", start_new_session=True)
    assert told["session"] not in {os.getsid(0), 0}


def test_a_program_is_ended_by_a_signal_and_seen_under_its_own_arguments(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time; time.sleep(63)")
    process = subprocess.Popen([sys.executable, "waits.py", "marked"], cwd=tmp_path)
    shown = Path(f"/proc/{process.pid}/cmdline")
    try:
        wait_for("its arguments", lambda: b"waits.py marked" in shown.read_bytes())
        assert process.poll() is None
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_module_that_is_imported_already_runs_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "allot.devices.cpu.pin", "0"], capture_output=True, text=True, check=False, input="{}"
    )
    assert (done.returncode, done.stderr) == (1, "error: pin: 'pid'\n")


async def test_an_event_loop_waits_for_it(script: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), "5", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert json.loads(output)["parent"] == os.getpid() and process.returncode == 5


def test_an_error_is_told_as_always(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import atexit\natexit.register(print, 'at the end')\nraise KeyError('what')")
    done = subprocess.run([sys.executable, tmp_path / "fails.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "KeyError: 'what'" in done.stderr and done.stdout == "at the end\n"
    (tmp_path / "says.py").write_text("raise SystemExit('not today')")
    done = subprocess.run([sys.executable, tmp_path / "says.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "not today\n")


@pytest.mark.parametrize(
    "options",
    [
        {"preexec_fn": lambda: None},
        {"close_fds": False},
        {"umask": 0o77},
        {"env": {**os.environ, "PYTHONVERBOSE": ""}},
        {"user": os.getuid()},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_only_an_interpreter_of_its_own_has_gets_one(tmp_path: Path, options: dict[str, Any]) -> None:
    script = tmp_path / "imported.py"
    script.write_text("import sys; print('allot.apiserver' in sys.modules)")
    command = [sys.executable, str(script)]
    assert subprocess.check_output(command) == b"True\n"
    assert subprocess.check_output(command, **options) == b"False\n"


ITSELF = "import json, os, resource, sys; told = [os.getppid(), 'allot.apiserver' in sys.modules, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]"


def test_a_program_that_becomes_another_one_is_warm_and_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "becomes.py"
    script.write_text(f"{ITSELF}\nprint(json.dumps([*told, os.getpid(), sys.argv]), flush=True)\nsys.stdin.read()")
    command = ending_with_parent([sys.executable, str(script), "one"])
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    parent, is_warm, _, number, arguments = json.loads(process.stdout.readline())
    assert (parent, is_warm, number, arguments) == (os.getpid(), True, process.pid, [str(script), "one"])
    process.stdin.close()
    assert process.wait() == 0
    process.stdout.close()
    assert subprocess.check_output(ending_with_parent(["echo", "another"])) == b"another\n"


def test_what_a_command_starts_is_warm_and_its_child(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text(f"{ITSELF}\nopen('told', 'w').write(json.dumps(told)); sys.exit('no driver')")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[0] - 1, most[1]))
    try:
        command = [sys.executable, "-m", "allot", "driver", "test", "driver.py"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert b"no driver" in output
    parent, is_warm, files = json.loads((tmp_path / "told").read_text())
    assert parent == process.pid and is_warm
    # `allot` asks for as many as it may have.
    assert files in {most[0] - 1, most[1]}


def test_a_folder_that_is_not_there_is_an_error_of_the_start(script: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(script, cwd=tmp_path / "nowhere")


def test_a_fork_gets_children_of_its_own(script: Path) -> None:
    read, write = os.pipe()
    if not (fork := os.fork()):
        try:
            os.write(write, b"%d" % (run(script, input="")[1]["parent"] == os.getpid()))
        finally:
            os._exit(0)
    os.waitpid(fork, 0)
    os.close(write)
    with open(read, "rb") as told:  # noqa: PTH123
        assert told.read() == b"1"
