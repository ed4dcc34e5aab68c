"""The guard process: the leader waits until its predecessor's writes are stored or lost, reads the store,
and then decides until it no longer leads.

A predecessor that stopped cleanly has waited for its writes before it released its lease (`Decider.drain`), so
a released lease can be taken over at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.leader import LeaderElector
from allot.core.features import FeatureGates
from allot.guard.configuration import ConfigurationKeeper, WebhookOptions
from allot.guard.decider import Decider, GuardMetrics
from allot.guard.endpoint import LeaderEndpoint
from allot.guard.serving import PATH, ServingCertificates, serving_reviews
from allot.http1.heads import HttpError
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.interpreter import settle
from allot.process.supervise import supervise

_log = logging.getLogger("allot.guard")

_STANDING_BY = "standing by: another process leads"


class GuardOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the guard runs."""

    webhook: WebhookOptions
    installs: bool
    bind_address: str
    port: int
    # How long after admission a write may still be stored.
    write_timeout_s: float
    certificate_validity_s: float
    client_ca: bytes = b""
    # This pod's address, if the leader is the only endpoint of the Service; otherwise all ready pods are.
    endpoint_address: str = ""


class Guard:
    """One process, which may lead."""

    def __init__(self, options: GuardOptions, gates: FeatureGates) -> None:
        self._options = options
        self._gates = gates
        self._decider: Decider | None = None
        # Why it does not decide; empty while it does.
        self.problem = _STANDING_BY

    async def readiness(self) -> str:
        """Why it is not ready. A standby process is ready if the Service routes only to the leader."""
        return "" if self._options.endpoint_address and self.problem == _STANDING_BY else self.problem

    async def lead(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        registry: CollectorRegistry,
        elector: LeaderElector | None,
        tell: Callable[[str], None],
    ) -> None:
        """Decide until cancelled. elector: None if no other process can lead."""
        options = self._options
        metrics = GuardMetrics(registry, lambda: self._decider.ledger if self._decider is not None else None)
        decider = Decider(client, clock, ids, self._gates, options.write_timeout_s, metrics)
        certificates = ServingCertificates(
            _names(options), clock, options.certificate_validity_s, client_ca=options.client_ca
        )
        keeper = ConfigurationKeeper(client, clock, options.webhook, installs=options.installs)
        was_given_back = elector is not None and elector.was_given_back
        self.problem = "taking over"

        def may_decide() -> bool:
            return not self.problem and (elector is None or elector.leads_surely)

        async def review(body: bytes) -> bytes:
            if self.problem:
                raise HttpError(503, self.problem)
            return await decider.review(body, may_decide)

        serving = serving_reviews(review, clock, options.bind_address, options.port, certificates.context)
        async with serving as port, asyncio.TaskGroup() as tasks:
            if not was_given_back and await keeper.was_used():
                self.problem = "waiting until no write that a former leader admitted can still be stored"
                tell(f"{self.problem}: {options.write_timeout_s:g} s")
                await clock.sleep(options.write_timeout_s)
            self.problem = "reading claims and slices"
            self._decider = decider
            following = tasks.create_task(supervise("the guard's ledger", decider.run, clock))
            await decider.synced.wait()
            settle()
            self.problem = ""
            webhook = _with_url(options, port)
            endpoint = self._endpoint(client, clock, port)

            async def publish() -> None:
                await keeper.publish(webhook, certificates.bundle)

            try:
                if endpoint is not None:
                    await endpoint.publish()
                    tasks.create_task(supervise("the guard's endpoint", endpoint.keep, clock))
                await publish()
                tell(f"deciding at {webhook.url or webhook.service}: {decider.ledger.known()} claims")
                await asyncio.gather(
                    certificates.keep_renewed(publish), keeper.keep(lambda: (webhook, certificates.bundle))
                )
            finally:
                self.problem = "stopping"
                await decider.drain()
                following.cancel()

    def _endpoint(self, client: Client, clock: Clock, port: int) -> LeaderEndpoint | None:
        service, address = self._options.webhook.service, self._options.endpoint_address
        if service is None or not address:
            return None
        return LeaderEndpoint(client, clock, service, address, port)


def _with_url(options: GuardOptions, port: int) -> WebhookOptions:
    webhook = options.webhook
    if webhook.service is not None or webhook.url:
        return webhook
    return msgspec.structs.replace(webhook, url=f"https://{_host(options.bind_address)}:{port}{PATH}")


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _names(options: GuardOptions) -> tuple[str, ...]:
    """The names in the certificate."""
    service, url = options.webhook.service, options.webhook.url
    named = service.host if service is not None else (urlsplit(url).hostname or "" if url else options.bind_address)
    return named, "localhost"
