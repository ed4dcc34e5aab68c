"""Runs the tests again and again while the processors are busy with something else, and says which of them ever failed.

    .venv/bin/python -m steady [--suites 3] [--repeats 20] [--busy N] [--workers N] [PATH ...]

First the whole suite, some times; these runs also find out which files start processes. Then those files, more often, since they depend
on what else the machine does. Nothing stops at the first failure, and what pytest printed about one is in build/steady. Exit code 1 if
anything failed, 2 if a run did not end properly.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from steady.process_starts import FOLDER

ROOT = Path(__file__).resolve().parents[1]
# Ends with whoever started it, however that ends.
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
OUTPUT = ROOT / "build" / "steady"
# Some tests failed.
PYTEST_FAILED = 1


def main() -> None:
    """Everything."""
    options = _options()
    # So that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    failures: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="steady") as folder, _busy(options.busy):
        runs = _Runs(Path(folder), options.workers, failures)
        for number in range(1, options.suites + 1):
            runs.run(f"suite {number} of {options.suites}", options.paths)
        files = runs.files_that_start_processes() or options.paths
        for number in range(1, options.repeats + 1):
            runs.run(f"{len(files)} paths with processes, {number} of {options.repeats}", files)
    for test, count in failures.most_common():
        print(f"failed {count} times: {test}")
    print(f"{runs.count} runs, {runs.tests} tests, {failures.total()} failures, {options.busy} processors kept busy")
    sys.exit(bool(failures))


class _Runs:
    """Runs of pytest, one after the other."""

    def __init__(self, folder: Path, workers: int, failures: Counter[str]) -> None:
        self._folder = folder
        self._workers = workers
        self._failures = failures
        self.count = self.tests = 0

    def run(self, name: str, paths: Sequence[str]) -> None:
        """One run; a line about it."""
        self.count += 1
        report = self._folder / f"{self.count}.xml"
        command = [sys.executable, "-m", "pytest", "--quiet", *(("-n", str(self._workers)) if self._workers else ())]
        # The older form of the report names the files.
        command += ["-p", "steady.process_starts", "-o", "junit_family=xunit1", f"--junit-xml={report}", *paths]
        begin = time.monotonic()
        environment = {**os.environ, FOLDER: str(self._folder / "starts"), "PYTHONHASHSEED": "0"}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, PYTEST_FAILED) or not report.exists():
            print(
                f"{name}: pytest ended with {ended.returncode}\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}",
                file=sys.stderr,
            )
            sys.exit(2)
        cases = ElementTree.parse(report).getroot().findall(".//testcase")
        failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
        self.tests += len(cases)
        self._failures.update(map(_test, failed))
        print(f"{name}: {len(cases)} tests, {len(failed)} failed, {time.monotonic() - begin:.0f} s", flush=True)
        for case in failed:
            print(f"  {_test(case)}: {_message(case)}", flush=True)
        if failed:
            OUTPUT.mkdir(parents=True, exist_ok=True)
            told = OUTPUT / f"{os.getpid()}-{self.count}.txt"
            told.write_text(ended.stdout + ended.stderr)
            print(f"  more: {told.relative_to(ROOT)}", flush=True)

    def files_that_start_processes(self) -> list[str]:
        """As the runs so far have seen."""
        notes = (self._folder / "starts").glob("*")
        return sorted({line for note in notes for line in note.read_text().splitlines()})


def _test(case: ElementTree.Element) -> str:
    """As pytest takes it, and TESTS of `make steady`."""
    return f"{case.get('file')}::{case.get('name')}"


def _message(case: ElementTree.Element) -> str:
    found = case.find("failure")
    found = case.find("error") if found is None else found
    text = "" if found is None else found.get("message", "")
    return text.splitlines()[0][:200] if text else "no message"


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that never rest, for as long as this lasts."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _options() -> argparse.Namespace:
    processors = os.cpu_count() or 1
    parser = argparse.ArgumentParser(prog="make steady", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suites", type=int, default=3, help="how often everything runs")
    parser.add_argument(
        "--repeats", type=int, default=20, help="how often the files that start processes run after that"
    )
    parser.add_argument("--busy", type=int, default=processors, help="how many processors are kept busy meanwhile")
    parser.add_argument("--workers", type=int, default=processors + 1, help="workers of pytest")
    parser.add_argument("paths", nargs="*", default=["tests"], help="which tests")
    return parser.parse_args()


if __name__ == "__main__":
    main()
