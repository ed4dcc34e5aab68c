"""Runs one workload of the scheduler benchmark on its own control plane, and reports the measurements.

Everything is in one process, as in Kubernetes' benchmark: API server on a durable store, the controllers that Kubernetes'
benchmark has, the scheduler, and the client that creates the pods. There is no node agent: a pod is done when it has a node.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from allot.apiserver.assembly import Settings
from allot.bench.cases import CreateObjects, CreatePods, steps_of
from allot.bench.load import Load, Progress
from allot.bench.measure import Spread, spread
from allot.bench.workloads import Workload
from allot.controlplane.components import SchedulerRuns, start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane, control_plane
from allot.core.features import DEFAULT_GATES
from allot.process.clock import processor_seconds
from allot.process.interpreter import settle
from allot.process.memory import peak_resident_bytes
from allot.scheduler.configuration import API_VERSION, KIND, SchedulerConfiguration, parse_configuration
from allot.store.sqlite import SqliteStore

# As Kubernetes' benchmark runs.
CONTROLLERS = ("resourceclaim-controller", "garbage-collector-controller", "namespace-controller")
DISABLED_ADMISSION = frozenset({"ServiceAccount", "TaintNodesByCondition", "Priority"})
TIMEOUT_S = 600.0
_MIB = 1024 * 1024
_QUIET_S = 0.3
_QUIET_TRIES = 100


class Measurement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The measurements of a workload."""

    workload: str
    # As in Kubernetes' benchmark; the overall value if the run was too short for samples.
    pods_per_second: float
    # All pods, from creating the first to scheduling the last.
    pods_per_second_overall: float
    pods: int
    seconds: float
    throughput: Spread | None
    # From the creation of a pod until it is scheduled.
    latency_milliseconds: Spread | None
    processor_microseconds_per_pod: float
    writes_per_pod: float
    search_steps_per_pod: float
    nodes_evaluated_per_pod: float
    peak_memory_mebibytes: float
    floor: float | None = None


async def run_workload(
    workload: Workload, directory: Path, progress: Progress, timeout_s: float = TIMEOUT_S
) -> Measurement:
    """Run it on a new database in the directory. TooSlow if it does not finish in time."""
    gates = DEFAULT_GATES.changed(enable=workload.gates)
    settings = Settings(directory=directory / "pki", port=0, gates=gates, disabled_admission=DISABLED_ADMISSION)
    async with control_plane(settings, SqliteStore(directory / "state.db")) as plane:
        start_controllers(plane, CONTROLLERS)
        runs = start_scheduler(plane, configuration_of(workload))
        load = Load(
            workload,
            plane.client(user_agent="bench"),
            plane.informers,
            plane.clock,
            plane.ids,
            gates,
            timeout_s=timeout_s,
            progress=progress,
        )
        await load.prepare()
        for step in steps_of(workload):
            if isinstance(step, CreatePods | CreateObjects) and step.measured:
                await _until_quiet(plane)
                settle()
                before = await _Mark.of(plane, runs)
                await load.carry_out(step)
                return _outcome(workload, load, before, await _Mark.of(plane, runs))
            await load.carry_out(step)
    raise AssertionError(f"workload {workload.full_name} measures nothing")


async def _until_quiet(plane: ControlPlane) -> None:
    """Wait until events and controllers have settled after the setup: they are not to be measured."""
    store = plane.server.server.context.store
    for _ in range(_QUIET_TRIES):
        before = await store.revision()
        await plane.clock.sleep(_QUIET_S)
        if await store.revision() == before:
            return


def configuration_of(workload: Workload) -> SchedulerConfiguration | None:
    """Kubernetes' defaults, except for the case about scoring extended resources."""
    if workload.case != "ExtendedResourceScoring":
        return None
    resources = [{"name": name, "weight": 1} for name in ("cpu", "memory", workload.extended_resource)]
    strategy = {"type": "LeastAllocated", "resources": resources}
    return parse_configuration(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]}],
        },
        "the benchmark",
    )


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The progress at a moment."""

    time: float
    processor: float
    revision: int
    search_steps: int
    nodes_evaluated: int

    @staticmethod
    async def of(plane: ControlPlane, runs: SchedulerRuns) -> _Mark:
        scheduler = runs.current
        assert scheduler is not None, "the scheduler has started"
        return _Mark(
            time=plane.clock.monotonic(),
            processor=processor_seconds(),
            revision=await plane.server.server.context.store.revision(),
            search_steps=scheduler.search_steps,
            nodes_evaluated=scheduler.nodes_evaluated,
        )


def _outcome(workload: Workload, load: Load, before: _Mark, after: _Mark) -> Measurement:
    watcher = load.watcher
    count = watcher.count or workload.nodes_with_dra
    if watcher.count:
        seconds = watcher.last_scheduled() - watcher.first_created()
    else:
        seconds = after.time - before.time  # slices, not pods
    overall = count / seconds
    throughput = spread(load.throughput.samples)
    return Measurement(
        workload=workload.full_name,
        pods_per_second=round(throughput.average if throughput is not None else overall, 1),
        pods_per_second_overall=round(overall, 1),
        pods=count,
        seconds=round(seconds, 3),
        throughput=throughput,
        latency_milliseconds=spread([latency * 1000 for latency in watcher.latencies_s()]),
        processor_microseconds_per_pod=round((after.processor - before.processor) / count * 1e6, 1),
        writes_per_pod=round((after.revision - before.revision) / count, 2),
        search_steps_per_pod=round((after.search_steps - before.search_steps) / count, 2),
        nodes_evaluated_per_pod=round((after.nodes_evaluated - before.nodes_evaluated) / count, 2),
        peak_memory_mebibytes=round(peak_resident_bytes() / _MIB, 1),
        floor=workload.floor,
    )
