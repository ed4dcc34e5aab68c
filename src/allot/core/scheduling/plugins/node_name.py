"""NodeName: a pod that names its node gets no other."""

from __future__ import annotations

from allot.core.scheduling.status import Status, Verdict

NAME = "NodeName"
REFUSED = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) didn't match the requested node name",))


def refusal(wanted: str, node: str) -> Status | None:
    """Why the pod may not have the node."""
    return REFUSED if wanted and wanted != node else None
