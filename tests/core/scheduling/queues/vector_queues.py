"""Queues at work as the vectors write them: amounts as numbers of units, -1 for unlimited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from allot.core.scheduling.queues.amounts import ONE, UNLIMITED
from allot.core.scheduling.queues.model import Queue, QueueShares, Share
from vectors import vectors_dir

RESOURCES = ("cpu", "memory", "gpu")


def cases(name: str) -> list[dict[str, Any]]:
    folder = vectors_dir()
    if folder is None or not (folder / "queues").is_dir():
        pytest.skip("no vectors: put them beside the repository or name their folder in ALLOT_VECTORS")
    found: list[dict[str, Any]] = json.loads((folder / "queues" / f"{name}.json").read_text())["cases"]
    return found


def amount(number: float) -> int:
    return UNLIMITED if number == -1 else int(Fraction(str(number)) * ONE)


def amounts(numbers: Mapping[str, float]) -> dict[str, int]:
    return {resource: amount(number) for resource, number in numbers.items()}


def share(fields: Mapping[str, Any]) -> Share:
    return Share(
        deserved=amount(fields.get("deserved", -1)),
        limit=amount(fields.get("limit", -1)),
        weight=Fraction(str(fields.get("weight", 1))),
        request=amount(fields.get("request", 0)),
        allocated=amount(fields.get("allocated", 0)),
        allocated_firmly=amount(fields.get("allocatedNonPreemptible", 0)),
        fair_share=amount(fields.get("fairShare", fields.get("fairShareBefore", 0))),
        usage=Fraction(str(fields.get("usage", 0))),
    )


def tree(rows: list[dict[str, Any]]) -> dict[str, QueueShares]:
    """The queues of a case by name, with the resources that they name."""
    found: dict[str, QueueShares] = {}
    for row in rows:
        created = f"{row.get('created', 0):06}"
        queue = Queue(name=row["id"], parent=row.get("parent", ""), priority=row.get("priority", 0), created=created)
        found[row["id"]] = QueueShares(queue)
        found[row["id"]].shares = {resource: share(row[resource]) for resource in RESOURCES if resource in row}
    for queue in found.values():
        parent = found.get(queue.queue.parent)
        if parent is not None:
            queue.parent = parent
            parent.children.append(queue)
    return found
