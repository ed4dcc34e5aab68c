"""The ledger of a guard that cannot see writes happen: what is stored, and what it has admitted since.

A webhook is called before a write and never learns its result; a watch shows later what was stored. In between, what was
admitted counts as held. A write is based on a version of its claim, and the server stores it only if the claim still has that
version. So the first newer version that is seen, whatever it says, ends all writes that were based on an older one.

A write that never shows up is held until it can no longer be stored, and then until the server has been asked: time alone
proves nothing while the watch is late. What is released counts as held until the release is stored.
"""

from __future__ import annotations

import msgspec

from allot.core.allocation.devices import ClaimID
from allot.core.allocation.features import Features
from allot.core.allocation.holdings import Conflict, Held, Holdings


class _Admitted(msgspec.Struct, frozen=True):
    """An admitted write. base: the version of its claim that it replaces."""

    base: int
    held: tuple[Held, ...]
    at: float


class _Claim(msgspec.Struct):
    """A claim as it was last seen, and what was admitted since."""

    version: int = 0
    stored: tuple[Held, ...] = ()
    admitted: tuple[_Admitted, ...] = ()


class GuardLedger:
    """Which claim holds what, or may by now. Times are seconds of a monotonic clock, given by the caller."""

    def __init__(self, features: Features, write_timeout_s: float) -> None:
        """write_timeout_s: how long after it was admitted a write may still be stored."""
        # Reads allocations and follows slices.
        self.holdings = Holdings(features)
        self._write_timeout_s = write_timeout_s
        self._claims: dict[ClaimID, _Claim] = {}
        # Claims with writes whose result is not known yet.
        self._waiting: dict[ClaimID, None] = {}

    @property
    def waiting(self) -> int:
        """Claims with writes whose result is not known yet."""
        return len(self._waiting)

    def is_waiting(self, claim: ClaimID) -> bool:
        """Whether the result of an admitted write to a claim is not known yet."""
        return claim in self._waiting

    def known(self) -> int:
        """Claims."""
        return len(self._claims)

    def version(self, claim: ClaimID) -> int:
        """The version that was last seen; 0 if none."""
        found = self._claims.get(claim)
        return 0 if found is None else found.version

    # --- what is stored ---

    def stored(self, claim: ClaimID, version: int, held: tuple[Held, ...]) -> None:
        """A version of a claim was seen. Versions older than the last one seen are ignored."""
        found = self._claims.get(claim)
        if found is None:
            found = self._claims[claim] = _Claim()
        if version < found.version:
            return
        found.version, found.stored = version, held
        self._keep(claim, found, tuple(write for write in found.admitted if write.base >= version))

    def deleted(self, claim: ClaimID, version: int) -> None:
        """A claim is gone. version: the last version seen; writes based on a newer one are to
        another claim of that name."""
        found = self._claims.get(claim)
        if found is None or version < found.version:
            return
        found.version, found.stored = 0, ()
        self._keep(claim, found, tuple(write for write in found.admitted if write.base > version))

    # --- asking the server ---

    def overdue(self, now: float) -> list[ClaimID]:
        """Claims with writes that can no longer be stored: the server must be asked for their result."""
        return [claim for claim in self._waiting if self._is_overdue(self._claims[claim].admitted[0], now)]

    def looked(self, claim: ClaimID, asked_at: float, version: int, held: tuple[Held, ...]) -> None:
        """The server was asked for a claim, at that time or later, and returned this."""
        self.stored(claim, version, held)
        self._drop_overdue(claim, asked_at)

    def looked_in_vain(self, claim: ClaimID, asked_at: float, known: int) -> None:
        """The server was asked for a claim, at that time or later, and has none. known: the version that was known then."""
        found = self._claims.get(claim)
        if found is None:
            return
        if found.version == known:
            found.version, found.stored = 0, ()
        # Writes admitted before were to a claim that is gone.
        self._keep(claim, found, tuple(write for write in found.admitted if write.at > asked_at))

    def _drop_overdue(self, claim: ClaimID, asked_at: float) -> None:
        found = self._claims.get(claim)
        if found is not None:
            left = tuple(write for write in found.admitted if not self._is_overdue(write, asked_at))
            self._keep(claim, found, left)

    def _is_overdue(self, write: _Admitted, at: float) -> bool:
        return write.at + self._write_timeout_s <= at

    # --- deciding ---

    def conflict(self, claim: ClaimID, held: tuple[Held, ...]) -> Conflict | None:
        """Why the claim cannot hold this beside what others hold or may hold by now; None if it can."""
        return self.holdings.conflict(claim, held)

    def admit(self, claim: ClaimID, base: int, held: tuple[Held, ...], now: float) -> None:
        """A write is admitted. Of several to one claim with the same base, one can be stored: all of them are held."""
        found = self._claims.get(claim)
        if found is None:
            found = self._claims[claim] = _Claim()
        if found.version > base:
            return  # The server will find that the claim has changed, and will ask again.
        self._keep(claim, found, (*found.admitted, _Admitted(base, held, now)))

    def _keep(self, claim: ClaimID, found: _Claim, admitted: tuple[_Admitted, ...]) -> None:
        """Hold what is stored and what these writes contain."""
        found.admitted = admitted
        if not admitted:
            self._waiting.pop(claim, None)
            self.holdings.hold(claim, found.stored)
            if not found.version:
                del self._claims[claim]
            return
        self._waiting[claim] = None
        parts = (*found.stored, *(part for write in admitted for part in write.held))
        self.holdings.hold(claim, tuple(dict.fromkeys(parts)))
