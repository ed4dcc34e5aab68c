"""The arithmetic of Deployments: how large each of their ReplicaSets should be.

A `Draft` is a ReplicaSet whose size and annotations are being decided; nothing is written until everything is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from allot.core.model.apps_v1 import DeploymentSpec, ReplicaSet, ReplicaSetStatus
from allot.core.model.meta import ObjectMeta
from allot.core.workloads.counts import scaled
from allot.core.workloads.replicaset import replicas_of
from allot.core.workloads.whole import Whole

_PREFIX = "deployment.kubernetes.io/"
REVISION = f"{_PREFIX}revision"
REVISION_HISTORY = f"{_PREFIX}revision-history"
DESIRED_REPLICAS = f"{_PREFIX}desired-replicas"
MAX_REPLICAS = f"{_PREFIX}max-replicas"
ROLLING_UPDATE = "RollingUpdate"
RECREATE = "Recreate"
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_INT64_DIGITS_MAX = 19


class Draft:
    """A ReplicaSet while decisions are made. whole is None for one to be created."""

    __slots__ = ("annotations", "metadata", "min_ready_seconds", "replicas", "status", "template_key", "whole")

    def __init__(
        self,
        metadata: ObjectMeta,
        replicas: int,
        status: ReplicaSetStatus,
        *,
        min_ready_seconds: int = 0,
        template_key: bytes = b"",
        whole: Whole[ReplicaSet] | None = None,
    ) -> None:
        self.metadata = metadata
        self.whole = whole
        self.template_key = template_key
        self.status = status
        self.replicas = replicas
        self.min_ready_seconds = min_ready_seconds
        self.annotations = dict(metadata.annotations)

    @classmethod
    def of(cls, replica_set: Whole[ReplicaSet], template_key: bytes) -> Draft:
        """The draft of an existing ReplicaSet."""
        value = replica_set.value
        return cls(
            value.metadata,
            replicas_of(value),
            value.status,
            min_ready_seconds=value.spec.min_ready_seconds,
            template_key=template_key,
            whole=replica_set,
        )

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def age(self) -> tuple[str, str]:
        """The sort key from oldest to newest."""
        return self.metadata.creation_timestamp or "", self.metadata.name

    @property
    def revision(self) -> int:
        """The revision of its template; 0 if it has none."""
        return number_in(self.annotations, REVISION) or 0

    @property
    def sure_available(self) -> int:
        """How many pods are certainly available. A status from before the last resize may count pods that are about to be
        deleted: Kubernetes trusts it, and can briefly fall below what a Deployment allows.
        """
        if self.metadata.generation > self.status.observed_generation:
            return 0
        return min(self.status.available_replicas, self.replicas)

    def set_size(self, replicas: int, spec: DeploymentSpec, *, force: bool = False) -> bool:
        """Set its size, or (force) only the annotations about how it was decided; returns whether the size changed."""
        is_other = replicas != self.replicas
        if is_other or force:
            self.replicas = replicas
            self.note_sizes(spec)
        return is_other

    def note_sizes(self, spec: DeploymentSpec) -> None:
        """Record what its size was based on."""
        wanted = wanted_replicas(spec)
        self.annotations[DESIRED_REPLICAS] = str(wanted)
        self.annotations[MAX_REPLICAS] = str(wanted + max_surge(spec))


def number_in(annotations: Mapping[str, str], name: str) -> int | None:
    """The number in an annotation; None if there is none, or if it exceeds 64 bits."""
    text = annotations.get(name, "")
    if not (text.isascii() and text.isdigit()) or len(text) > _INT64_DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= _INT64_MAX else None


def size_note(draft: Draft, name: str) -> int | None:
    """A number of replicas in an annotation."""
    number = number_in(draft.annotations, name)
    return number if number is not None and number <= _INT32_MAX else None


# --- what is wanted ---


def wanted_replicas(spec: DeploymentSpec) -> int:
    """The desired number of pods."""
    return 1 if spec.replicas is None else spec.replicas


def _fence_posts(spec: DeploymentSpec) -> tuple[int, int]:
    """Surge, rounded up, and unavailable, rounded down. At least one of them is not 0, or the update could never proceed."""
    rolling = spec.strategy.rolling_update
    if spec.strategy.type != ROLLING_UPDATE:
        return 0, 0
    wanted = wanted_replicas(spec)
    surge = scaled(rolling.max_surge if rolling is not None else None, wanted, round_up=True)
    unavailable = scaled(rolling.max_unavailable if rolling is not None else None, wanted, round_up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def max_surge(spec: DeploymentSpec) -> int:
    """How many pods there may be beyond the desired number."""
    return _fence_posts(spec)[0]


def max_unavailable(spec: DeploymentSpec) -> int:
    """How many of the desired pods may be unavailable."""
    wanted = wanted_replicas(spec)
    return min(_fence_posts(spec)[1], wanted)


# --- rolling ---


def new_size(spec: DeploymentSpec, new: int, total: int) -> int:
    """The allowed size of the new ReplicaSet, from its current size and the total."""
    wanted = wanted_replicas(spec)
    if spec.strategy.type != ROLLING_UPDATE:
        return wanted
    rolling = spec.strategy.rolling_update
    most = wanted + scaled(rolling.max_surge if rolling is not None else None, wanted, round_up=True)
    return new if total >= most else new + min(most - total, wanted - new)


def scale_down_old(spec: DeploymentSpec, new: Draft, old: Sequence[Draft]) -> bool:
    """Shrink old ReplicaSets as far as enough pods stay available: unhealthy pods first. Returns whether any shrinks."""
    old = sorted((each for each in old if each.replicas > 0), key=lambda each: each.age)
    least = wanted_replicas(spec) - max_unavailable(spec)
    total = new.replicas + sum(each.replicas for each in old)
    may_go = total - least - (new.replicas - new.sure_available)
    if not old or may_go <= 0:
        return False
    is_scaled = False
    for each in old:
        unhealthy = each.replicas - each.status.available_replicas
        count = min(may_go, unhealthy)
        if count > 0:
            is_scaled |= each.set_size(each.replicas - count, spec)
            may_go -= count
    may_go = new.sure_available + sum(each.sure_available for each in old) - least
    for each in old:
        count = min(may_go, each.replicas)
        if count > 0:
            is_scaled |= each.set_size(each.replicas - count, spec)
            may_go -= count
    return is_scaled


# --- scaling ---


def is_scaling(spec: DeploymentSpec, sets: Iterable[Draft]) -> bool:
    """Whether the desired number has changed since the ReplicaSets were sized."""
    wanted = wanted_replicas(spec)
    notes = (size_note(each, DESIRED_REPLICAS) for each in sets if each.replicas > 0)
    return any(note is not None and note != wanted for note in notes)


def scale(spec: DeploymentSpec, new: Draft | None, old: Sequence[Draft], replicas_before: int) -> None:
    """Distribute a changed number over all ReplicaSets. replicas_before: from the status."""
    wanted = wanted_replicas(spec)
    newest_first = sorted(old, key=lambda each: each.age, reverse=True)
    every = [*newest_first, *([new] if new is not None else [])]
    active = [each for each in every if each.replicas > 0]
    if not every:
        return
    if len(active) <= 1:
        (active[0] if active else new or newest_first[0]).set_size(wanted, spec)
    elif new is not None and _is_saturated(new, wanted):
        for each in active:
            if each is not new:
                each.set_size(0, spec)
    elif spec.strategy.type == ROLLING_UPDATE:
        _scale_proportionally(spec, active, replicas_before)


def _is_saturated(new: Draft, wanted: int) -> bool:
    return (
        new.replicas == wanted == new.status.available_replicas
        and number_in(new.annotations, DESIRED_REPLICAS) == wanted
    )


def _scale_proportionally(spec: DeploymentSpec, active: list[Draft], replicas_before: int) -> None:
    wanted = wanted_replicas(spec)
    allowed = wanted + max_surge(spec) if wanted > 0 else 0
    change = allowed - sum(each.replicas for each in active)
    if change > 0:
        # Largest first; of equal size, newer first.
        active.sort(key=lambda each: each.age, reverse=True)
    elif change < 0:
        active.sort(key=lambda each: each.age)
    if change:
        active.sort(key=lambda each: -each.replicas)
    sizes, rest = [], change
    for each in active:
        share = _share(spec, each, replicas_before) if rest else 0
        share = min(share, rest) if change > 0 else max(share, rest)
        sizes.append(each.replicas + share)
        rest -= share
    # The rounding remainder goes to the largest.
    sizes[0] = max(sizes[0] + rest, 0)
    for each, size in zip(active, sizes, strict=True):
        each.set_size(size, spec, force=True)


def _share(spec: DeploymentSpec, draft: Draft, replicas_before: int) -> int:
    """The change of a ReplicaSet that keeps its proportion."""
    wanted = wanted_replicas(spec)
    if wanted == 0:
        return -draft.replicas
    before = size_note(draft, MAX_REPLICAS) or replicas_before
    if before == 0:
        return 0
    scaled_size = draft.replicas * (wanted + max_surge(spec))
    # The nearest integer; halves round up.
    return (2 * scaled_size + before) // (2 * before) - draft.replicas
