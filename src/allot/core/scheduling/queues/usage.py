"""What groups hold and ask for."""

from __future__ import annotations

import msgspec

from allot.core.scheduling.queues.amounts import Amounts


class Usage(msgspec.Struct):
    """What a group's pods have, the non-preemptible part of it, and what they ask for, with or without a node."""

    allocated: dict[str, int] = msgspec.field(default_factory=dict)
    firm: dict[str, int] = msgspec.field(default_factory=dict)
    requested: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, amounts: Amounts, *, is_held: bool, is_firm: bool) -> None:
        """One more pod."""
        for resource, amount in amounts.items():
            self.requested[resource] = self.requested.get(resource, 0) + amount
            if is_held:
                self.allocated[resource] = self.allocated.get(resource, 0) + amount
            if is_held and is_firm:
                self.firm[resource] = self.firm.get(resource, 0) + amount
