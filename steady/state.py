"""What has been run so far, in a file, so that hours of runs may be interrupted and go on later."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import Counter
from pathlib import Path

import msgspec

# A part is of a run that was interrupted.
SUITE, REPEAT, PART = "suite", "repeat", "part"


class StateError(Exception):
    """The file cannot be read, or is about something else."""


class Options(msgspec.Struct, frozen=True):
    """What decides which runs there are and what they mean."""

    suites: int
    repeats: int
    busy: int
    workers: int
    paths: tuple[str, ...]


class Begun(msgspec.Struct, frozen=True):
    """A run that was interrupted."""

    kind: str
    # The files whose tests have all ended: they do not run again.
    files: frozenset[str]
    seconds: float


class Run(msgspec.Struct, frozen=True):
    """One run."""

    kind: str
    commit: str
    tests: int
    # How long it took, and how much processor time what it started used.
    seconds: float
    processor_seconds: float
    # By test: what it said.
    failed: dict[str, str]
    # Commands of processes that were still there when it had ended.
    left: tuple[str, ...] = ()


class State(msgspec.Struct):
    """Everything that a later start has to know."""

    commit: str
    options: Options
    runs: list[Run] = []
    begun: Begun | None = None
    # Tests that start processes, as the runs have seen.
    starting: set[str] = set()
    # By test: how long it took when it last ran.
    seconds: dict[str, float] = {}

    def done(self, kind: str) -> int:
        """How many runs of a kind have ended."""
        return sum(run.kind == kind for run in self.runs)

    def failures(self) -> Counter[str]:
        """How often each test has failed."""
        return Counter(test for run in self.runs for test in run.failed)

    def left(self) -> tuple[str, ...]:
        """Commands of processes that runs have left."""
        return tuple(command for run in self.runs for command in run.left)

    def seconds_left(self) -> float | None:
        """An estimate for the runs that are missing; None before there is anything to judge by."""
        suite, repeat = self._mean(SUITE), self._mean(REPEAT)
        if suite is None and repeat is None:
            return None
        if repeat is None:
            # The share of tests that start processes; they wait for more of their time than others, so this is rather too much.
            repeat = (suite or 0.0) * sum(map(self._seconds_of, self.starting)) / (sum(self.seconds.values()) or 1.0)
        suites = max(self.options.suites - self.done(SUITE), 0)
        return suites * (suite or 0.0) + max(self.options.repeats - self.done(REPEAT), 0) * repeat

    def _mean(self, kind: str) -> float | None:
        seconds = [run.seconds for run in self.runs if run.kind == kind]
        return sum(seconds) / len(seconds) if seconds else None

    def _seconds_of(self, test: str) -> float:
        return self.seconds.get(test, 0.0)

    def write(self, path: Path) -> None:
        """The old file or the new one is there, whatever happens meanwhile."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1))
        new.replace(path)


def read(path: Path, commit: str, options: Options, *, anyway: bool) -> State:
    """What the file knows, or a new start. anyway: also if it is about another commit or other options."""
    if not path.exists():
        return State(commit, options)
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
    except msgspec.DecodeError as error:
        raise StateError(f"{path}: not the state of earlier runs: {error}") from error
    different = [
        f"{name} {_told(then)}, and not {_told(now)}"
        for name, then, now in _compared(state, commit, options)
        if then != now
    ]
    if different and not anyway:
        raise StateError(f"{path}: earlier runs were about {'; '.join(different)}")
    state.commit, state.options = commit, options
    return state


def _compared(state: State, commit: str, options: Options) -> list[tuple[str, object, object]]:
    names = Options.__struct_fields__
    return [
        ("commit", state.commit, commit),
        *((name, getattr(state.options, name), getattr(options, name)) for name in names),
    ]


def _told(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def commit_of(root: Path) -> str:
    """The commit, and a mark that tells changes that are not committed apart."""

    def git(*arguments: str) -> str:
        return subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=True).stdout

    try:
        commit, changes = git("rev-parse", "HEAD").strip(), git("status", "--porcelain") + git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}+{hashlib.sha256(changes.encode()).hexdigest()[:12]}" if changes else commit
