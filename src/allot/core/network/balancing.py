"""Chooses the endpoint of a Service for the next connection: round robin, or by session affinity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from allot.core.network.routes import Endpoint

CLIENTS_MAX = 10_000
# Of those that do not answer, so many are tried before a client is turned away.
TRIES_MAX = 3


class Balancer:
    """For one port of a Service."""

    def __init__(self) -> None:
        self._endpoints: tuple[Endpoint, ...] = ()
        self._affinity_s = 0
        self._turn = 0
        # Client -> where it was sent, and when it was last there.
        self._clients: OrderedDict[str, tuple[Endpoint, float]] = OrderedDict()

    def update(self, endpoints: tuple[Endpoint, ...], affinity_s: int) -> None:
        """Who is there now. Clients of those that are gone are free again."""
        self._endpoints, self._affinity_s = endpoints, affinity_s
        known = set(endpoints)
        for client in [client for client, (sent, _) in self._clients.items() if sent not in known or not affinity_s]:
            del self._clients[client]

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Who is there."""
        return self._endpoints

    def choose(self, client: str, now: float) -> Sequence[Endpoint]:
        """Where a client is sent, and where to if no one answers there."""
        if not self._endpoints:
            return ()
        sent = self._clients.get(client)
        if sent is not None and now - sent[1] <= self._affinity_s:
            self._remember(client, sent[0], now)
            return (sent[0],)
        first = self._turn % len(self._endpoints)
        self._turn = first + 1
        order = (*self._endpoints[first:], *self._endpoints[:first])[:TRIES_MAX]
        if self._affinity_s:
            self._remember(client, order[0], now)
        return order

    def _remember(self, client: str, endpoint: Endpoint, now: float) -> None:
        self._clients[client] = (endpoint, now)
        self._clients.move_to_end(client)
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
