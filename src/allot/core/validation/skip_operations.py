"""Node operations that a driver skips: the same rule for slices and allocation results."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.validation.fields import Findings, invalid

_TEXT = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"


def check_skip_node_operations(operations: Sequence[str], path: str) -> Findings:
    """Prepare may only be skipped together with unprepare; values and duplicates are declarative rules."""
    skipped = frozenset(operations)
    if "NodePrepareResources" in skipped and not skipped & {"NodeUnprepareResources", "*"}:
        return [invalid(path, list(operations), _TEXT)]
    return []
