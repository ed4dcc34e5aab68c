"""Starts controllers and scheduler on a control plane, each as the user that its role is bound to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from allot.apiserver.access.request_signing import RequestSigner
from allot.apiserver.request import User
from allot.client.announcement import Announcement
from allot.controllers.metrics import ControllerMetrics
from allot.controllers.runner import Services
from allot.controllers.table import announced_names, select
from allot.controlplane.plane import ControlPlane
from allot.controlplane.users import CONTROLLERS, SCHEDULER, controller_user
from allot.core.lifecycle.signing_requests import SIGNING_DURATION_S
from allot.core.workloads.autoscaling.decision import SYNC_PERIOD_S
from allot.scheduler.configuration import SchedulerConfiguration
from allot.scheduler.loop import Options, Scheduler

_log = logging.getLogger("allot.controllers")

SCHEDULER_NAME = "scheduler"


def start_controllers(
    plane: ControlPlane,
    patterns: Sequence[str] = ("*",),
    *,
    volume_folder: Path | None = None,
    hpa_sync_period_s: float = SYNC_PERIOD_S,
    signing_duration_s: float = SIGNING_DURATION_S,
) -> CollectorRegistry:
    """Start the selected controllers; returns their metrics. volume_folder: where directories for volume claims are created."""
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    access = plane.server.access
    rows = select(patterns, plane.settings.gates)
    authority = access.certificates.authority
    services = Services(
        client=plane.client(CONTROLLERS, "allot-controllers"),
        informers=plane.informers,
        clock=plane.clock,
        ids=plane.ids,
        metrics=metrics,
        gates=plane.settings.gates,
        sign_token=access.tokens.issue_legacy,
        root_ca=authority.pem.decode(),
        sign_certificate=RequestSigner(lambda: (authority.certificate, authority.key), plane.clock).sign,
        signing_duration_s=signing_duration_s,
        volume_folder=volume_folder,
        hpa_sync_period_s=hpa_sync_period_s,
    )
    for row in rows:
        user = controller_user(row.account) if row.account else CONTROLLERS
        own = msgspec.structs.replace(services, client=plane.client(user, row.name))
        plane.start(row.name, row.make(own).run)
        _log.info("controller %s started", row.name)
    names = announced_names(rows, volume_folder, signs=True)
    if names:
        announce(plane, "controllers", names)
    return registry


def announce(plane: ControlPlane, part: str, names: Sequence[str], user: User = CONTROLLERS) -> None:
    """Announce these controllers to the API server while they run."""
    announcement = _announcement(plane, part, user, names)
    plane.start(announcement.name, announcement.run)


def _announcement(plane: ControlPlane, part: str, user: User, names: Sequence[str]) -> Announcement:
    """The announcement of these controllers to the API server."""
    client = plane.client(user, f"allot-{part}")
    return Announcement(client, plane.clock, part, names, f"allot_{plane.ids.new_uid()}")


class SchedulerRuns:
    """The scheduler of a control plane, recreated on each restart: its state is in the API."""

    def __init__(self, plane: ControlPlane, configuration: SchedulerConfiguration | None) -> None:
        self._plane = plane
        self._configuration = configuration
        self.current: Scheduler | None = None

    async def run(self) -> None:
        """Run until cancelled or failed."""
        plane = self._plane
        self.current = Scheduler(
            plane.client(SCHEDULER, "kube-scheduler"),
            plane.informers,
            plane.clock,
            plane.ids,
            self._configuration,
            plane.settings.gates,
            # Our server refuses double allocation.
            options=Options(is_guarded=True),
        )
        profiles = (self._configuration or SchedulerConfiguration()).profiles
        names = [profile.scheduler_name for profile in profiles]
        announcing = asyncio.create_task(_announcement(plane, "scheduler", SCHEDULER, names).run())
        try:
            await self.current.run()
        finally:
            announcing.cancel()
            await asyncio.wait([announcing])


def start_scheduler(
    plane: ControlPlane, configuration: SchedulerConfiguration | None = None, name: str = SCHEDULER_NAME
) -> SchedulerRuns:
    """A scheduler; more than one can run if their names here differ."""
    runs = SchedulerRuns(plane, configuration)
    plane.start(name, runs.run)
    return runs
