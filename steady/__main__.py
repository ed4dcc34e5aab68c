"""Runs the tests again and again while the processors are busy with something else, and says which of them ever failed.

    .venv/bin/python -m steady [--suites 3] [--repeats 20] [--state FILE] [PATH ...]

First the whole suite, some times; these runs also find out which tests start processes. Then those tests, more often, since they depend
on what else the machine does. Nothing stops at the first failure, and what pytest printed about one is in build/steady. It takes hours:
with a state file, it goes on where it was when it is started again, down to the file of tests. Exit code 1 if anything failed or was left running, 2 if a run did
not end properly.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from steady.plugin import FOLDER, NOTES, REPORT, SELECTION, Report, Selection, file_of
from steady.process_starts import read_notes
from steady.processes import GRACE_S, Launcher, adopt_orphans, busy
from steady.state import PART, REPEAT, SUITE, Begun, Options, Run, State, StateError, commit_of, read

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "steady"
# Of tests/conftest.py: how long tests take, so that long ones begin early.
SECONDS = "ALLOT_TEST_SECONDS"
# Some tests failed; there were none.
PYTEST_FAILED, PYTEST_EMPTY = 1, 5


def main() -> None:
    """Everything."""
    arguments = _arguments()
    options = Options(
        arguments.suites, arguments.repeats, arguments.busy, arguments.workers, tuple(arguments.paths or ["tests"])
    )
    # So that what was started is ended. A shell's command in the background ignores interrupts, and so would pytest, which we interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    adopt_orphans()
    try:
        with tempfile.TemporaryDirectory(prefix="steady") as folder:
            path = arguments.state or Path(folder) / "state.json"
            state = read(path, commit_of(ROOT), options, anyway=arguments.anyway)
            with busy(options.busy) as others:
                _Runs(path, state, Path(folder), Launcher(others, arguments.grace)).run()
    except StateError as error:
        sys.exit(
            _told(f"error: {error}", "hint: --anyway (ANYWAY=1) goes on with it; another --state (STATE) begins anew")
        )
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    sys.exit(_summary(state))


class _Runs:
    """Runs of pytest, one after the other, written down as soon as they have ended."""

    def __init__(self, path: Path, state: State, folder: Path, launcher: Launcher) -> None:
        self._path = path
        self._state = state
        self._folder = folder
        self._launcher = launcher

    def run(self) -> None:
        """All that are missing."""
        state, options = self._state, self._state.options
        while state.done(SUITE) < options.suites:
            self._run(SUITE, None)
        while state.done(REPEAT) < options.repeats:
            # Without a suite, the first of these finds out.
            is_known = bool(state.done(SUITE) or state.done(REPEAT))
            if is_known and not state.starting:
                print("no test starts processes: nothing to repeat")
                return
            self._run(REPEAT, frozenset(state.starting) if is_known else None)

    def _run(self, kind: str, tests: frozenset[str] | None) -> None:
        """One run, of some tests or all, or the rest of one that was interrupted."""
        state = self._state
        begun = state.begun if state.begun and state.begun.kind == kind else Begun(kind, frozenset(), 0.0)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        command = self._command(folder, Selection(tests, begun.files))
        begin, used = time.monotonic(), _processor_seconds()
        code: int | None = None
        left: tuple[str, ...] = ()
        try:
            with (folder / "output").open("w") as output:
                code, left = self._launcher.run(command, ROOT, self._environment(folder), output)
        finally:
            if code in (None, 0, PYTEST_FAILED) or (code == PYTEST_EMPTY and begun.files):
                self._record(begun, folder, code is None, time.monotonic() - begin, _processor_seconds() - used, left)
            else:
                printed = (folder / "output").read_text(errors="replace")
                sys.exit(_told(f"error: {kind}: pytest ended with {code}", printed[-8000:]))

    def _record(
        self,
        begun: Begun,
        folder: Path,
        interrupted: bool,
        seconds: float,
        processor_seconds: float,
        left: tuple[str, ...],
    ) -> None:
        """Write down a run that has ended, or what was done of it when it was interrupted, and say it."""
        path, state = folder / REPORT, self._state
        report = msgspec.json.decode(path.read_bytes(), type=Report) if path.exists() else Report()
        whole = seconds + begun.seconds
        state.begun = Begun(begun.kind, begun.files | report.files, whole) if interrupted else None
        state.runs.append(
            Run(
                kind=PART if interrupted else begun.kind,
                commit=state.commit,
                tests=len(report.seconds),
                seconds=round(seconds if interrupted else whole, 1),
                processor_seconds=round(processor_seconds, 1),
                failed=report.failed,
                left=left,
            )
        )
        state.starting |= read_notes(folder / NOTES)
        state.seconds |= {test: round(each, 3) for test, each in report.seconds.items()}
        state.write(self._path)
        self._tell((folder / "output").read_text(errors="replace"))

    def _command(self, folder: Path, selection: Selection) -> list[str]:
        options = self._state.options
        workers = ("-n", str(options.workers)) if options.workers else ()
        (folder / SELECTION).write_bytes(msgspec.json.encode(selection))
        paths = sorted({file_of(test) for test in selection.tests or () if selection.has(test)}) or options.paths
        command = [sys.executable, "-m", "pytest", "--quiet", *workers, f"--rootdir={ROOT}", "-p", "steady.plugin"]
        return [*command, *paths]

    def _environment(self, folder: Path) -> dict[str, str]:
        (folder / "seconds.json").write_bytes(msgspec.json.encode(self._state.seconds))
        return {**os.environ, FOLDER: str(folder), SECONDS: str(folder / "seconds.json"), "PYTHONHASHSEED": "0"}

    def _tell(self, printed: str) -> None:
        state, run = self._state, self._state.runs[-1]
        counts = {SUITE: state.options.suites, REPEAT: state.options.repeats}
        what = f"{run.kind} {state.done(run.kind)} of {counts[run.kind]}" if run.kind in counts else "interrupted"
        print(
            f"{what}: {run.tests} tests, {len(run.failed)} failed, {run.seconds:.0f} s, "
            f"{run.processor_seconds:.0f} s of processor; {_duration(state.seconds_left() or 0.0)} left"
        )
        for test, message in run.failed.items():
            print(f"  {test}: {message}")
        for command in run.left:
            print(f"  left running: {command}")
        if run.failed:
            OUTPUT.mkdir(parents=True, exist_ok=True)
            kept = OUTPUT / f"{os.getpid()}-{len(state.runs)}.txt"
            kept.write_text(printed)
            print(f"  more: {kept.relative_to(ROOT)}")
        sys.stdout.flush()


def _summary(state: State) -> int:
    """What all runs together have shown; the exit code."""
    failures, left = state.failures(), state.left()
    for test, count in failures.most_common():
        print(f"failed {count} times: {test}")
    for command in left:
        print(f"left running: {command}")
    tests = sum(run.tests for run in state.runs)
    if len(commits := {run.commit for run in state.runs}) > 1:
        print(f"{len(commits)} commits: {' '.join(sorted(commits))}")
    print(
        f"{len(state.runs)} runs, {tests} tests, {len(state.starting)} of them start processes, {failures.total()} failures, "
        f"{state.options.busy} processors kept busy"
    )
    return bool(failures or left)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"about {minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"about {minutes} min"


def _told(*lines: str) -> int:
    for line in lines:
        print(line, file=sys.stderr)
    return 2


def _arguments() -> argparse.Namespace:
    processors = os.cpu_count() or 1
    parser = argparse.ArgumentParser(prog="make steady", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suites", type=int, default=3, help="how often everything runs")
    parser.add_argument(
        "--repeats", type=int, default=20, help="how often the tests that start processes run after that"
    )
    parser.add_argument("--busy", type=int, default=processors, help="how many processors are kept busy meanwhile")
    parser.add_argument("--workers", type=int, default=4 * processors, help="workers of pytest, as in `make test`")
    parser.add_argument(
        "--grace", type=float, default=GRACE_S, help="seconds that processes may take to end after a run"
    )
    parser.add_argument(
        "--state", type=Path, help="a file: runs are written down there, and those in it are not repeated"
    )
    parser.add_argument("--anyway", action="store_true", help="go on with a state of another commit or other options")
    parser.add_argument("paths", nargs="*", help="which tests")
    return parser.parse_args()


if __name__ == "__main__":
    main()
