"""A driver of Kubernetes 1.31's kind: its controller allocates claims by itself. Every node has two slots.

Needs a cluster with feature gate DRAControlPlaneController, for example `allot up --feature-gates DRAControlPlaneController=true`.

    python examples/drivers/classic.py controller
    python examples/drivers/classic.py node --node-name n1
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from allot.driver import (
    Allocated,
    AllocateError,
    Claim,
    ClassicController,
    ClassicDevice,
    Driver,
    Edits,
    PendingClaim,
    Prepared,
    run,
    run_classic_controller,
)

NAME = "slots.example.com"
SLOTS = ("slot-0", "slot-1")


class SlotsController(ClassicController):
    name = NAME

    def unsuitable_nodes(self, claims: Sequence[PendingClaim], nodes: Sequence[str]) -> Mapping[str, list[str]]:
        wanted = sum(_count(claim) for claim in claims)
        full = [node for node in nodes if len(self._free(node)) < wanted]
        return {claim.name: full for claim in claims}

    def allocate(self, claims: Sequence[PendingClaim], node: str) -> Mapping[str, list[ClassicDevice]]:
        free = self._free(node)
        found: dict[str, list[ClassicDevice]] = {}
        for claim in claims:
            for request in claim.requests:
                for _ in range(request.get("count") or 1):
                    if not free:
                        raise AllocateError(f"node {node} has no slot left for claim {claim.name}")
                    found.setdefault(claim.name, []).append(ClassicDevice(request["name"], node, free.pop(0)))
        return found

    def deallocate(self, claim: Allocated) -> None:
        # Nothing to free: what is taken is read from the claims.
        pass

    def _free(self, node: str) -> list[str]:
        taken = {device.device for claim in self.allocated for device in claim.devices if device.pool == node}
        return [slot for slot in SLOTS if slot not in taken]


class SlotsDriver(Driver):
    name = NAME
    has_controller = True

    def prepare(self, claim: Claim) -> list[Prepared]:
        return [Prepared(each, Edits(env={f"SLOT_{number}": each.name})) for number, each in enumerate(claim.devices)]


def _count(claim: PendingClaim) -> int:
    return sum(request.get("count") or 1 for request in claim.requests)


def main() -> None:
    """Run the part that the first argument names."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("part", choices=("controller", "node"))
    given, rest = parser.parse_known_args()
    if given.part == "controller":
        run_classic_controller(SlotsController(), rest)
    run(SlotsDriver(), rest)


if __name__ == "__main__":
    main()
