"""Which claim held which device, from when to when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.views.claims import held_by
from allot.dashboard.views.timeline import claim_seconds

SPANS_MAX = 20_000
ROWS_MAX = 64
_PER_ROW_MAX = 200
# Device, claim, and whether the claim has it now.
Change = tuple[str, str, bool]


def held_changes(before: ResourceClaim | None, after: ResourceClaim | None) -> Iterator[Change]:
    """The devices that a claim got or gave back."""
    claim = after if after is not None else before
    assert claim is not None, "a change has an object"
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    old, new = {str(id_) for id_ in held_by(before)}, {str(id_) for id_ in held_by(after)}
    yield from ((device, name, False) for device in sorted(old - new))
    yield from ((device, name, True) for device in sorted(new - old))


class Holdings:
    """Spans of time, by device. When there are too many, those that ended first are forgotten."""

    def __init__(self) -> None:
        # Since when, by device and claim; and what is over: from, until, claim.
        self._open: dict[tuple[str, str], float] = {}
        self._over: dict[str, list[tuple[float, float, str]]] = {}
        self._ended: list[str] = []

    def begin(self, claims: Iterable[ResourceClaim], at: float) -> None:
        """The cluster at the first look, or at the first one after a gap: what is no longer held ended in the gap, now at the latest."""
        now = {
            (str(device), f"{claim.metadata.namespace}/{claim.metadata.name}"): claim_seconds(claim) or at
            for claim in claims
            for device in held_by(claim)
        }
        for device, claim in [key for key in self._open if key not in now]:
            self.change(at, [(device, claim, False)])
        for key, since in now.items():
            self._open.setdefault(key, min(since, at))

    def change(self, at: float, changes: Iterable[Change]) -> None:
        """What claims got and gave back."""
        for device, claim, holds in changes:
            if holds:
                self._open[device, claim] = at
                continue
            since = self._open.pop((device, claim), None)
            if since is not None:
                self._over.setdefault(device, []).append((since, at, claim))
                self._ended.append(device)
        # In one go: each costs what all of them cost.
        if len(self._ended) > 2 * SPANS_MAX:
            for device in self._ended[:-SPANS_MAX]:
                spans = self._over[device]
                del spans[0]
                if not spans:
                    del self._over[device]
            self._ended = self._ended[-SPANS_MAX:]

    def rows(self, devices: Collection[str]) -> list[dict[str, Any]]:
        """The spans of these devices, the latest of each; until is None for what still continues."""
        wanted = list(devices)[:ROWS_MAX]
        open_: dict[str, list[tuple[float, None, str]]] = {device: [] for device in wanted}
        for (device, claim), since in self._open.items():
            if device in open_:
                open_[device].append((since, None, claim))
        return [
            {"device": device, "spans": [*self._over.get(device, ())[-_PER_ROW_MAX:], *sorted(open_[device])]}
            for device in wanted
        ]

    def devices(self) -> set[str]:
        """All that were ever held."""
        return {*self._over, *(device for device, _ in self._open)}
