"""What is computed once per pod, or once for all equal pods: requests, ports, selectors, terms, in a form ready for use.

Pods that agree in everything that filters and scores look at share one `Profile`. What claims a pod has is not part of
it: `device_fit` handles that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allot.core.model import core_v1
from allot.core.model.meta import LabelSelector
from allot.core.quantity import Quantity
from allot.core.selectors import (
    NodeMatcher,
    Operator,
    Requirement,
    Requirements,
    SelectorError,
    label_requirements,
    matches_if_valid,
    node_matcher,
)

# Address, protocol, port.
HostPort = tuple[str, str, int]
Amounts = Mapping[str, int]

# A container that asks for nothing still counts with this when nodes are scored.
_NONZERO_NANO = {"cpu": 100 * 10**6, "memory": 200 * 2**20 * 10**9}
_NANO = 10**9
_PROFILES_MAX = 4096
_RECENT_MAX = 8192
_NO_AMOUNTS: Amounts = {}
DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"


def is_scalar(resource: str) -> bool:
    """Whether a resource is not one that every node has: an extended one, huge pages, attachable volumes."""
    return "/" in resource or resource.startswith(("hugepages-", "attachable-volumes-"))


# --- terms ---


class PodTerm(msgspec.Struct, frozen=True):
    """Pods that are meant by an affinity term, and the node label that says what near means."""

    namespaces: frozenset[str]
    # None: only the namespaces that are named. Else also those whose labels match.
    namespace_selector: Requirements | None
    # None matches nothing.
    selector: Requirements | None
    topology_key: str

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Whether a pod of this namespace with these labels is meant."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)


class WeightedTerm(msgspec.Struct, frozen=True):
    """A preference to be near; away if the weight is negative."""

    term: PodTerm
    weight: int


class Spread(msgspec.Struct, frozen=True):
    """A topology spread constraint."""

    topology_key: str
    max_skew: int
    selector: Requirements | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


# --- profiles ---


class Profile:
    """What equal pods have in common."""

    __slots__ = (
        "affinity_terms",
        "anti_affinity_terms",
        "cpu",
        "disks",
        "hard_spreads",
        "host_ports",
        "image_count",
        "images",
        "is_best_effort",
        "key",
        "labels",
        "memory",
        "namespace",
        "node_names",
        "node_selector",
        "nonzero_cpu",
        "nonzero_memory",
        "owner",
        "preferred_nodes",
        "preferred_terms",
        "required_nodes",
        "scalars",
        "shape",
        "soft_spreads",
        "storage",
        "tolerations",
        "volume_claims",
        "wants_spread",
    )

    def __init__(self, pod: core_v1.Pod, key: bytes, shape: bytes = b"") -> None:
        spec = pod.spec
        self.key = key
        # Equal for pods that every node by itself treats alike: labels and owners do not matter for that.
        self.shape = shape
        self.namespace = pod.metadata.namespace
        self.labels = pod.metadata.labels
        self.owner = _controller(pod)
        self.tolerations = spec.tolerations
        self._set_requests(spec)
        self._set_nodes(spec)
        self._set_terms(spec.affinity)
        self._set_spreads(spec)
        running = [*spec.containers, *(container for container in spec.init_containers if container.is_sidecar)]
        self.host_ports: tuple[HostPort, ...] = tuple(
            (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
            for container in running
            for port in container.ports
            if port.host_port > 0
        )
        images = [container.image for container in (*spec.init_containers, *spec.containers)]
        images += [volume.image.reference for volume in spec.volumes if volume.image is not None]
        self.images = tuple(_with_tag(image) for image in images)
        self.image_count = len(images)
        # Namespace/name of volume claims, in the order of the volumes; those of ephemeral volumes have names of their own,
        # so pods with such volumes do not share a profile.
        self.volume_claims = tuple(
            f"{self.namespace}/{name}" for volume in spec.volumes if (name := claim_name(pod, volume)) is not None
        )
        self.disks = tuple(volume for volume in spec.volumes if _is_disk(volume))

    def _set_requests(self, spec: core_v1.PodSpec) -> None:
        total = _total(spec, {})
        self.cpu = _whole(total.get("cpu", 0), _NANO // 1000)
        self.memory = _whole(total.get("memory", 0))
        self.storage = _whole(total.get("ephemeral-storage", 0))
        self.scalars: Amounts = {
            name: _whole(nano) for name, nano in total.items() if is_scalar(name) and nano
        } or _NO_AMOUNTS
        nonzero = _total(spec, _NONZERO_NANO)
        self.nonzero_cpu = _whole(nonzero.get("cpu", 0), _NANO // 1000)
        self.nonzero_memory = _whole(nonzero.get("memory", 0))
        self.is_best_effort = not self.cpu and not self.memory

    def _set_nodes(self, spec: core_v1.PodSpec) -> None:
        self.node_selector = spec.node_selector
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
        self.required_nodes: NodeMatcher | None = None if required is None else node_matcher(required)
        # The only nodes that required terms name, if every term names some; None if any node may be meant.
        self.node_names: frozenset[str] | None = None if required is None else _named_nodes(required)
        self.preferred_nodes = preferences(affinity) if affinity is not None else ()

    def _set_terms(self, affinity: core_v1.Affinity | None) -> None:
        near = affinity.pod_affinity if affinity is not None else None
        away = affinity.pod_anti_affinity if affinity is not None else None
        self.affinity_terms: tuple[PodTerm, ...] = ()
        self.anti_affinity_terms: tuple[PodTerm, ...] = ()
        wishes: list[WeightedTerm] = []
        if near is not None:
            required = near.required_during_scheduling_ignored_during_execution
            self.affinity_terms = tuple(_pod_term(term, self.namespace) for term in required)
            for wish in near.preferred_during_scheduling_ignored_during_execution:
                wishes.append(WeightedTerm(_pod_term(wish.pod_affinity_term, self.namespace), wish.weight))
        if away is not None:
            required = away.required_during_scheduling_ignored_during_execution
            self.anti_affinity_terms = tuple(_pod_term(term, self.namespace) for term in required)
            for wish in away.preferred_during_scheduling_ignored_during_execution:
                wishes.append(WeightedTerm(_pod_term(wish.pod_affinity_term, self.namespace), -wish.weight))
        self.preferred_terms = tuple(wishes)

    def _set_spreads(self, spec: core_v1.PodSpec) -> None:
        constraints = spec.topology_spread_constraints
        self.hard_spreads = tuple(
            _spread(constraint, self.labels)
            for constraint in constraints
            if constraint.when_unsatisfiable == DO_NOT_SCHEDULE
        )
        self.soft_spreads = tuple(
            _spread(constraint, self.labels)
            for constraint in constraints
            if constraint.when_unsatisfiable == SCHEDULE_ANYWAY
        )
        # Without constraints of its own, a pod that belongs to a service or a controller gets the default ones.
        self.wants_spread = not constraints

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether node selector and required node affinity allow a node; a term that is wrong matches nothing."""
        for key, value in self.node_selector.items():
            if labels.get(key) != value:
                return False
        return self.required_nodes is None or matches_if_valid(self.required_nodes, name, labels)


