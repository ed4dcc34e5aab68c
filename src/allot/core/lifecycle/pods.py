"""The node agent's next step for a pod: from the pod, the runtime's state, and the time.

Knows: the order of init containers, sidecars and containers, restart policies with their back-off, and termination. Does not know
how a container is started or stopped, or how it is reported (`pod_status`). The rules are the kubelet's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allot.core.lifecycle.resizing import differs, effective, must_restart
from allot.core.lifecycle.times import seconds_of
from allot.core.model.core_v1 import Container, Pod, ResourceRequirements
from allot.core.model.pods_v1 import RunnablePod

BACKOFF_FIRST_S = 10.0
BACKOFF_MAX_S = 300.0
# After running this long, a container's back-off is reset.
BACKOFF_FORGET_S = 2 * BACKOFF_MAX_S
CREATED, RUNNING, EXITED, UNKNOWN = "Created", "Running", "Exited", "Unknown"
DEADLINE_TEXT = "Pod was active on the node longer than the specified deadline"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A container of the runtime, in any state. Times are seconds since 1970, 0 if that has not happened."""

    id: str
    name: str
    attempt: int = 0
    state: str = UNKNOWN
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    image_id: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it will not run again."""
        return self.state == EXITED


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why a container does not run, and until when not to retry."""

    reason: str
    message: str = ""
    until: float = 0.0


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a container waits before it is restarted, and since when."""

    delay_s: float
    since: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The known state of a pod on its node."""

    # The ready sandbox; others only have to be stopped.
    sandbox: str = ""
    sandbox_attempt: int = -1
    old_sandboxes: tuple[str, ...] = ()
    # Per container, newest first.
    records: Mapping[str, tuple[Record, ...]] = {}
    # Containers whose startup probe and postStart hook are done.
    started: frozenset[str] = frozenset()
    # Containers that must be restarted, and why.
    failing: Mapping[str, str] = {}
    # Their grace periods, if different from the pod's.
    failing_graces: Mapping[str, float] = {}
    # Failed starts.
    waiting: Mapping[str, Waiting] = {}
    backoffs: Mapping[str, Backoff] = {}
    # By container id: its actual resources, and which were stopped to be restarted with others.
    actuated: Mapping[str, ResourceRequirements] = {}
    restarting: frozenset[str] = frozenset()
    # Whether the pod as a whole has the resources in its current spec.
    pod_is_settled: bool = True

    def newest(self, name: str) -> Record | None:
        """The newest container of a name."""
        found = self.records.get(name)
        return found[0] if found else None

    def running(self) -> tuple[Record, ...]:
        """All running containers."""
        return tuple(each for found in self.records.values() for each in found if each.state == RUNNING)


class MakeSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """Create what the containers share."""

    attempt: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Create and start a container. backoff: for its next restart."""

    name: str
    attempt: int
    backoff: Backoff | None = None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a container to stop; message: for the event."""

    id: str
    name: str
    grace_s: float
    message: str
    # Whether it is restarted with other resources, regardless of its restart policy.
    resizes: bool = False


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Give a running container the resources in its current spec."""

    id: str
    name: str


class ResizePod(msgspec.Struct, frozen=True, kw_only=True):
    """Give the pod as a whole the resources in its current spec. is_growth: only where that is more; before its containers grow."""

    is_growth: bool


Step = MakeSandbox | Start | Stop | Resize | ResizePod


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. ends: nothing is started anymore, because the pod has ended or must end."""

    steps: tuple[Step, ...] = ()
    waiting: Mapping[str, Waiting] = {}
    # When to check again if nothing happens, in seconds since 1970.
    look_at: float | None = None
    ends: bool = False


