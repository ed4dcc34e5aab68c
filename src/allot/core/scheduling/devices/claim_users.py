"""Allocated claims by the uids of their users.

Only preemption uses this, once for every pod that finds no room: going through all claims each time took a third of the
CPU time when thousands of pods waited. Changes are recorded as they happen, which is cheap, and applied on demand.
"""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.allocation import ClaimID
from allot.core.scheduling.devices.claim_record import ClaimRecord

# With this many more changes than claims, going through all claims is as cheap.
_NOTED_MAX = 1000


class ClaimUsers:
    """The index; it may lag behind the records until queried."""

    def __init__(self, records: Mapping[ClaimID, ClaimRecord]) -> None:
        self._records = records
        # Claims that changed since the last query; None: any may have.
        self._noted: dict[ClaimID, None] | None = None
        self._users: dict[ClaimID, frozenset[str]] = {}
        self._claims: dict[str, dict[ClaimID, None]] = {}

    def note(self, id_: ClaimID) -> None:
        """A claim changed."""
        if self._noted is not None:
            self._noted[id_] = None
            if len(self._noted) > len(self._records) + _NOTED_MAX:
                self._noted = None

    def only(self, uids: Mapping[str, None]) -> tuple[ClaimID, ...]:
        """Allocated claims used only by these, in order."""
        self._catch_up()
        candidates = {id_ for uid in self._claims.keys() & uids.keys() for id_ in self._claims[uid]}
        return tuple(sorted(id_ for id_ in candidates if all(uid in uids for uid in self._users[id_])))

    def _catch_up(self) -> None:
        if self._noted is None:
            self._users.clear()
            self._claims.clear()
        for id_ in self._records if self._noted is None else self._noted:
            self._index(id_)
        self._noted = {}

    def _index(self, id_: ClaimID) -> None:
        record = self._records.get(id_)
        users = frozenset() if record is None or record.allocation is None else frozenset(record.consumers())
        before = self._users.get(id_, frozenset())
        if users == before:
            return
        for uid in before - users:
            claims = self._claims[uid]
            del claims[id_]
            if not claims:
                del self._claims[uid]
        for uid in users - before:
            self._claims.setdefault(uid, {})[id_] = None
        if users:
            self._users[id_] = users
        else:
            del self._users[id_]
