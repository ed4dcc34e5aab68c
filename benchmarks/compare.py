"""This tree against another commit: processor time per pod of the scheduler benchmark, in one run, turn by turn.

    .venv/bin/python benchmarks/compare.py REF [--pairs 10] [--workload NAME ...] [-o text|json]

Both trees run with the same interpreter and libraries, one after the other and in changing order (this, other, other, this, ...), so
that what else the machine does meets both. Processor time is compared, pair by pair: a ratio below 1 means that this tree
needs less. The other commit is checked out into a temporary folder, which goes at the end. Exit code 1 if a median is above
--limit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BURST = "SchedulingWithResourceClaimTemplate/5000pods_500nodes"
STEADY = "SchedulingWithResourceClaimTemplate/half_500nodes"
PAIRS = 10
LIMIT = 1.03


class Pair(NamedTuple):
    """Processor time per pod in microseconds."""

    this: float
    other: float

    @property
    def ratio(self) -> float:
        """Below 1: this tree needs less."""
        return self.this / self.other


class Comparison(NamedTuple):
    """All pairs of one workload."""

    workload: str
    pairs: tuple[Pair, ...]

    @property
    def ratios(self) -> list[float]:
        """Smallest first."""
        return sorted(pair.ratio for pair in self.pairs)

    @property
    def best(self) -> float:
        """The ratio of the fastest runs: what else the machine does makes runs slower, never faster."""
        return min(pair.this for pair in self.pairs) / min(pair.other for pair in self.pairs)

    @property
    def middle(self) -> tuple[float, float, float]:
        """Quartiles of the ratios; the one in the middle is the median."""
        ratios = self.ratios
        if len(ratios) == 1:
            return ratios[0], ratios[0], ratios[0]
        low, _, high = quantiles(ratios, n=4, method="inclusive")
        return low, median(ratios), high


@contextmanager
def checked_out(reference: str) -> Iterator[tuple[Path, str]]:
    """The tree of another commit, and the commit."""
    commit = _git("rev-parse", "--verify", f"{reference}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="allot-compare-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree, commit
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def measured(tree: Path, workload: str) -> float:
    """Processor time per pod in microseconds, of one run of a workload by a tree."""
    done = _python(tree, "-m", "allot", "bench", "scheduling", workload, "-o", "json")
    (outcome,) = json.loads(done)
    return float(outcome["processorMicrosecondsPerPod"])


def _python(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"error: {' '.join(arguments)} in {tree} ended with code {done.returncode}")
    return done.stdout


def compared(other: Path, workload: str, pairs: int) -> Comparison:
    """A workload, run by both trees in turn."""
    found = []
    for number in range(pairs):
        order = (ROOT, other) if number % 2 == 0 else (other, ROOT)
        times = {tree: measured(tree, workload) for tree in order}
        pair = Pair(times[ROOT], times[other])
        found.append(pair)
        print(
            f"{workload} {number + 1}/{pairs}: {pair.this:.0f} µs, {pair.other:.0f} µs, ratio {pair.ratio:.3f}",
            file=sys.stderr,
        )
    return Comparison(workload, tuple(found))


def as_text(commit: str, comparisons: Sequence[Comparison]) -> str:
    """A table."""
    lines = [f"this tree against {commit[:12]}: processor time per pod, median of the ratios of pairs"]
    lines.append(
        f"{'workload':52} {'pairs':>5} {'this':>7} {'other':>7} {'ratio':>6}  {'quartiles':13} {'range':13}  fastest"
    )
    for each in comparisons:
        low, middle, high = each.middle
        this, other = (median(pair[side] for pair in each.pairs) for side in (0, 1))
        lines.append(
            f"{each.workload:52} {len(each.pairs):5} {this:4.0f} µs {other:4.0f} µs {middle:6.3f}  {low:.3f}..{high:.3f}  "
            f"{each.ratios[0]:.3f}..{each.ratios[-1]:.3f}  {each.best:.3f}"
        )
    return "\n".join(lines)


def as_json(commit: str, comparisons: Sequence[Comparison]) -> str:
    """The same with every pair."""
    rows = []
    for each in comparisons:
        low, middle, high = each.middle
        rows.append(
            {
                "workload": each.workload,
                "ratio": round(middle, 4),
                "quartiles": [round(low, 4), round(high, 4)],
                "fastest": round(each.best, 4),
                "range": [round(each.ratios[0], 4), round(each.ratios[-1], 4)],
                "pairs": [{"this": pair.this, "other": pair.other} for pair in each.pairs],
            }
        )
    return json.dumps({"commit": commit, "unit": "processor microseconds per pod", "workloads": rows}, indent=2)


def main() -> None:
    """Compare, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reference", metavar="REF", help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="runs of each tree for each workload (default: 10)")
    parser.add_argument("--workload", action="append", help="default: a burst and a steady state on 500 nodes")
    parser.add_argument("--limit", type=float, default=LIMIT, help="the largest median ratio that is accepted")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    asked = parser.parse_args()
    if asked.pairs < 1:
        parser.error("--pairs: at least 1")
    # So that the other tree is removed at any end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: stopped"))
    with checked_out(asked.reference) as (other, commit):
        for tree in (ROOT, other):
            found = Path(_python(tree, "-c", "import allot; print(allot.__file__)").strip())
            assert found.is_relative_to(tree), f"{found} is not of {tree}"
        comparisons = [compared(other, workload, asked.pairs) for workload in asked.workload or (BURST, STEADY)]
    print((as_json if asked.output == "json" else as_text)(commit, comparisons))
    if any(each.middle[1] > asked.limit for each in comparisons):
        sys.exit(1)


if __name__ == "__main__":
    main()
