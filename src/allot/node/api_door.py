"""A relay to an API server on the loopback address, for pods that cannot reach it. The server stays unreachable from other machines."""

from __future__ import annotations

import socket
from collections.abc import Callable

from allot.network.client import dial_address
from allot.network.relays import Listener, Relays, bound, reset


class ApiDoor:
    """Listens on an address of the node. may_enter: whether an address belongs to a pod of the node. OSError if it cannot listen."""

    def __init__(self, address: str, api: tuple[str, int], may_enter: Callable[[str], bool]) -> None:
        made = bound(address, 0)
        self.port: int = made.getsockname()[1]
        self._address = address
        self._api = api
        self._may_enter = may_enter
        self._relays = Relays()
        self._listener = Listener(made, self._accepted)

    def _accepted(self, connection: socket.socket) -> None:
        try:
            peer = connection.getpeername()[0]
        except OSError:
            connection.close()
            return
        # The node itself connects from its own address.
        if peer == self._address or self._may_enter(peer):
            self._relays.start(connection, lambda: dial_address(None, *self._api))
        else:
            reset(connection)

    async def close(self) -> None:
        """End all connections."""
        self._listener.close()
        await self._relays.close()
