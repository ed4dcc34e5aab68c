"""Keeps the ConfigMap from which extension API servers learn whose certificates to accept."""

from __future__ import annotations

from allot.apiserver.access.certificates import FRONT_PROXY, Certificates
from allot.apiserver.bootstrap import try_to_write
from allot.apiserver.resources import Object
from allot.apiserver.server import ApiServer
from allot.core.access.authentication_trust import NAME, NAMESPACE, with_trust
from allot.store.port import Event, EventType

KEY = f"/registry/configmaps/{NAMESPACE}/{NAME}"


class Trust:
    """The controller: what is missing in the ConfigMap is written again."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    async def run(self, api: ApiServer) -> None:
        """Write it, and again when it is changed."""
        store = api.context.store
        revision = await store.revision()
        await self.write(api)
        watch = store.watch(KEY, revision)
        try:
            async for change in watch:
                if isinstance(change, Event) and change.entry.key == KEY:
                    await self._write(api, None if change.type is EventType.DELETED else change.entry.object)
        finally:
            await watch.close()

    async def write(self, api: ApiServer) -> None:
        """Write what is missing."""
        entry = await api.context.store.get(KEY)
        await self._write(api, entry.object if entry is not None else None)

    async def _write(self, api: ApiServer, present: Object | None) -> None:
        before = (present or {}).get("data") or {}
        certificates = self._certificates
        data = with_trust(
            before,
            certificates.authority.pem,
            certificates.front_proxy_authority.pem,
            [FRONT_PROXY.name],
            api.context.clock.seconds(),
        )
        if data == before:
            return
        base: Object = present or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
        }
        # If another writer is faster, its change is reported, and looked at again.
        await try_to_write(api, "create" if present is None else "update", "", "configmaps", {**base, "data": data})
