"""The driver: adds its node to the domain of the first channel claimed there, and provides channels as soon as the domain's daemon is
ready on the node.

The daemon is a normal pod that claims a device of this driver while the claim for a channel waits for it; so claims are prepared concurrently. Only
this node counts: whether the other nodes of a job are ready is the job's concern, as with NVIDIA's driver.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from allot.client.errors import ApiError
from allot.core.model.compute_domains import ALL, DRIVER, DRIVER_NAMESPACE, KIND, READY, ComputeDomain
from allot.devices.computedomain.classes import published_devices
from allot.devices.computedomain.config import KINDS, ChannelConfig, DaemonConfig, config_of
from allot.devices.computedomain.domains import Domains, NotYet
from allot.devices.computedomain.imex import SimulatedImex
from allot.driver import AllocatedDevice, Claim, Device, Driver, Edits, Prepared, PreparedClaim, PrepareError

_log = logging.getLogger("allot.driver")

# How long a claim waits for its domain in one call; then the pod gets an event with the reason, and the kubelet retries.
WAIT_S = 5.0
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.25, 3.0


class ComputeDomainDriver(Driver):
    """The driver of one node. clique: the node's label if nothing else names its NVLink domain; empty: none."""

    name = DRIVER
    configs = KINDS
    serialize = False
    rescan_s = 0.0

    def __init__(
        self,
        imex: SimulatedImex,
        *,
        clique: str = "",
        driver_namespace: str = DRIVER_NAMESPACE,
        wait_s: float = WAIT_S,
    ) -> None:
        self._imex = imex
        self._clique = clique
        self._driver_namespace = driver_namespace
        self._wait_s = wait_s

    def devices(self) -> tuple[Device, ...]:
        """A channel and a daemon."""
        return published_devices()

    async def start(self) -> None:
        """Publish the NVLink domain of the node, so that pods can be placed by it."""
        if self._clique:
            try:
                await self._domains.tell_clique(self._clique)
            except ApiError as error:
                _log.warning("node %s is not labelled with its clique %s: %s", self.node.name, self._clique, error)

    @property
    def _domains(self) -> Domains:
        return Domains(self.node.client, self.node.name)

    # --- preparing ---

    async def prepare(self, claim: Claim) -> tuple[Prepared, ...]:
        """Prepare channels, waiting a while for their domain, and daemons, without waiting."""
        configs = [(device, config_of(device)) for device in claim.devices]
        # The domains of the claim's channel and daemon, as the checkpoint keeps them.
        state = dict(_known(claim.state))
        prepared = []
        for device, config in configs:
            if isinstance(config, ChannelConfig):
                edits = await self._channel(claim, device, config, state)
            else:
                edits = await self._daemon(claim, config, state)
            prepared.append(Prepared(device, edits))
        return tuple(prepared)

    async def _channel(
        self, claim: Claim, device: AllocatedDevice, config: ChannelConfig, state: dict[str, str]
    ) -> Edits:
        domain = await self._domains.find(config.domain_id, claim.namespace)
        if not device.admin_access:
            # Saved before the label is set, so that it can always be removed.
            state["channel"] = domain.metadata.uid
            claim.save(state)
            domain = await self._until_ready(domain)
        if not await self._domains.clique():
            # GPUs without NVLink between nodes have no channels.
            return Edits()
        are_all = config.allocation_mode == ALL
        # Thousands of files, so in a thread.
        return await asyncio.to_thread(self._imex.channel_edits, claim.uid, are_all=are_all)

    async def _until_ready(self, domain: ComputeDomain) -> ComputeDomain:
        """The domain once its daemon is ready on this node; NotYet on timeout."""
        loop = asyncio.get_running_loop()
        ends_at, pause = loop.time() + self._wait_s, _PAUSE_FIRST_S
        has_joined = False
        while True:
            try:
                self._check_alive(domain)
                if not has_joined:
                    await self._domains.join(domain)
                    has_joined = True
                self._check_ready(domain)
                return domain
            except NotYet:
                if loop.time() + pause > ends_at:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)
            domain = await self._domains.refreshed(domain)

    def _check_alive(self, domain: ComputeDomain) -> None:
        if domain.metadata.deletion_timestamp is not None:
            raise PrepareError(f"{_named(domain)} is being deleted")

    def _check_ready(self, domain: ComputeDomain) -> None:
        entry = domain.node(self.node.name)
        if entry is None:
            raise NotYet(f"{_named(domain)} is not ready on node {self.node.name}: its daemon does not run there yet")
        if entry.status != READY:
            raise NotYet(f"{_named(domain)} is not ready on node {self.node.name}: its daemon there is {entry.status}")

    async def _daemon(self, claim: Claim, config: DaemonConfig, state: dict[str, str]) -> Edits:
        if claim.namespace != self._driver_namespace:
            raise PrepareError(
                f"claims for daemons of a {KIND} can only be in namespace {self._driver_namespace}, "
                f"where its controller makes them, not in {claim.namespace}"
            )
        fault = self._imex.fault
        if fault:
            raise PrepareError(f"the NVLink fabric of node {self.node.name} is broken: {fault}")
        domain = await self._domains.find_anywhere(config.domain_id)
        state["daemon"] = domain.metadata.uid
        claim.save(state)
        clique = await self._domains.clique()
        return await asyncio.to_thread(self._imex.daemon_edits, domain, clique)

    # --- unpreparing ---

    async def unprepare(self, claim: PreparedClaim) -> None:
        """The node leaves the domain with the last channel, and the domain's daemon leaves the node."""
        await self._undo(claim, self.node.prepared())

    async def rebooted(self, claims: tuple[PreparedClaim, ...]) -> None:
        """Nothing is prepared after a reboot, so the node is in no domain."""
        for claim in claims:
            await self._undo(claim, ())

    async def _undo(self, claim: PreparedClaim, others: tuple[PreparedClaim, ...]) -> None:
        state = _known(claim.state)
        rest = [_known(each.state) for each in others if each.uid != claim.uid]
        for key, undo in (("channel", self._domains.leave), ("daemon", self._forget_daemon)):
            uid = state.get(key, "")
            if uid and all(each.get(key) != uid for each in rest):
                await undo(uid)
        await asyncio.to_thread(self._imex.remove_channels, claim.uid)

    async def _forget_daemon(self, uid: str) -> None:
        await asyncio.to_thread(self._imex.remove_daemon, uid)


def _named(domain: ComputeDomain) -> str:
    return f"{KIND} {domain.metadata.namespace}/{domain.metadata.name}"


def _known(state: Any) -> dict[str, str]:
    return state if isinstance(state, dict) else {}
