"""Problems with the requests of a claim before any node is considered (PreFilter of DynamicResources)."""

from __future__ import annotations

from allot.core.allocation import Inventory, claim_id
from allot.core.allocation.inventory import PLANS_MAX
from allot.core.allocation.plan import ClaimPlan
from allot.core.model import resource_v1 as api
from allot.core.scheduling.devices.claim_fit import refusal
from allot.core.scheduling.status import Status, Verdict

# Stands for the claim's name in texts that are kept per plan.
_CLAIM = "\0claim"


class RequestProblems:
    """Problems of claims, computed once for all with an equal spec. Classes must exist, requests must be valid."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        # The verdict, and the text to be completed with the claim's name.
        self._known: dict[ClaimPlan, tuple[Verdict, str] | None] = {}

    def clear(self) -> None:
        """Classes have changed."""
        self._known.clear()

    def of(self, plan: ClaimPlan, claim: api.ResourceClaim) -> Status | None:
        """Why no node can serve the claim; None if some may."""
        try:
            problem = self._known[plan]
        except KeyError:
            if len(self._known) >= PLANS_MAX:
                self._known.clear()
            problem = self._known[plan] = self._find(plan.spec)
        if problem is None:
            return None
        verdict, text = problem
        return refusal(text.replace(_CLAIM, str(claim_id(claim))), verdict)

    def _find(self, spec: api.ResourceClaimSpec) -> tuple[Verdict, str] | None:
        for request in spec.devices.requests:
            where = f"resource claim {_CLAIM}, request {request.name}"
            if request.exactly is not None:
                problem = self._class_problem(request.exactly.device_class_name, request.name)
                if problem is not None:
                    return problem
            elif not request.first_available:
                return Verdict.UNRESOLVABLE, f"{where}: unknown request type"
            elif not self._inventory.features.prioritized_list:
                why = "has subrequests, but the DRAPrioritizedList feature is disabled"
                return Verdict.UNRESOLVABLE, f"{where}: {why}"
            else:
                for sub in request.first_available:
                    problem = self._class_problem(sub.device_class_name, f"{request.name}/{sub.name}")
                    if problem is not None:
                        return problem
        return None

    def _class_problem(self, name: str, request: str) -> tuple[Verdict, str] | None:
        if not name:
            return Verdict.ERROR, f"request {request}: unsupported request type"
        if name not in self._inventory.classes:
            return Verdict.UNRESOLVABLE, f"request {request}: device class {name} does not exist"
        return None
