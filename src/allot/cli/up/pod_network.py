"""The pod network of `allot up`: created at its start and kept while it runs, with one child inside. Nodes learn its place, or why there is none."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from allot.network.namespace import ClusterNetwork, NetworkRefused
from allot.network.resolvers import ask_machine
from allot.network.service_client import ServiceNetwork
from allot.network.way_out import find_way_out

NAME = "pod-network"
_SOCKET = "pod-network.sock"


class MadeNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """The network, if any. why_not: empty if none is needed."""

    kept: ClusterNetwork | None = None
    client: ServiceNetwork | None = None
    socket: Path = Path()
    why_not: str = ""

    def arguments(self) -> list[str]:
        """Options for agents."""
        if self.kept is not None:
            return ["--pod-network", str(self.socket)]
        return ["--no-pod-network", self.why_not] if self.why_not else []

    async def close(self) -> None:
        """Release it."""
        if self.client is not None:
            await self.client.close()
        if self.kept is not None:
            self.kept.close()
            self.socket.unlink(missing_ok=True)


async def make_network(folder: Path, url: str, *, is_wanted: bool) -> MadeNetwork:
    """In a data directory. url: of the API server; is_wanted: whether there are pods that could be in it."""
    if not is_wanted:
        return MadeNetwork()
    path = (folder / _SOCKET).absolute()
    try:
        kept = await ClusterNetwork.make(path)
    except NetworkRefused as error:
        return MadeNetwork(why_not=str(error))
    api = urlsplit(url)
    assert api.hostname is not None, f"{url} has a host"
    # External names are useful only if they are reachable.
    resolve = ask_machine if find_way_out() else None
    client = ServiceNetwork(path, (api.hostname, api.port or 443), resolve)
    return MadeNetwork(kept=kept, client=client, socket=path)