def preferences(affinity: core_v1.NodeAffinity) -> tuple[tuple[int, NodeMatcher], ...]:
    """Preferred nodes, with weights; an empty preference matches none."""
    return tuple(
        (wish.weight, node_matcher(core_v1.NodeSelector(node_selector_terms=(wish.preference,))))
        for wish in affinity.preferred_during_scheduling_ignored_during_execution
        if wish.weight and (wish.preference.match_expressions or wish.preference.match_fields)
    )


class PodInfo:
    """A pod that is on a node, or will be."""

    __slots__ = (
        "cpu",
        "key",
        "memory",
        "node",
        "nonzero_cpu",
        "nonzero_memory",
        "pod",
        "profile",
        "scalars",
        "storage",
    )

    def __init__(
        self,
        pod: core_v1.Pod,
        profile: Profile,
        node: str,
        extra: Sequence[core_v1.NodeAllocatableResourceClaimStatus] = (),
    ) -> None:
        self.pod = pod
        self.key = pod_key(pod)
        self.profile = profile
        self.node = node
        self.cpu = profile.cpu
        self.memory = profile.memory
        self.storage = profile.storage
        self.scalars = profile.scalars
        self.nonzero_cpu = profile.nonzero_cpu
        self.nonzero_memory = profile.nonzero_memory
        if pod.status.container_statuses:
            self._raise(pod)
        if extra:
            self._add(extra)

    def _raise(self, pod: core_v1.Pod) -> None:
        """While a pod is resized, what it has counts as long as it is more than what it asks for."""
        got = _got(pod)
        if got is None:
            return
        cpu, memory = _whole(got.pop("cpu", 0), _NANO // 1000), _whole(got.pop("memory", 0))
        self.cpu, self.nonzero_cpu = max(self.cpu, cpu), max(self.nonzero_cpu, cpu)
        self.memory, self.nonzero_memory = max(self.memory, memory), max(self.nonzero_memory, memory)
        self.storage = max(self.storage, _whole(got.pop("ephemeral-storage", 0)))
        more = {name: _whole(nano) for name, nano in got.items() if is_scalar(name)}
        if any(amount > self.scalars.get(name, 0) for name, amount in more.items()):
            self.scalars = {
                name: max(self.scalars.get(name, 0), more.get(name, 0)) for name in {**self.scalars, **more}
            }

    def _add(self, extra: Sequence[core_v1.NodeAllocatableResourceClaimStatus]) -> None:
        """Devices that stand for node resources count as requests, unless the pod itself requests the resource: that covers everything in it."""
        whole = self.pod.spec.resources
        of_pod = whole.requests if whole is not None else {}
        more = {name: amount for name, amount in device_amounts(extra).items() if name not in of_pod}
        cpu, memory = more.pop("cpu", 0), more.pop("memory", 0)
        self.cpu += cpu
        self.nonzero_cpu += cpu
        self.memory += memory
        self.nonzero_memory += memory
        self.storage += more.pop("ephemeral-storage", 0)
        if more:
            self.scalars = {name: self.scalars.get(name, 0) + more.get(name, 0) for name in {**self.scalars, **more}}

    def counts_as(self, other: PodInfo) -> bool:
        """Whether nothing that decisions look at differs from another version of the pod."""
        return (
            self.node == other.node
            and self.profile is other.profile
            and self.cpu == other.cpu
            and self.memory == other.memory
            and self.storage == other.storage
            and self.scalars == other.scalars
            and self.priority == other.priority
            and self.is_terminating == other.is_terminating
        )

    @property
    def priority(self) -> int:
        """The pod's priority; 0 if it has none."""
        return self.pod.spec.priority or 0

    @property
    def is_terminating(self) -> bool:
        """Whether the pod is terminating."""
        return self.pod.metadata.deletion_timestamp is not None


def device_amounts(statuses: Iterable[core_v1.NodeAllocatableResourceClaimStatus]) -> dict[str, int]:
    """Node resources that a pod's claims account for: thousandths of cpu, whole numbers of everything else."""
    nano: dict[str, int] = {}
    for status in statuses:
        for amount in status.mapping:
            nano[amount.name] = nano.get(amount.name, 0) + (amount.quantity or Quantity.ZERO).nano
        for overhead in status.overhead:
            each = (overhead.per_container or Quantity.ZERO).nano * len(status.containers)
            nano[overhead.name] = nano.get(overhead.name, 0) + (overhead.per_pod or Quantity.ZERO).nano + each
    return {name: _whole(amount, _NANO // 1000 if name == "cpu" else _NANO) for name, amount in nano.items()}


def pod_key(pod: core_v1.Pod) -> str:
    """Identifies a pod, also among earlier or later pods of the same name."""
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"


class Profiles:
    """The profiles of pods, shared by equal ones; the oldest is dropped when there are too many."""

    __slots__ = ("_encode", "_profiles", "_recent", "made")

    def __init__(self) -> None:
        # Only to tell specs apart, so any faithful text is fine for quantities.
        self._encode = msgspec.msgpack.Encoder(enc_hook=str).encode
        self._profiles: dict[bytes, Profile] = {}
        # Of recently used pods, by identity: decisions ask about the same ones again and again.
        self._recent: dict[int, tuple[core_v1.Pod, Profile]] = {}
        self.made = 0

    def of(self, pod: core_v1.Pod) -> Profile:
        """The profile of a pod, regardless of its node."""
        known = self._recent.get(id(pod))
        if known is not None:
            # Its pod is kept with it, so no other object can have that identity.
            return known[1]
        spec, metadata = pod.spec, pod.metadata
        parts: list[object] = [
            [_container_parts(container) for container in spec.containers],
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.overhead,
        ]
        if spec.init_containers:
            parts.append([_container_parts(container) for container in spec.init_containers])
        if spec.resources is not None:
            parts.append(spec.resources.requests)
        volumes = [volume for volume in spec.volumes if _binds(volume)]
        if volumes:
            # Volume claims are known by namespace and name, those of ephemeral volumes by the name of the pod.
            parts += (volumes, metadata.namespace)
            if any(volume.ephemeral is not None for volume in volumes):
                parts.append(metadata.name)
        shape = self._encode(parts)
        owner = _controller(pod) if metadata.owner_references else None
        key = self._encode((shape, metadata.namespace, metadata.labels, owner))
        profile = self._profiles.get(key)
        if profile is None:
            if len(self._profiles) >= _PROFILES_MAX:
                del self._profiles[next(iter(self._profiles))]
            self.made += 1
            profile = self._profiles[key] = Profile(pod, key, shape)
        if len(self._recent) >= _RECENT_MAX:
            self._recent.clear()
        self._recent[id(pod)] = (pod, profile)
        return profile


def _container_parts(container: core_v1.Container) -> tuple[object, ...]:
    return container.image, container.resources.requests, container.ports, container.restart_policy


def _controller(pod: core_v1.Pod) -> tuple[str, str, str] | None:
    """apiVersion, kind and name of the controller that owns a pod."""
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return owner.api_version, owner.kind, owner.name
    return None


def claim_name(pod: core_v1.Pod, volume: core_v1.Volume) -> str | None:
    """The volume claim behind a volume, if there is one."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else None


def _binds(volume: core_v1.Volume) -> bool:
    """Whether a volume matters for the choice of a node. Others must not distinguish pods: the API server gives every pod one with
    a random name, for its token."""
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.image is not None
        or _is_disk(volume)
    )


def _is_disk(volume: core_v1.Volume) -> bool:
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )


def _with_tag(image: str) -> str:
    return f"{image}:latest" if image.rfind(":") <= image.rfind("/") else image


# --- requests ---


def _total(
    spec: core_v1.PodSpec, missing: Mapping[str, int], has: Mapping[str, Mapping[str, Quantity]] | None = None
) -> dict[str, int]:
    """The pod's requests in billionths. Containers and sidecars run together; other init containers run alone.

    missing: for containers without requests; has: by container, what counts instead of its requests.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _plus(total, _requests(container, missing, has))
    sidecars: dict[str, int] = {}
    initial: dict[str, int] = {}
    for container in spec.init_containers:
        amounts = _requests(container, missing, has)
        if container.is_sidecar:
            _plus(total, amounts)
            _plus(sidecars, amounts)
            _raise(initial, sidecars)
        else:
            _plus(amounts, sidecars)
            _raise(initial, amounts)
    _raise(total, initial)
    if spec.resources is not None:
        for name, amount in spec.resources.requests.items():
            if name in ("cpu", "memory") or name.startswith("hugepages-"):
                total[name] = amount.nano
    for name, amount in spec.overhead.items():
        total[name] = total.get(name, 0) + amount.nano
    return total


def _got(pod: core_v1.Pod) -> dict[str, int] | None:
    """What the containers have, in billionths, if that is more than what one of them asks for. Pod by pod as requests."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    wanted = {
        container.name: container.resources.requests for container in (*pod.spec.containers, *pod.spec.init_containers)
    }
    has: dict[str, Mapping[str, Quantity]] = {}
    grown = False
    for status in statuses:
        running = status.resources.requests if status.resources is not None else {}
        if not running and not status.allocated_resources:
            continue
        asked = wanted.get(status.name, {})
        got = {
            name: max(running.get(name, Quantity.ZERO), status.allocated_resources.get(name, Quantity.ZERO))
            for name in {**running, **status.allocated_resources}
        }
        has[status.name] = got
        grown = grown or any(amount > asked.get(name, Quantity.ZERO) for name, amount in got.items())
    return _total(pod.spec, {}, has) if grown else None


def _requests(
    container: core_v1.Container, missing: Mapping[str, int], has: Mapping[str, Mapping[str, Quantity]] | None
) -> dict[str, int]:
    requests = container.resources.requests
    if has is not None:
        requests = has.get(container.name, requests)
    return {**missing, **{name: amount.nano for name, amount in requests.items()}}


def _plus(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, nano in more.items():
        total[name] = total.get(name, 0) + nano


def _raise(total: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, nano in floor.items():
        if nano > total.get(name, -1):
            total[name] = nano


def _whole(nano: int, unit: int = _NANO) -> int:
    return -(-nano // unit)


# --- selectors ---


def _named_nodes(selector: core_v1.NodeSelector) -> frozenset[str] | None:
    """The nodes that the terms of a selector name, if each term names some."""
    found: frozenset[str] | None = None
    for term in selector.node_selector_terms:
        names: frozenset[str] | None = None
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == Operator.IN:
                names = frozenset(field.values) if names is None else names & frozenset(field.values)
        if names is None:
            return None
        found = names if found is None else found | names
    return found


def _requirements(selector: LabelSelector | None) -> Requirements | None:
    try:
        return label_requirements(selector)
    except SelectorError:
        return None


def _pod_term(term: core_v1.PodAffinityTerm, namespace: str) -> PodTerm:
    own = not term.namespaces and term.namespace_selector is None
    return PodTerm(
        frozenset((namespace,)) if own else frozenset(term.namespaces),
        _requirements(term.namespace_selector),
        _requirements(term.label_selector),
        term.topology_key,
    )


def _spread(constraint: core_v1.TopologySpreadConstraint, labels: Mapping[str, str]) -> Spread:
    selector = _requirements(constraint.label_selector)
    if selector is not None and constraint.match_label_keys:
        more = [
            Requirement(key, Operator.IN, frozenset((labels[key],)))
            for key in constraint.match_label_keys
            if key in labels
        ]
        selector = Requirements((*more, *selector.all))
    return Spread(
        constraint.topology_key,
        constraint.max_skew,
        selector,
        1 if constraint.min_domains is None else constraint.min_domains,
        constraint.node_affinity_policy in (None, "Honor"),
        constraint.node_taints_policy == "Honor",
    )
