"""Reports problems with the metrics of pods as pod events, each text once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Reasons of events.
BAD_ANNOTATION, FAILED_SCRAPE = "InvalidAnnotation", "FailedScrape"

Object = Mapping[str, Any]
# A pod, and what is wrong.
Record = Callable[[Object, str], None]


class MetricProblems:
    """Current problems by pod uid. looks: how many consecutive checks must find a problem, so that a program that is still starting is not blamed."""

    def __init__(self, record: Record, looks: int = 1) -> None:
        self._record = record
        self._looks = looks
        self._seen: dict[str, tuple[str, int]] = {}

    def update(self, problems: Mapping[str, tuple[Object, str]]) -> None:
        """Record the problems that a check of all pods has found."""
        seen: dict[str, tuple[str, int]] = {}
        for uid, (pod, text) in problems.items():
            before, count = self._seen.get(uid, ("", 0))
            count = count + 1 if before == text else 1
            seen[uid] = (text, count)
            if count == self._looks:
                self._record(pod, text)
        self._seen = seen
