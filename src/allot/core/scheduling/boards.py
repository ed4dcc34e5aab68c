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

_BOARDS_MAX = 128
_RANKINGS_MAX = 256


class Boards:
    """Boards and rankings that are kept; the least recently used is dropped first."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._boards: dict[tuple[int, bytes], Board] = {}
        self._rankings: dict[tuple[int, bytes, Hashable, Spreads | None], Ranking] = {}
        # Work done, for tests and benchmarks.
        self.evaluations = 0
        self.device_questions = 0

    def board(self, profile: Profile, settings: Settings) -> Board:
        """The board of a profile, not yet refreshed."""
        key = (id(settings), profile.key)
        board = self._boards.pop(key, None)
        if board is None:
            if len(self._boards) >= _BOARDS_MAX:
                del self._boards[next(iter(self._boards))]
            board = Board(self._cluster, profile, settings)
        self._boards[key] = board
        return board

    def ranking(
        self, profile: Profile, settings: Settings, question_key: Hashable, spreads: Spreads | None = None
    ) -> Ranking:
        """The ranking of a profile and of questions with this key, not yet refreshed. spreads: other pods have a say."""
        key = (id(settings), profile.key, question_key, spreads)
        ranking = self._rankings.pop(key, None)
        board = self.board(profile, settings)
        if ranking is None or ranking.board is not board:
            if len(self._rankings) >= _RANKINGS_MAX:
                del self._rankings[next(iter(self._rankings))]
            ranking = Ranking(self._cluster, board) if spreads is None else Crowds(self._cluster, board, spreads)
        self._rankings[key] = ranking
        return ranking
