"""Which candidates help: each is put into force, the decision is made again, and everything is taken back."""

from __future__ import annotations

import msgspec

from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.report import Change
from allot.core.advice.explain.trial import Subject, would_help
from allot.core.advice.explain.world import World

CHANGES_MAX = 4
# Of changes of one kind.
_PER_RANK_MAX = 2
_TRIES_MAX = 40
# On a large cluster a try takes long.
_LARGE_NODES_MIN = 500
_LARGE_TRIES_MAX = 6


def helpful(world: World, subject: Subject, diagnosis: Diagnosis) -> tuple[Change, ...]:
    """Candidates that were tried and help, the smallest first; and advice that cannot be tried."""
    tries = _LARGE_TRIES_MAX if len(world.cluster.nodes) >= _LARGE_NODES_MIN else _TRIES_MAX
    found: list[Change] = []
    tried: set[bytes] = set()
    helped: dict[int, int] = {}
    for candidate in sorted(diagnosis.candidates, key=lambda each: each.rank):
        key = msgspec.json.encode(candidate.patches)
        if key in tried or helped.get(candidate.rank, 0) >= _PER_RANK_MAX:
            continue
        if len(found) >= CHANGES_MAX or len(tried) >= tries:
            break
        tried.add(key)
        outcome = would_help(world, subject, candidate.patches)
        if outcome is None or not outcome.schedulable:
            continue
        helped[candidate.rank] = helped.get(candidate.rank, 0) + 1
        found.append(
            Change(
                text=candidate.text,
                verified=True,
                node=outcome.placements[0].node,
                patches=candidate.patches,
                expression=candidate.expression,
            )
        )
    return (*found, *(Change(text=text) for text in diagnosis.advice))
