"""One worker per pod: observes, decides (`core.lifecycle.pods`), acts, reports, and waits for the next change.

A worker lives from the binding of a pod until its cleanup is complete. All state that must survive a restart
of the agent is in the API, the runtime or the checkpoint of prepared claims; backoffs and probes start over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from allot.client.errors import ApiError
from allot.core.lifecycle.plugin_devices import Edits, Refused
from allot.core.lifecycle.pod_environment import PodFacts
from allot.core.lifecycle.pod_status import Facts, is_same, pod_status, rejected_status
from allot.core.lifecycle.pod_storage import EVICTED
from allot.core.lifecycle.pod_sysctls import FORBIDDEN, SysctlRules, forbidden_sysctl
from allot.core.lifecycle.pods import (
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    DEADLINE_TEXT,
    RUNNING,
    Backoff,
    MakeSandbox,
    Record,
    Resize,
    ResizePod,
    Seen,
    Start,
    Step,
    Stop,
    Waiting,
    decide,
    ending,
    grace_of,
    is_overdue,
    pod_title,
)
from allot.core.lifecycle.resizing import effective, with_allocation
from allot.core.model.containers_v1 import RunnableContainer
from allot.core.model.core_v1 import Pod
from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.core.scheduling import Rejection
from allot.node.actions import ActionFailure, Actions
from allot.node.admission import Admission
from allot.node.containers import TERMINATION_FILE, ContainerSpecs, pod_name, resources_of
from allot.node.control_groups import PodGroups
from allot.node.deviceplugins.device_plugins import DevicePlugins
from allot.node.devices import Devices, PrepareFailed
from allot.node.logs import tail_of
from allot.node.probes import LIVENESS, READINESS, STARTUP, Answer, Prober, ProbeReports
from allot.node.reports import Reports
from allot.node.resizes import Resizes
from allot.node.runtimes import port
from allot.node.runtimes.port import Runtime, RuntimeFailure
from allot.node.service_variables import ServiceVariables
from allot.node.terminations import Terminations
from allot.node.volumes import MountFailure, Volumes
from allot.process.beneath import checked_name, read_file, remove_tree
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.waits import happens_within

_log = logging.getLogger("allot.node")

Object = dict[str, Any]
_RETRY_FIRST_S, _RETRY_MAX_S = 0.5, 10.0
_REFRESH_S = 60.0
_MESSAGE_BYTES_MAX = 4096
_HOOK_S = 24 * 3600.0
_HOOK_REST_S = 2.0
_EVICTION_GRACE_S = 1.0
_PULL_TOLD_S = 1.0
_PULL_WORDS = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
_TERMINAL = ("Succeeded", "Failed")
# The kubelet's reason for a pod that does not get its devices.
UNEXPECTED = "UnexpectedAdmissionError"


class Listing(Protocol):
    """The runtime's view of one pod."""

    async def of(self, uid: str) -> tuple[tuple[port.Sandbox, ...], tuple[port.Container, ...]]:
        """Its current sandboxes and containers."""

    def stale(self) -> None:
        """Something has been changed."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What workers share."""

    clock: Clock
    ids: Ids
    runtime: Runtime
    listing: Listing
    devices: Devices
    volumes: Volumes
    specs: ContainerSpecs
    reports: Reports
    terminations: Terminations
    actions: Actions
    log_folder: Path
    host_ips: tuple[str, ...]
    runtime_name: str
    pulls_images: bool
    allocatable: Mapping[str, Any]
    variables: ServiceVariables
    admission: Admission
    # None: pods get no control groups of their own.
    groups: PodGroups | None = None
    # None: nodes without device plugins.
    plugins: DevicePlugins | None = None
    sysctls: SysctlRules = SysctlRules()
    time_factor: float = 1.0