class _Plan:
    """A decision under construction."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.waiting: dict[str, Waiting] = {}
        self.look_at: float | None = None

    def look(self, at: float) -> None:
        self.look_at = at if self.look_at is None else min(self.look_at, at)

    def decision(self, *, ends: bool = False) -> Decision:
        return Decision(steps=tuple(self.steps), waiting=self.waiting, look_at=self.look_at, ends=ends)


def decide(pod: RunnablePod, seen: Seen, now: float) -> Decision:
    """The next steps of a pod that should run."""
    if is_overdue(pod, now) or is_over(pod, seen):
        return Decision(ends=True)
    plan = _Plan()
    deadline = _deadline(pod)
    if deadline is not None:
        plan.look(deadline)
    if not seen.sandbox:
        if seen.running():
            # What ran in a lost sandbox cannot continue.
            plan.steps += [_stop(pod, each, "Pod sandbox changed") for each in seen.running()]
        else:
            plan.steps.append(MakeSandbox(attempt=seen.sandbox_attempt + 1))
        return plan.decision()
    for name, why in sorted(seen.failing.items()):
        record = seen.newest(name)
        if record is not None and record.state == RUNNING:
            plan.steps.append(_stop(pod, record, why, seen.failing_graces.get(name)))
    _resize(pod, seen, plan)
    if not _initialize(pod, seen, plan, now):
        return plan.decision()
    for container in pod.spec.containers:
        record = seen.newest(container.name)
        if record is None or (record.state != RUNNING and _goes_on(pod, container, record, seen)):
            _start(pod, container, seen, plan, now)
    for container in pod.spec.ephemeral_containers:
        if seen.newest(container.name) is None:
            _start(pod, container, seen, plan, now)
    return plan.decision()


def _resize(pod: RunnablePod, seen: Seen, plan: _Plan) -> None:
    """Shrinking containers come first, so that there is always room for growing ones. The pod grows before them and shrinks after them."""
    found = []
    if not seen.pod_is_settled:
        plan.steps.append(ResizePod(is_growth=True))
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        record = seen.newest(container.name)
        running = seen.actuated.get(record.id) if record is not None and record.state == RUNNING else None
        wanted = effective(container.resources, pod.spec.resources)
        if record is None or running is None or not differs(wanted, running):
            continue
        if must_restart(container, wanted, running):
            stop = _stop(pod, record, f"Container {container.name} resize requires restart")
            plan.steps.append(msgspec.structs.replace(stop, resizes=True))
        else:
            grows = any(amount > running.limits.get(name, amount) for name, amount in wanted.limits.items())
            found.append((grows, Resize(id=record.id, name=container.name)))
    plan.steps += [step for _, step in sorted(found, key=lambda each: each[0])]
    # A container that is being restarted still has what it had.
    is_restarting = bool(seen.restarting) or any(isinstance(each, Stop) and each.resizes for each in plan.steps)
    if not seen.pod_is_settled and not is_restarting:
        plan.steps.append(ResizePod(is_growth=False))


def _initialize(pod: RunnablePod, seen: Seen, plan: _Plan, now: float) -> bool:
    """Start the next init container; returns whether the others may start."""
    has_begun = any(seen.newest(each.name) is not None for each in pod.spec.containers)
    for container in pod.spec.init_containers:
        record = seen.newest(container.name)
        if container.is_sidecar:
            if record is None or record.state != RUNNING:
                _start(pod, container, seen, plan, now)
                if not has_begun:
                    return False
            elif container.name not in seen.started and not has_begun:
                return False
            continue
        if has_begun:
            continue
        if record is not None and record.is_over and record.exit_code == 0:
            continue
        if record is None or record.state != RUNNING:
            _start(pod, container, seen, plan, now)
        return False
    return True


def _start(pod: RunnablePod, container: Container, seen: Seen, plan: _Plan, now: float) -> None:
    """Start a container unless it has to wait."""
    name = container.name
    failed = seen.waiting.get(name)
    if failed is not None and failed.until > now:
        plan.waiting[name] = failed
        plan.look(failed.until)
        return
    record = seen.newest(name)
    if record is None:
        plan.steps.append(Start(name=name, attempt=0))
        return
    # One that never ran is replaced under the same attempt.
    attempt = record.attempt + 1 if record.is_over else record.attempt
    backoff = seen.backoffs.get(name)
    ended = record.finished_at or record.created_at
    if record.id in seen.restarting:
        plan.steps.append(Start(name=name, attempt=attempt, backoff=backoff))
        return
    if backoff is not None and now - backoff.since > BACKOFF_FORGET_S:
        backoff = None
    if backoff is not None and record.is_over and now < ended + backoff.delay_s:
        text = f"back-off {_spell(backoff.delay_s)} restarting failed container={name} pod={pod_title(pod)}"
        plan.waiting[name] = Waiting(reason="CrashLoopBackOff", message=text, until=ended + backoff.delay_s)
        plan.look(ended + backoff.delay_s)
        return
    plan.steps.append(Start(name=name, attempt=attempt, backoff=_next(backoff, now) if record.is_over else backoff))


def _next(backoff: Backoff | None, now: float) -> Backoff:
    delay = BACKOFF_FIRST_S if backoff is None else min(backoff.delay_s * 2, BACKOFF_MAX_S)
    return Backoff(delay_s=delay, since=now)


def _spell(seconds: float) -> str:
    """Whole seconds in Go's duration format."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def pod_title(pod: Pod) -> str:
    """The kubelet's name for a pod in messages."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"


def restart_policy(pod: Pod, container: Container) -> str:
    """The container's own policy, or the pod's; with the pod's policy Always, init containers are not restarted after success."""
    if container.restart_policy:
        return container.restart_policy
    policy = pod.spec.restart_policy
    if policy == "Always" and any(each is container for each in pod.spec.init_containers):
        return "OnFailure"
    return policy


