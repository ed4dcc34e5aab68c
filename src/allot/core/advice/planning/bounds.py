"""Upper bounds on the number of copies for the whole cluster, for cases in which nodes depend on each other."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.planning.copies import Copy
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation import claim_id
from allot.core.model import resource_v1 as api


def cluster_bounds(what_if: WhatIfCluster, copy: Copy) -> Iterator[int]:
    """Upper bounds on the number of copies, each with its reason."""
    yield from _by_devices(what_if, copy)
    yield from _by_reservations(what_if, copy)


def _by_devices(what_if: WhatIfCluster, copy: Copy) -> Iterator[int]:
    """Free devices of one kind in the whole cluster, divided by the number that a copy needs."""
    inventory = what_if.claims.inventory
    plans = [inventory.plan(claim.spec) for claim in copy.claims]
    for index, needed in inventory.needs(plans) if plans else ():
        # Shares of one device can serve many; values of attributes are counted per node.
        if not index.has_shareable and index.constraint is None and not index.signature.admin_access:
            free = index.shared + sum(index.count(name) - index.shared for name in what_if.cluster.nodes)
            yield free // needed


def _by_reservations(what_if: WhatIfCluster, copy: Copy) -> Iterator[int]:
    """A shared claim can be reserved for a limited number of pods."""
    own = {claim_id(claim) for claim in copy.claims}
    users = [id_ for pod in copy.pods for id_ in what_if.claims.claims_of(pod)]
    for id_ in set(users) - own:
        claim = what_if.claims.claim(*id_)
        if claim is not None:
            yield (api.RESERVED_FOR_MAX - len(claim.status.reserved_for)) // users.count(id_)
