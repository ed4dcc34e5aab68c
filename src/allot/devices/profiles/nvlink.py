"""NVLink racks of simulated machines, numbered through the nodes of a set."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from allot.core.model.compute_domains import CLIQUE_LABEL

# The clique ID of a rack with one partition.
_CLIQUE_ID = 32766


def clique_of_rack(set_name: str, rack: int) -> str:
    """The label of a rack's nodes. The UUID identifies the rack and is the same at each start."""
    return f"{uuid.uuid5(uuid.NAMESPACE_OID, f'nvlink/{set_name}/{rack}')}.{_CLIQUE_ID}"


def rack_labels(set_name: str, names: Sequence[str], machines: int) -> Mapping[str, Mapping[str, str]]:
    """The label of each node, by rack; none if NVLink does not leave the machine."""
    if machines < 2:
        return {}
    return {name: {CLIQUE_LABEL: clique_of_rack(set_name, index // machines)} for index, name in enumerate(names)}