def restarts_after(pod: Pod, container: Container, exit_code: int) -> bool:
    """Whether an ended container restarts: by its rules, and otherwise by its policy."""
    if any(rule.action == "Restart" and rule.applies(exit_code) for rule in container.restart_policy_rules):
        return True
    policy = restart_policy(pod, container)
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _goes_on(pod: Pod, container: Container, record: Record, seen: Seen) -> bool:
    return record.id in seen.restarting or _restarts(pod, container, record)


def _restarts(pod: Pod, container: Container, record: Record) -> bool:
    return not record.is_over or restarts_after(pod, container, record.exit_code)


# --- the end ---


def is_over(pod: Pod, seen: Seen) -> bool:
    """Whether all containers have ended permanently, or initialization has failed permanently."""
    for container in pod.spec.init_containers:
        record = seen.newest(container.name)
        if container.is_sidecar or record is None:
            continue
        if record.is_over and record.exit_code != 0 and not _restarts(pod, container, record):
            return True
    if not pod.spec.containers:
        return False
    for container in pod.spec.containers:
        record = seen.newest(container.name)
        if record is None or not record.is_over or _goes_on(pod, container, record, seen):
            return False
    return True


def _deadline(pod: RunnablePod) -> float | None:
    if pod.spec.active_deadline_seconds is None or pod.status.start_time is None:
        return None
    return seconds_of(pod.status.start_time) + pod.spec.active_deadline_seconds


def is_overdue(pod: RunnablePod, now: float) -> bool:
    """Whether the pod has exceeded its deadline."""
    deadline = _deadline(pod)
    return deadline is not None and now >= deadline


def grace_of(pod: RunnablePod) -> float:
    """How long containers get to terminate."""
    grace = pod.metadata.deletion_grace_period_seconds
    if pod.metadata.deletion_timestamp is None or grace is None:
        grace = pod.spec.termination_grace_period_seconds
    # The kubelet grants at least a second, so that a deletion without grace takes the same code path.
    return float(max(grace, 1))


def ending(pod: RunnablePod, seen: Seen, grace_s: float) -> Sequence[Stop]:
    """Which containers to stop next: first all others, then sidecars one by one from the last to the first."""
    sidecars = [each.name for each in pod.spec.init_containers if each.is_sidecar]
    running = seen.running()
    first = [each for each in running if each.name not in sidecars]
    if first:
        return tuple(_stop(pod, each, f"Stopping container {each.name}", grace_s) for each in first)
    for name in reversed(sidecars):
        found = [each for each in running if each.name == name]
        if found:
            return tuple(_stop(pod, each, f"Stopping container {name}", grace_s) for each in found)
    return ()


def _stop(pod: RunnablePod, record: Record, message: str, grace_s: float | None = None) -> Stop:
    grace = float(max(pod.spec.termination_grace_period_seconds, 1)) if grace_s is None else grace_s
    return Stop(id=record.id, name=record.name, grace_s=grace, message=message)
