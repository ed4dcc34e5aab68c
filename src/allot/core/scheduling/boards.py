"""Boards and rankings that are kept for equal pods."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from allot.core.scheduling.board import Board
from allot.core.scheduling.crowds import Crowds
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.ranking import Ranking
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.surroundings import Spreads

if TYPE_CHECKING:
    from allot.core.scheduling.cluster import Cluster

_KEPT_MIN = 32
_KEPT_MAX = 256
# Nodes in all of them together.
_ENTRIES_MAX = 200_000


class Boards:
    """Boards and rankings that are kept; the least recently used is dropped first."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._boards: dict[tuple[int, bytes], Board] = {}
        self._rankings: dict[tuple[int, bytes, Hashable, Hashable], Ranking] = {}
        # Work done, for tests and benchmarks.
        self.evaluations = 0
        self.device_questions = 0

    def _kept_max(self) -> int:
        """How many are kept: fewer if they are large."""
        return max(_KEPT_MIN, min(_KEPT_MAX, _ENTRIES_MAX // (len(self._cluster.nodes) + 1)))

    def board(self, profile: Profile, settings: Settings) -> Board:
        """The board of pods of one shape, not yet refreshed."""
        key = (id(settings), profile.shape)
        board = self._boards.pop(key, None)
        if board is None:
            while len(self._boards) >= self._kept_max():
                del self._boards[next(iter(self._boards))]
            board = Board(self._cluster, profile, settings)
        self._boards[key] = board
        return board

    def ranking(
        self, profile: Profile, settings: Settings, question_key: Hashable, spreads: Spreads | None = None
    ) -> Ranking:
        """The ranking of a profile and of questions with this key, not yet refreshed. spreads: other pods have a say."""
        aspect = None if spreads is None else self._aspect(profile, spreads)
        key = (id(settings), profile.shape, question_key, aspect)
        ranking = self._rankings.pop(key, None)
        board = self.board(profile, settings)
        if ranking is None or ranking.board is not board:
            while len(self._rankings) >= self._kept_max():
                del self._rankings[next(iter(self._rankings))]
            if spreads is None:
                ranking = Ranking(self._cluster, board)
            else:
                ranking = Crowds(self._cluster, board, profile, spreads)
        if isinstance(ranking, Crowds):
            ranking.profile = profile
        self._rankings[key] = ranking
        return ranking

    def _aspect(self, profile: Profile, spreads: Spreads) -> Hashable:
        """All about a pod that makes a difference where pods of other nodes have a say. Of labels only what they mean."""
        neighbours = self._cluster.neighbours
        itself = [spread.selector is not None and spread.selector.matches(profile.labels) for spread in spreads.hard]
        first = bool(profile.affinity_terms) and neighbours.matches_itself(profile)
        return profile.namespace, spreads, tuple(itself), first, neighbours.aspect(profile)
