"""One fault in a cluster in which all was well: explain finds it, and its first change undoes it.

`python -m explain_corpus.test_faults ROUNDS [FIRST]` (in tests/) asks that many cases of every fault and prints what breaks the law.
"""

from __future__ import annotations

import sys

import pytest

from explain_corpus.faults import FAULTS, Fault
from explain_corpus.law import judge

FAULTS_MIN = 40
ROUNDS = 4


def test_there_are_enough_faults_and_no_two_have_one_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= FAULTS_MIN


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
def test_the_planted_fault_is_found_and_the_first_change_undoes_it(fault: Fault) -> None:
    for seed in range(ROUNDS):
        problems, explanation = judge(fault, seed)
        assert not problems, (seed, problems, explanation.cause, [change.text for change in explanation.changes])


def main() -> int:
    """Many cases of every fault."""
    rounds = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    broken = 0
    for fault in FAULTS:
        for seed in range(first, first + rounds):
            problems, explanation = judge(fault, seed)
            if problems:
                broken += 1
                sys.stdout.write(f"{fault.name} {seed}: {problems}\n  {explanation.cause}\n")
    sys.stdout.write(f"{len(FAULTS)} faults, {rounds * len(FAULTS)} cases, {broken} broken\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