class PodWorker:
    """Manages one pod. done: cleanup is complete. BadName if a name in it would lead out of the agent's folders."""

    def __init__(self, services: Services, raw: Object) -> None:
        self._on = services
        asked = decode_runnable(raw)
        _check_names(asked)
        self._resizes = Resizes(asked, services.admission, services.reports, self.wake)
        # With the resources that its node has allocated.
        self.pod = with_allocation(asked, self._resizes.allocation)
        # As in the API, including fields without a type.
        self._written: Object = raw.get("status") or {}
        self._woken = asyncio.Event()
        self._is_ending = asyncio.Event()
        self._is_gone = False
        self._ends = False
        # Why the agent itself ends the pod, the message, and the grace period of its containers.
        self._end_reason = self._end_message = ""
        self._end_grace_s: float | None = None
        self._is_final = False
        self._volumes: Mapping[str, Path] | None = None
        self._refresh_at = 0.0
        self._backoffs: dict[str, Backoff] = {}
        self._waiting: dict[str, Waiting] = {}
        self._told_waiting: Mapping[str, Waiting] = {}
        # The end of the last reported backoff.
        self._told_backoffs: dict[str, float] = {}
        self._failing: dict[str, str] = {}
        self._failing_graces: dict[str, float] = {}
        # The last requested image: a container's own, or that of one of its volumes.
        self._pulled: dict[str, str] = {}
        self._started: set[str] = set()
        self._ready: set[str] = set()
        # Container id -> its probes; container id -> the deadline of its stop.
        self._probes: dict[str, tuple[Prober, asyncio.Task[None]]] = {}
        self._stops: dict[str, float] = {}
        self._messages: dict[str, str] = {}
        self._retry_s = _RETRY_FIRST_S
        self._look_at: float | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._reporting = asyncio.Lock()
        self._pod_ips: tuple[str, ...] = ()
        # A started pod stays, whatever the rules say now: a restart of the agent must not evict it.
        self._is_admitted = self.pod.status.start_time is not None
        self._rejection: Rejection | None = None
        if self._is_admitted and self.pod.status.phase not in _TERMINAL:
            services.admission.count(self.pod)

    # --- from outside ---

    def update(self, raw: Object) -> None:
        """The pod has changed in the API."""
        if _is_newer(raw, self.pod):
            self._know(raw)
            if self.pod.metadata.deletion_timestamp is not None:
                self._is_ending.set()
            self._woken.set()

    def _know(self, raw: Object) -> None:
        before = self.pod.metadata
        self._resizes.asked = decode_runnable(raw)
        self._written = raw.get("status") or {}
        self.pod = with_allocation(self._resizes.asked, self._resizes.allocation)
        if (before.labels, before.annotations) != (self.pod.metadata.labels, self.pod.metadata.annotations):
            # Files may contain them.
            self._refresh_at = 0.0

    def remove(self) -> None:
        """The pod is no longer in the API."""
        self._is_gone = True
        self._on.admission.leave(self.pod)
        self._is_ending.set()
        self._woken.set()

    def evict(self, message: str) -> None:
        """The pod exceeds a limit: it fails at once."""
        if not self._ends:
            self._on.reports.tell(self.pod, "Warning", EVICTED, message)
            self._give_up(EVICTED, message, _EVICTION_GRACE_S)

    def waits_for(self, name: str) -> str:
        """Why a container has not started, in the kubelet's words."""
        why = self._told_waiting.get(name)
        if why is None:
            return "PodInitializing" if self.pod.spec.init_containers else "ContainerCreating"
        return _PULL_WORDS.get(why.reason, why.reason)

    def wake(self) -> None:
        """Something about the pod has changed on the node."""
        self._woken.set()

    # --- the loop ---

    async def run(self) -> None:
        """Run until cleanup is complete."""
        # After a failure, all background tasks are gone.
        self._probes.clear()
        self._stops.clear()
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            while True:
                self._woken.clear()
                self._look_at = None
                if await self._sync():
                    break
                await self._wait()
            for _, task in self._probes.values():
                task.cancel()

    async def _wait(self) -> None:
        now = self._on.clock.seconds()
        pause = _REFRESH_S if self._look_at is None else max(self._look_at - now, 0.01)
        await happens_within(self._woken, min(pause, _REFRESH_S))

    def _look_in(self, seconds: float) -> None:
        at = self._on.clock.seconds() + seconds
        self._look_at = at if self._look_at is None else min(self._look_at, at)

    async def _sync(self) -> bool:
        """One pass over the pod; returns whether it is finished."""
        await self._admit()
        if not self._must_end() and self._resizes.look():
            self.pod = with_allocation(self._resizes.asked, self._resizes.allocation)
        seen = await self._look()
        while not self._must_end():
            decision = decide(self.pod, seen, self._on.clock.seconds())
            self._told_waiting = {**self._waiting, **decision.waiting}
            if decision.ends:
                self._ends = True
                if is_overdue(self.pod, self._on.clock.seconds()):
                    self._give_up("DeadlineExceeded", DEADLINE_TEXT)
                break
            self._report_backoffs(decision.waiting)
            await self._report_soon(seen)
            made_sandbox = await self._act(decision.steps, seen)
            if decision.steps:
                seen = await self._look()
                self._told_waiting = {**self._waiting, **decision.waiting}
            if made_sandbox:
                # Decide at once what to start in it.
                continue
            if decision.look_at is not None:
                self._look_in(decision.look_at - self._on.clock.seconds())
            self._resizes.finish(seen, self.pod)
            await self._keep_volumes()
            self._keep_probes(seen)
            await self._report(seen)
            return False
        self._keep_probes(seen)
        return await self._end(seen)

    async def _admit(self) -> None:
        """Ask once whether the node admits the pod. Nothing of a rejected pod runs."""
        if self._is_admitted or self._must_end():
            return
        self._is_admitted = True
        if text := forbidden_sysctl(self.pod, self._on.sysctls):
            self.reject(Rejection(reason=FORBIDDEN, message=text))
            return
        held: Mapping[str, int] = {}
        if (plugins := self._on.plugins) is not None:
            try:
                if not await self._unless_ending(plugins.allocate(self.pod)):
                    # Nothing of it runs.
                    return
            except Refused as error:
                text = f"Allocate failed due to {error}, which is unexpected"
                self.reject(Rejection(reason=UNEXPECTED, message=text))
                await self._release()
                return
            held = plugins.held()
        rejection = await self._on.admission.admit(self.pod, held)
        if rejection is not None:
            self.reject(rejection)
            await self._release()

    def reject(self, rejection: Rejection) -> None:
        """The node rejects the pod."""
        self._is_admitted = self._is_final = True
        self._rejection = rejection
        self._on.reports.tell(self.pod, "Warning", rejection.reason, rejection.message)

    async def _release(self) -> None:
        if self._on.plugins is not None:
            await self._on.plugins.release(self.pod.metadata.uid)

    def _give_up(self, reason: str, message: str, grace_s: float | None = None) -> None:
        """End the pod as failed, whatever its containers do."""
        self._ends = True
        self._end_reason, self._end_message, self._end_grace_s = reason, message, grace_s
        self._is_ending.set()
        self._woken.set()

    def _must_end(self) -> bool:
        is_deleted = self._is_gone or self.pod.metadata.deletion_timestamp is not None
        if is_deleted or self._rejection is not None or self.pod.status.phase in _TERMINAL:
            # An ended pod never starts again, even if nothing of it is left on the node.
            self._ends = True
        return self._ends

    async def _look(self) -> Seen:
        sandboxes, containers = await self._on.listing.of(self.pod.metadata.uid)
        ready = [each for each in sandboxes if each.ready]
        if ready:
            # Pods on the node's network have no addresses of their own.
            self._pod_ips = ready[-1].ips or self._on.host_ips
        records: dict[str, tuple[Record, ...]] = {}
        for each in sorted(containers, key=lambda one: (one.attempt, one.created_at), reverse=True):
            records[each.name] = (*records.get(each.name, ()), self._record(each))
        running = {name for name, found in records.items() if found[0].state == RUNNING}
        return Seen(
            sandbox=ready[-1].id if ready else "",
            sandbox_attempt=max((each.attempt for each in sandboxes), default=-1),
            old_sandboxes=tuple(each.id for each in sandboxes if not each.ready),
            records=records,
            started=frozenset(name for name in running if name in self._started or self._counts_as_started(name)),
            failing=self._failing,
            failing_graces=self._failing_graces,
            waiting=self._waiting,
            backoffs=self._backoffs,
            actuated=self._resizes.actuated(records, self._written),
            restarting=self._resizes.restarting,
            pod_is_settled=self._is_settled(has_sandbox=bool(ready)),
        )

    def _is_settled(self, *, has_sandbox: bool) -> bool:
        """Without a control group, nothing has to be done for the pod as a whole."""
        if not has_sandbox or self._resizes.is_settled(self.pod):
            return True
        if self._on.groups is None:
            self._resizes.settle(self.pod)
            return True
        return False

    def _counts_as_started(self, name: str) -> bool:
        container = self.pod.container(name)
        return container is not None and container.startup_probe is None

    def _record(self, container: port.Container) -> Record:
        message = container.message
        if container.state == port.State.EXITED:
            if container.id not in self._messages:
                self._messages[container.id] = self._termination_message(container)
            message = ": ".join(filter(None, (message, self._messages[container.id])))
        return Record(
            id=container.id,
            name=container.name,
            attempt=container.attempt,
            state=container.state.value,
            created_at=container.created_at,
            started_at=container.started_at,
            finished_at=container.finished_at,
            exit_code=container.exit_code,
            reason=container.reason,
            message=message,
            image=container.image,
            image_id=container.image_id,
        )

    def _termination_message(self, container: port.Container) -> str:
        path = container.annotations.get(TERMINATION_FILE, "")
        text = ""
        if path:
            try:
                text = read_file(path, _MESSAGE_BYTES_MAX).decode(errors="replace")
            except FileNotFoundError:
                text = ""
            except OSError as error:
                # Does not happen to a container that used only what it was given.
                _log.warning("pod %s: termination message of %s is not read: %s", self.pod.key, container.name, error)
        policy = container.annotations.get("io.kubernetes.container.terminationMessagePolicy")
        if not text and policy == "FallbackToLogsOnError" and container.exit_code != 0:
            text = tail_of(self.log_folder() / container.name / f"{container.attempt}.log")
        return text

    def log_folder(self) -> Path:
        """Where the logs of the pod are."""
        metadata = self.pod.metadata
        return self._on.log_folder / f"{metadata.namespace}_{metadata.name}_{metadata.uid}"

    # --- acting ---

    async def _act(self, steps: tuple[Step, ...], seen: Seen) -> bool:
        """Execute steps; returns whether a sandbox was created."""
        resizes = True
        for step in steps:
            match step:
                case MakeSandbox():
                    return await self._make_sandbox(step)
                case Start():
                    await self._start(step, seen.sandbox)
                case Stop():
                    if step.resizes:
                        self._resizes.restarts(step.id)
                    self._stop(step)
                case Resize():
                    resizes = resizes and await self._resize(step)
                case ResizePod():
                    # It shrinks only after all its containers have.
                    resizes = resizes and await self._resize_pod(step)
        return False

    def _facts(self) -> PodFacts:
        on = self._on
        return PodFacts(
            host_ips=on.host_ips, pod_ips=self._pod_ips, allocatable=on.allocatable, services=on.variables.of(self.pod)
        )

    def _address(self) -> str:
        """Where the pod's ports are."""
        return next(iter(self._pod_ips or self._on.host_ips), "127.0.0.1")

    async def _make_sandbox(self, step: MakeSandbox) -> bool:
        """Volumes, devices, then the sandbox itself; returns whether it exists."""
        pod = self.pod
        try:
            if not await self._unless_ending(self._make_ready()):
                return False
            folder = self._on.volumes.pod_folder(pod.metadata.uid)
            parent = "" if self._on.groups is None else await self._on.groups.ensure(pod)
            spec = await self._on.specs.sandbox(
                pod, step.attempt, self.log_folder(), self._volumes or {}, folder, parent
            )
            await self._on.runtime.run_sandbox(spec)
            self._resizes.settle(pod)
        except MountFailure as error:
            self._failed("FailedMount", str(error))
            return False
        except RuntimeFailure as error:
            self._failed("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")
            return False
        except (ApiError, PrepareFailed) as error:
            self._failed("FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
            return False
        self._on.listing.stale()
        self._retry_s = _RETRY_FIRST_S
        return True

    async def _make_ready(self) -> None:
        """Prepare volumes and devices at the same time."""
        results = await asyncio.gather(
            self._set_up_volumes(), self._on.devices.prepare(self.pod), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _unless_ending(self, doing: Coroutine[Any, Any, None]) -> bool:
        """Do something that may take long, but abort it when the pod must end; returns whether it was done."""
        work, ends = asyncio.ensure_future(doing), asyncio.ensure_future(self._is_ending.wait())
        try:
            await asyncio.wait((work, ends), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self._woken.set()
                return False
            await work
            return True
        finally:
            for task in (work, ends):
                task.cancel()
            await asyncio.gather(work, ends, return_exceptions=True)

    async def _set_up_volumes(self) -> Mapping[str, Path]:
        self._volumes = await self._on.volumes.set_up(self.pod, self._facts())
        self._refresh_at = self._on.clock.seconds() + _REFRESH_S
        return self._volumes

    async def _keep_volumes(self) -> None:
        """Refresh volumes: their sources may change."""
        if self._volumes is None or self._on.clock.seconds() < self._refresh_at:
            return
        try:
            await self._set_up_volumes()
        except MountFailure as error:
            self._refresh_at = self._on.clock.seconds() + _REFRESH_S
            self._on.reports.tell(self.pod, "Warning", "FailedMount", str(error))

    def _failed(self, reason: str, note: str) -> None:
        self._on.reports.tell(self.pod, "Warning", reason, note)
        self._look_in(self._retry_s)
        self._retry_s = min(self._retry_s * 2, _RETRY_MAX_S)

    async def _start(self, step: Start, sandbox: str) -> None:
        """Create and start a container; a failure becomes its waiting state."""
        pod, name = self.pod, step.name
        container = pod.container(name)
        assert container is not None, f"pod {pod.key} has a container {name}"
        self._failing.pop(name, None)
        self._failing_graces.pop(name, None)
        self._started.discard(name)
        self._ready.discard(name)
        try:
            id_ = await self._create(container, step, sandbox)
            self._on.reports.tell(pod, "Normal", "Created", "Container created", name)
            if step.backoff is not None:
                self._backoffs[name] = step.backoff
            try:
                await self._on.runtime.start_container(id_)
            finally:
                self._on.listing.stale()
            self._on.reports.tell(pod, "Normal", "Started", "Container started", name)
        except RuntimeFailure as error:
            self._start_failed(container, step, error)
            return
        self._waiting.pop(name, None)
        await self._after_start(container, id_)

    async def _resize(self, step: Resize) -> bool:
        """Give a running container its allocated resources; a failure becomes the condition of the resize. Returns whether it has them."""
        container = self.pod.container(step.name)
        assert container is not None, f"pod {self.pod.key} has a container {step.name}"
        resources = resources_of(self.pod, container, self._facts())
        wanted = effective(container.resources, self.pod.spec.resources)
        try:
            await self._resizes.check_memory(self._on.runtime, step, wanted, resources.memory_limit_bytes)
            await self._on.runtime.update_container(step.id, resources)
        except RuntimeFailure as error:
            self._resize_failed(error)
            return False
        self._retry_s = _RETRY_FIRST_S
        self._resizes.done(step.id, wanted)
        return True

    async def _resize_pod(self, step: ResizePod) -> bool:
        """The same for the pod as a whole."""
        groups = self._on.groups
        assert groups is not None, "without groups, a pod is always settled"
        try:
            await (groups.grow if step.is_growth else groups.settle)(self.pod)
        except RuntimeFailure as error:
            self._resize_failed(error)
            return False
        if not step.is_growth:
            self._resizes.settle(self.pod)
        return True

    def _resize_failed(self, error: RuntimeFailure) -> None:
        self._resizes.fail(str(error), self.pod)
        self._look_in(self._retry_s)
        self._retry_s = min(self._retry_s * 2, _RETRY_MAX_S)

    async def _create(self, container: RunnableContainer, step: Start, sandbox: str) -> str:
        pod, runtime = self.pod, self._on.runtime
        image_id = await self._pull(container, container.image, container.image_pull_policy)
        images = {
            each.name: await self._pull(container, each.image.reference, each.image.pull_policy)
            for each in pod.spec.volumes
            if each.image is not None and any(mount.name == each.name for mount in container.volume_mounts)
        }
        volumes = self._volumes
        if volumes is None:
            try:
                volumes = await self._set_up_volumes()
            except MountFailure as error:
                raise RuntimeFailure("CreateContainerConfigError", str(error)) from error
        plugins = self._on.plugins
        try:
            devices = self._on.devices.cdi_devices(pod, container)
            plugged = await plugins.edits(pod, container) if plugins is not None else Edits()
        except (PrepareFailed, Refused) as error:
            raise RuntimeFailure("CreateContainerConfigError", str(error)) from error
        spec = await self._on.specs.make(
            pod,
            container,
            step,
            image_id=image_id,
            facts=self._facts(),
            volumes=volumes,
            images=images if self._on.pulls_images else {},
            folder=self._on.volumes.pod_folder(pod.metadata.uid),
            cdi_devices=devices,
            plugged=plugged,
        )
        made = await runtime.create_container(sandbox, spec)
        self._resizes.done(made, effective(container.resources, pod.spec.resources))
        return made

    async def _pull(self, container: RunnableContainer, image: str, policy: str) -> str:
        """Make sure that an image is present; returns its id."""
        pod, on = self.pod, self._on
        self._pulled[container.name] = image
        credentials = await on.specs.credentials(pod, image) if on.pulls_images else ()
        found = await on.runtime.ensure_image(image, policy, pod_name(pod), credentials)
        text = f'Container image "{image}" already present on machine and can be accessed by the pod'
        if not on.pulls_images:
            text = f'Container image "{image}" is not needed: runtime {on.runtime_name} runs what this machine has'
        on.reports.tell(pod, "Normal", "Pulled", text, container.name)
        return found

    def _start_failed(self, container: RunnableContainer, step: Start, error: RuntimeFailure) -> None:
        name, now = container.name, self._on.clock.seconds()
        before = self._backoffs.get(name)
        if before is None:
            delay = BACKOFF_FIRST_S
        else:
            # A restart has been counted already.
            delay = before.delay_s if before is step.backoff else min(before.delay_s * 2, BACKOFF_MAX_S)
        self._backoffs[name] = Backoff(delay_s=delay, since=now)
        self._waiting[name] = Waiting(reason=error.reason, message=str(error), until=now + delay)
        if error.reason == "ErrImagePull":
            note = f'Failed to pull image "{self._pulled[name]}": {error}'
            self._on.reports.tell(self.pod, "Warning", "Failed", note, name)
            # Users look for the back-off that follows.
            self._look_in(min(delay, _PULL_TOLD_S))
        else:
            self._on.reports.tell(self.pod, "Warning", "Failed", f"Error: {error}", name)
        self._look_in(delay)

    async def _after_start(self, container: RunnableContainer, id_: str) -> None:
        hook = container.lifecycle.post_start if container.lifecycle is not None else None
        if hook is None:
            return
        try:
            # A hook may take as long as it wants, but must not outlive its pod.
            await self._unless_ending(self._run_hook(container, id_, hook, _HOOK_S))
        except ActionFailure as error:
            self._on.reports.tell(
                self.pod, "Warning", "FailedPostStartHook", f"PostStartHook failed: {error}", container.name
            )
            self._failing[container.name] = "FailedPostStartHook"
            self._woken.set()

    async def _run_hook(self, container: RunnableContainer, id_: str, hook: Any, timeout_s: float) -> None:
        address = self._address()
        if hook.exec is not None:
            await self._on.actions.run_command(id_, hook.exec.command, timeout_s)
        elif hook.http_get is not None:
            await self._on.actions.request(hook.http_get, container, address, timeout_s, takes_any_status=True)
        elif hook.tcp_socket is not None:
            await self._on.actions.dial(hook.tcp_socket, container, address, timeout_s)
        elif hook.sleep is not None:
            await self._on.clock.sleep(min(hook.sleep.seconds, timeout_s))

    # --- stopping ---

    def _stop(self, step: Stop) -> None:
        """Stop a container in the background, unless a stop with an earlier deadline is under way."""
        due = self._on.clock.seconds() + step.grace_s
        if step.id in self._stops and self._stops[step.id] <= due:
            return
        if step.id not in self._stops:
            self._on.reports.tell(self.pod, "Normal", "Killing", step.message, step.name)
        self._stops[step.id] = due
        assert self._tasks is not None, "the worker runs"
        self._tasks.create_task(self._stop_container(step))

    async def _stop_container(self, step: Stop) -> None:
        container = self.pod.container(step.name)
        hook = container.lifecycle.pre_stop if container is not None and container.lifecycle is not None else None
        grace = step.grace_s
        if container is not None and hook is not None:
            began = self._on.clock.monotonic()
            try:
                async with asyncio.timeout(grace):
                    await self._run_hook(container, step.id, hook, grace)
            except (ActionFailure, TimeoutError) as error:
                text = f"PreStopHook failed: {error or 'timed out'}"
                self._on.reports.tell(self.pod, "Warning", "FailedPreStopHook", text, step.name)
            grace = max(grace - (self._on.clock.monotonic() - began), _HOOK_REST_S)
        try:
            await self._on.runtime.stop_container(step.id, grace)
        except RuntimeFailure as error:
            _log.warning("pod %s: container %s is not stopped: %s", self.pod.key, step.name, error)
            self._stops.pop(step.id, None)
            self._look_in(_RETRY_MAX_S)
        self._on.listing.stale()
        self._woken.set()

    async def _end(self, seen: Seen) -> bool:
        """End a pod stage by stage; returns whether nothing is left."""
        grace = grace_of(self.pod)
        for step in ending(self.pod, seen, grace if self._end_grace_s is None else min(grace, self._end_grace_s)):
            self._stop(step)
        if seen.running():
            await self._report(seen)
            return False
        if not self._is_final:
            try:
                if seen.sandbox:
                    await self._on.runtime.stop_sandbox(seen.sandbox)
                    self._on.listing.stale()
                await self._remove_group()
                await self._on.devices.unprepare(self.pod)
                await self._release()
            except (RuntimeFailure, ApiError, PrepareFailed) as error:
                self._failed("FailedToUnprepareDynamicResources", f"{error}")
                await self._report(seen)
                return False
            self._is_final = True
            self._on.admission.leave(self.pod)
            seen = await self._look()
        if not self._is_gone:
            if not await self._report(seen):
                self._look_in(_RETRY_FIRST_S)
                return False
            if self.pod.metadata.deletion_timestamp is None and not self._is_gone:
                return False
            if not await self._on.reports.delete(self.pod):
                self._look_in(_RETRY_FIRST_S)
                return False
        await self._clean_up()
        return True

    async def _clean_up(self) -> None:
        sandboxes, containers = await self._on.listing.of(self.pod.metadata.uid)
        for container in containers:
            await self._on.runtime.remove_container(container.id)
        for sandbox in sandboxes:
            await self._on.runtime.remove_sandbox(sandbox.id)
        self._on.listing.stale()
        # Before the folder, which says that the group is ours.
        await self._remove_group()
        # Their size is up to the containers.
        await asyncio.to_thread(self._remove_logs)
        await asyncio.to_thread(self._on.volumes.tear_down, self.pod.metadata.uid)

    async def _remove_group(self) -> None:
        """RuntimeFailure if something stays: processes of the pod may still use its devices."""
        if self._on.groups is None:
            return
        try:
            await self._on.groups.remove(self.pod.metadata.uid)
        except OSError as error:
            raise RuntimeFailure("KillPodError", f"control group of pod {self.pod.key}: {error}") from error

    def _remove_logs(self) -> None:
        try:
            remove_tree(self.log_folder())
        except OSError as error:
            _log.warning("pod %s: logs are not removed: %s", self.pod.key, error)

    # --- probes ---

    def _keep_probes(self, seen: Seen) -> None:
        running = {found[0].id: name for name, found in seen.records.items() if found[0].state == RUNNING}
        for id_ in [each for each in self._probes if each not in running]:
            self._probes.pop(id_)[1].cancel()
        if self._ends:
            for prober, _ in self._probes.values():
                prober.let_end()
        for id_, name in running.items():
            container = self.pod.container(name)
            if id_ in self._probes or container is None or self._ends:
                continue
            if container.readiness_probe is None:
                self._ready.add(name)
            if container.startup_probe is None:
                self._started.add(name)
            if container.startup_probe or container.liveness_probe or container.readiness_probe:
                prober = Prober(
                    self._on.actions,
                    self._on.clock,
                    self._on.ids,
                    container,
                    id_,
                    self._address(),
                    ProbeReports(changed=self._probe_changed, failed=self._probe_failed),
                    self._on.time_factor,
                )
                assert self._tasks is not None, "the worker runs"
                self._probes[id_] = (prober, self._tasks.create_task(prober.run()))

    def _probe_changed(self, answer: Answer) -> None:
        name = answer.container
        if answer.kind == READINESS:
            (self._ready.add if answer.success else self._ready.discard)(name)
        elif answer.kind == STARTUP and answer.success:
            self._started.add(name)
        elif not answer.success:
            word = "liveness" if answer.kind == LIVENESS else "startup"
            self._keep_grace(name, answer.kind)
            self._failing[name] = f"Container {name} failed {word} probe, will be restarted"
        self._woken.set()

    def _keep_grace(self, name: str, kind: str) -> None:
        """A probe may define the grace period of a container that fails it."""
        container = self.pod.container(name)
        probe = None
        if container is not None:
            probe = container.liveness_probe if kind == LIVENESS else container.startup_probe
        if probe is not None and probe.termination_grace_period_seconds is not None:
            self._failing_graces[name] = float(probe.termination_grace_period_seconds)

    def _probe_failed(self, name: str, kind: str, text: str) -> None:
        self._on.reports.tell(self.pod, "Warning", "Unhealthy", f"{kind} probe failed: {text}", name)

    # --- reporting ---

    def _report_backoffs(self, waiting: Mapping[str, Waiting]) -> None:
        for name, why in waiting.items():
            if why.reason == "CrashLoopBackOff" and self._told_backoffs.get(name) != why.until:
                self._told_backoffs[name] = why.until
                note = f"Back-off restarting failed container {name} in pod {pod_title(self.pod)}"
                self._on.reports.tell(self.pod, "Warning", "BackOff", note, name)
            elif why.reason == "ErrImagePull":
                note = f'Back-off pulling image "{self._pulled.get(name, "")}"'
                self._on.reports.tell(self.pod, "Normal", "BackOff", note, name)
                told = Waiting(reason="ImagePullBackOff", message=f"{note}: {why.message}", until=why.until)
                self._waiting[name] = told
                self._told_waiting = {**self._told_waiting, name: told}

    def _status(self, seen: Seen) -> dict[str, Any]:
        if (found := self._rejection) is not None:
            return rejected_status(self.pod, found.reason, found.message, self._on.clock.seconds())
        facts = Facts(
            now=self._on.clock.seconds(),
            host_ips=self._on.host_ips,
            pod_ips=self._pod_ips,
            runtime=self._on.runtime_name,
            waiting={} if self._ends else self._told_waiting,
            ready=frozenset(self._ready),
            is_final=self._is_final,
            reason=self._end_reason,
            message=self._end_message,
            device_health=self._device_health(),
            conditions=() if self._ends else self._resizes.conditions,
            resources=self._resizes.settled,
        )
        return pod_status(self.pod, seen, facts)

    def _device_health(self) -> Mapping[str, Sequence[Any]]:
        found = self._on.devices.health(self.pod)
        if self._on.plugins is None or not (plugged := self._on.plugins.health(self.pod)):
            return found
        return {name: [*plugged.get(name, ()), *found.get(name, ())] for name in (*found, *plugged)}

    async def _report_soon(self, seen: Seen) -> None:
        """Report in the background that the pod has arrived."""
        if self.pod.status.start_time is None and self._tasks is not None:
            self._tasks.create_task(self._report(seen))
            await asyncio.sleep(0)

    async def _report(self, seen: Seen) -> bool:
        """Write the status if it has changed; returns whether the API has it now."""
        async with self._reporting:
            if self._is_gone or self.pod.status.phase in _TERMINAL:
                return True
            status = self._status(seen)
            # Before the write: its event may arrive before its answer.
            before = self._written
            if is_same(status, before):
                return True
            try:
                written = await self._on.reports.write_status(self.pod, status)
            except ApiError as error:
                _log.warning("pod %s: status not written: %s", self.pod.key, error)
                self._look_in(_RETRY_FIRST_S)
                return False
            if written is None:
                return False
            self._on.terminations.note(before, status)
            self._take(written)
            return True

    def _take(self, written: Object) -> None:
        """Our own write is the newest known state, unless the watch was faster."""
        if written["metadata"].get("uid") != self.pod.metadata.uid:
            return
        if _is_newer(written, self.pod):
            deleted = self.pod.metadata.deletion_timestamp
            self._know(written)
            if deleted is None and self.pod.metadata.deletion_timestamp is not None:
                self._woken.set()


def _check_names(pod: RunnablePod) -> None:
    """Check every name that becomes part of a path. The API server validates them too, but the agent does not rely on that."""
    metadata = pod.metadata
    whose = f"pod {pod.key}: "
    named = [
        (metadata.uid, "metadata.uid"),
        (metadata.namespace, "metadata.namespace"),
        (metadata.name, "metadata.name"),
        *((each.name, "spec.volumes[].name") for each in pod.spec.volumes),
        *((each.name, "spec.containers[].name") for each in pod.containers()),
    ]
    for name, field in named:
        checked_name(name, whose + field)


def _is_newer(raw: Object, than: Pod) -> bool:
    """Whether a pod is in a later state. Versions are numbers: by contract since Kubernetes 1.35, and in practice before."""
    new, old = str(raw["metadata"].get("resourceVersion", "")), than.metadata.resource_version
    if new.isdigit() and old.isdigit():
        return int(new) > int(old)
    return new != old
