"""`allot scheduler`: assigns pods to nodes and devices, against any Kubernetes API server."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from allot.cli.component import CannotRun, Component, ComponentOptions, component_options, options_of, run_component
from allot.cli.errors import Unreadable
from allot.cli.output import talk
from allot.client.announcement import Announcement
from allot.client.errors import ApiError, Forbidden
from allot.client.events import EventRecorder, Reference
from allot.client.informers import Informers
from allot.controllers.upstream_detection import (
    SCHEDULER_LEASE,
    follow_kube_scheduler,
    is_allot,
    kube_scheduler,
    why_unguarded,
)
from allot.process.interpreter import settle
from allot.process.metrics import Gauge
from allot.process.supervise import supervise
from allot.reading.documents import parse_documents
from allot.reading.errors import NotReached
from allot.scheduler.configuration import DEFAULT_SCHEDULER, Profile, SchedulerConfiguration, parse_configuration
from allot.scheduler.loop import Options, Scheduler
from allot.scheduler.plugin_arguments import BadConfiguration

_log = logging.getLogger("allot.scheduler")

# kube-scheduler's: every scheduler of default-scheduler's pods competes with it for this lease.
_LEASE = "kube-scheduler"
_OWN_LEASE = "allot-scheduler"
_DRAIN_S = 3.0
# Over the network; a server shared with others should not be flooded.
_WRITING_MAX = 64
_BESIDE = "run `allot guard`, or set --beside-kube-scheduler=other-nodes if the two schedulers have different nodes with devices"
_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Command line options take precedence.",
)
@click.option(
    "--scheduler-name",
    default="",
    metavar="NAME",
    help=f"Schedule pods with this schedulerName.  [default: those of --config, or {DEFAULT_SCHEDULER}]",
)
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS),
    default="info",
    show_default=True,
    help="The minimum level of log messages; info logs every decision about devices.",
)
@click.option(
    "--beside-kube-scheduler",
    "beside",
    type=click.Choice(("guarded", "other-nodes", "unguarded")),
    default="guarded",
    show_default=True,
    help="If another scheduler holds kube-scheduler's Lease: guarded starts only if allocations are guarded (allot's API server, or "
    "`allot guard`); other-nodes assumes that the two have different nodes with devices; unguarded accepts that devices may be "
    "allocated twice.",
)
@component_options(lease_name=_LEASE, port=10259)
def scheduler(config: Path | None, scheduler_name: str, log_level: str, beside: str, **arguments: Any) -> None:
    """Run the scheduler: choose a node and devices for each pod, and write the decision.

    It works on allot's API server and on any other, instead of kube-scheduler, or beside it for pods with another schedulerName.
    Processes elect a leader through kube-scheduler's Lease; a scheduler for other names has its own Lease.
    Beside another scheduler on the same devices, it starts only if a guard prevents double allocation
    (`allot guard`). It serves health and metrics over plain HTTP, by default only on loopback. SIGTERM and SIGINT stop it: it finishes
    placements in progress and releases the Lease.

    \b
    Examples:
      allot scheduler --kubeconfig ./kubeconfig
      allot scheduler --config scheduler.yaml --no-leader-elect
      allot scheduler --scheduler-name allot             beside kube-scheduler
    """
    configuration = _read(config) if config is not None else SchedulerConfiguration()
    if scheduler_name:
        if len(configuration.profiles) > 1:
            raise click.UsageError("--scheduler-name cannot be used with a --config that has several profiles.")
        only = msgspec.structs.replace(configuration.profiles[0], scheduler_name=scheduler_name)
        configuration = msgspec.structs.replace(configuration, profiles=(only,))
    options = _merged(click.get_current_context(), options_of(arguments), configuration)
    logging.getLogger("allot.scheduler").setLevel(log_level.upper())
    for note in configuration.notes:
        talk(f"{config}: {note}")
    run_component("scheduler", options, partial(_work, configuration, options, beside))


def _read(path: Path) -> SchedulerConfiguration:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    documents = parse_documents(data, str(path))
    if len(documents) != 1:
        raise Unreadable(f"{path}: expected one KubeSchedulerConfiguration, got {len(documents)} documents")
    try:
        return parse_configuration(documents[0].value, str(path))
    except BadConfiguration as error:
        raise Unreadable(str(error)) from None


def _merged(
    context: click.Context, options: ComponentOptions, configuration: SchedulerConfiguration
) -> ComponentOptions:
    """The file's settings, overridden by the command line."""
    election = configuration.election
    is_default = any(profile.scheduler_name == DEFAULT_SCHEDULER for profile in configuration.profiles)
    said: dict[str, Any] = {
        "leader_elect": election.is_on,
        "lease_name": election.name if is_default or election.name != _LEASE else _OWN_LEASE,
        "lease_namespace": election.namespace,
        "lease_duration": float(election.times.lease_duration_s),
        "renew_deadline": election.times.renew_deadline_s,
        "retry_period": election.times.retry_period_s,
    }
    if configuration.kubeconfig:
        said["kubeconfig"] = Path(configuration.kubeconfig)
    given = {name for name in said if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    return msgspec.structs.replace(options, **{name: value for name, value in said.items() if name not in given})


class _Neighbour:
    """Another scheduler that holds kube-scheduler's lease, from the start or later."""

    def __init__(self, beside: str, component: Component) -> None:
        """beside: the command line's setting."""
        self._beside = beside
        self._component = component
        self._holder = ""
        text = "Whether another process holds the lease of kube-scheduler."
        Gauge(component.registry, "allot_scheduler_beside_kube_scheduler", text, (), self._measure)

    def _measure(self) -> dict[tuple[str, ...], float]:
        return {(): 1.0 if self._holder else 0.0}

    async def check(self) -> None:
        """CannotRun beside a scheduler that may allocate the same devices."""
        component = self._component
        try:
            warning = await self._judge(await kube_scheduler(component.client, component.clock.seconds()))
        except Forbidden as error:
            raise _not_known(error) from None
        except ApiError as error:
            raise NotReached(component.connection.server, error) from None
        if warning:
            talk(f"warning: {warning}")

    async def follow(self, recorder: EventRecorder) -> None:
        """The same for one that starts later, or whose guard disappears; until cancelled."""
        name, namespace = SCHEDULER_LEASE
        lease = Reference(api_version="coordination.k8s.io/v1", kind="Lease", name=name, namespace=namespace)

        def tell(text: str) -> None:
            recorder.record(lease, "Warning", "AnotherScheduler", "Scheduling", text)

        async def told(holder: str) -> None:
            is_known = holder == self._holder
            try:
                warning = await self._judge(holder)
            except Forbidden as error:
                raise _not_known(error) from None
            except CannotRun as error:
                tell(str(error))
                await recorder.flush(_DRAIN_S)
                raise
            except ApiError as error:
                _log.warning("cannot tell whether allocations are guarded beside %s: %s", holder, error)
                return
            if warning and not is_known:
                talk(f"warning: {warning}")
                tell(warning)

        component = self._component
        await follow_kube_scheduler(component.client, component.clock, component.ids, told)

    async def _judge(self, holder: str) -> str:
        """What to warn of; empty if there is nothing. CannotRun if the two may not be."""
        self._holder = holder
        if not holder or self._beside == "other-nodes":
            return ""
        if self._beside == "unguarded":
            return f"{holder} also schedules: devices may be allocated twice"
        reason = await why_unguarded(self._component.client)
        if not reason:
            return ""
        raise CannotRun(
            f"scheduler: {holder} holds the Lease kube-system/{_LEASE}, and nothing prevents the two from allocating a device twice: {reason}",
            _BESIDE,
        )


def _not_known(error: Forbidden) -> CannotRun:
    return CannotRun(f"scheduler: cannot check whether another scheduler runs unguarded: {error}", _BESIDE)


def _has_lease_of_kube_scheduler(options: ComponentOptions) -> bool:
    """Whether this process holds that lease, so that no other does."""
    return options.leader_elect and (options.lease_name, options.lease_namespace) == SCHEDULER_LEASE


async def _work(
    configuration: SchedulerConfiguration, options: ComponentOptions, beside: str, component: Component
) -> None:
    neighbour = None if _has_lease_of_kube_scheduler(options) else _Neighbour(beside, component)
    if neighbour is not None:
        await neighbour.check()
    informers = Informers(component.client, component.clock, component.ids)
    made = Scheduler(
        component.client,
        informers,
        component.clock,
        component.ids,
        configuration,
        options.gates,
        options=Options(instance=component.identity.partition("_")[0], writing_max=_WRITING_MAX, drain_s=_DRAIN_S),
        registry=component.registry,
    )
    talk(f"scheduling pods of {', '.join(_described(profile) for profile in configuration.profiles)}")
    names = [profile.scheduler_name for profile in configuration.profiles]
    announcement = Announcement(component.client, component.clock, "scheduler", names, component.identity)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informers.run())
        if await is_allot(component.client):
            tasks.create_task(supervise("the announcement", announcement.run, component.clock))
        if neighbour is not None:
            tasks.create_task(neighbour.follow(made.recorder))
        # Not restarted when it fails: its whole state is in the API, and a new process reads it again.
        tasks.create_task(made.run())
        await made.synced.wait()
        settle()
        talk("ready")


def _described(profile: Profile) -> str:
    policy = profile.settings.policy.value
    return f"{profile.scheduler_name} (policy {policy})" if policy else profile.scheduler_name
