"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): what a configuration file may say, checked and made into what
the scheduler runs with.

Understood are the profiles, their plugins, weights and arguments, leader election, back-off and the connection. What
kube-scheduler needs and this scheduler does not (percentageOfNodesToScore, parallelism, rates of requests) is accepted and
ignored, which `notes` says. Ours beyond upstream is `policy` in a profile: pack, spread or first-fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from allot.client.leader import ElectionTimes
from allot.core.scheduling.backoff import BackoffTimes
from allot.core.scheduling.binding_conditions import BINDING_TIMEOUT_SECONDS
from allot.core.scheduling.podinfo import SCHEDULE_ANYWAY, Spread
from allot.core.scheduling.settings import Policy, ResourceWeight, Settings, ShapePoint, Strategy, Weights

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER = "default-scheduler"

T = TypeVar("T")


class BadConfiguration(ValueError):
    """A configuration that cannot be used; the text names the file, the field and the value."""


# --- what a file may contain ---


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Unknown fields are errors: a misspelt one would silently do nothing."""


class _ClientConnection(_Wire, frozen=True, kw_only=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0
    burst: int = 0


class _LeaderElection(_Wire, frozen=True, kw_only=True):
    leader_elect: bool = True
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class _Plugin(_Wire, frozen=True, kw_only=True):
    name: str = ""
    weight: int = 0


class _PluginSet(_Wire, frozen=True, kw_only=True):
    enabled: tuple[_Plugin, ...] = ()
    disabled: tuple[_Plugin, ...] = ()


class _Plugins(_Wire, frozen=True, kw_only=True):
    pre_enqueue: _PluginSet = _PluginSet()
    queue_sort: _PluginSet = _PluginSet()
    pre_filter: _PluginSet = _PluginSet()
    filter: _PluginSet = _PluginSet()
    post_filter: _PluginSet = _PluginSet()
    pre_score: _PluginSet = _PluginSet()
    score: _PluginSet = _PluginSet()
    reserve: _PluginSet = _PluginSet()
    permit: _PluginSet = _PluginSet()
    pre_bind: _PluginSet = _PluginSet()
    bind: _PluginSet = _PluginSet()
    post_bind: _PluginSet = _PluginSet()
    multi_point: _PluginSet = _PluginSet()


class _PluginConfig(_Wire, frozen=True, kw_only=True):
    name: str = ""
    args: Mapping[str, Any] = {}


class _Profile(_Wire, frozen=True, kw_only=True):
    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int | None = None
    plugins: _Plugins = _Plugins()
    plugin_config: tuple[_PluginConfig, ...] = ()
    policy: str = ""


class _File(_Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    parallelism: int | None = None
    leader_election: _LeaderElection | None = None
    client_connection: _ClientConnection = _ClientConnection()
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[_Profile, ...] = (_Profile(),)
    extenders: tuple[Any, ...] = ()
    delay_cache_until_active: bool | None = None


# --- what it comes to ---


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How the pods of one scheduler name are scheduled."""

    scheduler_name: str = DEFAULT_SCHEDULER
    settings: Settings = Settings()
    preempts: bool = True


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Whether and how one of several schedulers leads."""

    is_on: bool = True
    times: ElectionTimes = ElectionTimes()
    name: str = "kube-scheduler"
    namespace: str = "kube-system"


class SchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a scheduler is told."""

    profiles: tuple[Profile, ...] = (Profile(),)
    backoff: BackoffTimes = BackoffTimes()
    binding_timeout_s: float = BINDING_TIMEOUT_SECONDS
    election: Election = Election()
    kubeconfig: str = ""
    # What was accepted and does nothing.
    notes: tuple[str, ...] = ()

    def profile_of(self, scheduler_name: str) -> Profile:
        """The profile of a pod's scheduler name."""
        return next(profile for profile in self.profiles if profile.scheduler_name == scheduler_name)


# The plugins of kube-scheduler by name, with the weight that is theirs in `Weights`; None: it has no score.
_PLUGINS: Mapping[str, str | None] = {
    "PrioritySort": None,
    "SchedulingGates": None,
    "NodeUnschedulable": None,
    "NodeName": None,
    "TaintToleration": "taint_toleration",
    "NodeAffinity": "node_affinity",
    "NodePorts": None,
    "NodeResourcesFit": "node_resources_fit",
    "VolumeRestrictions": None,
    "NodeVolumeLimits": None,
    "VolumeBinding": None,
    "VolumeZone": None,
    "PodTopologySpread": "pod_topology_spread",
    "InterPodAffinity": "inter_pod_affinity",
    "DynamicResources": "dynamic_resources",
    "DefaultPreemption": None,
    "NodeResourcesBalancedAllocation": "balanced_allocation",
    "ImageLocality": "image_locality",
    "DefaultBinder": None,
    "GangScheduling": None,
    "NodeDeclaredFeatures": None,
    "PodGroupPodsCount": None,
    "DeferredPodScheduling": None,
    "TopologyPlacement": None,
}
# Without these nothing could be scheduled, or what is scheduled could not be relied on.
_NEEDED = frozenset({"PrioritySort", "DefaultBinder", "SchedulingGates", "DynamicResources"})


def parse_configuration(value: object, source: str) -> SchedulerConfiguration:
    """From what a YAML file contains. BadConfiguration if something is wrong; source names the file in it."""
    file = _typed(value, _File, source)
    if file.kind != KIND or file.api_version != API_VERSION:
        raise BadConfiguration(
            f"{source}: expected apiVersion {API_VERSION} and kind {KIND}, got {file.api_version!r} and {file.kind!r}"
        )
    if not 1 <= file.pod_initial_backoff_seconds <= file.pod_max_backoff_seconds:
        raise _bad(
            source,
            "podInitialBackoffSeconds",
            file.pod_initial_backoff_seconds,
            f"a number from 1 to podMaxBackoffSeconds ({file.pod_max_backoff_seconds})",
        )
    if not file.profiles:
        raise _bad(source, "profiles", [], "at least one")
    if file.extenders:
        raise _bad(source, "extenders", "...", "none: scheduler extenders are not supported")
    profiles: list[Profile] = []
    timeouts: set[float] = set()
    for index, profile in enumerate(file.profiles):
        where = f"profiles[{index}]"
        made, timeout = _profile(profile, source, where)
        if any(known.scheduler_name == made.scheduler_name for known in profiles):
            raise _bad(source, f"{where}.schedulerName", made.scheduler_name, "a name that no other profile has")
        profiles.append(made)
        timeouts.add(timeout)
    if len(timeouts) > 1:
        raise BadConfiguration(f"{source}: bindingTimeout must be the same in all profiles, got {sorted(timeouts)}")
    return SchedulerConfiguration(
        profiles=tuple(profiles),
        backoff=BackoffTimes(
            initial_s=float(file.pod_initial_backoff_seconds), max_s=float(file.pod_max_backoff_seconds)
        ),
        binding_timeout_s=timeouts.pop(),
        election=_election(file.leader_election or _LeaderElection(), source),
        kubeconfig=file.client_connection.kubeconfig,
        notes=tuple(_notes(file)),
    )


def _notes(file: _File) -> list[str]:
    ignored = {
        "percentageOfNodesToScore": file.percentage_of_nodes_to_score,
        "parallelism": file.parallelism,
        "clientConnection.qps": file.client_connection.qps or None,
        "clientConnection.burst": file.client_connection.burst or None,
    }
    for index, profile in enumerate(file.profiles):
        ignored[f"profiles[{index}].percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    return [
        f"{name}: {value} has no effect: every node is looked at"
        for name, value in ignored.items()
        if value is not None
    ]


# --- leader election ---


def _election(election: _LeaderElection, source: str) -> Election:
    if election.resource_lock != "leases":
        raise _bad(source, "leaderElection.resourceLock", election.resource_lock, "leases")
    durations = {
        name: duration_s(text, f"{source}: leaderElection.{name}")
        for name, text in (
            ("leaseDuration", election.lease_duration),
            ("renewDeadline", election.renew_deadline),
            ("retryPeriod", election.retry_period),
        )
    }
    try:
        times = ElectionTimes(
            lease_duration_s=int(durations["leaseDuration"]),
            renew_deadline_s=durations["renewDeadline"],
            retry_period_s=durations["retryPeriod"],
        )
    except ValueError as error:
        raise BadConfiguration(f"{source}: leaderElection: {error}") from None
    return Election(
        is_on=election.leader_elect, times=times, name=election.resource_name, namespace=election.resource_namespace
    )


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str, where: str) -> float:
    """Seconds from a duration as Go writes it: 10s, 1m30s, 500ms."""
    position, total = 0, 0.0
    for match in _DURATION.finditer(text):
        if match.start() != position:
            break
        total += float(match[1]) * _UNITS_S[match[2]]
        position = match.end()
    if text == "0":
        return 0.0
    if position != len(text) or not text:
        raise BadConfiguration(f"{where}: invalid value {text!r}: expected a duration such as 10s or 1m30s")
    return total


# --- profiles ---


def _profile(profile: _Profile, source: str, where: str) -> tuple[Profile, float]:
    arguments = _arguments(profile, source, where)
    settings = Settings()
    try:
        policy = Policy(profile.policy)
    except ValueError:
        names = ", ".join(sorted(known.value for known in Policy if known.value))
        raise _bad(source, f"{where}.policy", profile.policy, f"one of {names}") from None
    weights, disabled, off = _plugins(profile.plugins, source, where)
    fit = arguments.get("NodeResourcesFit")
    settings = msgspec.structs.replace(
        settings, weights=weights, disabled_filters=frozenset(disabled), policy=policy, **(fit or {})
    )
    for name in ("NodeResourcesBalancedAllocation", "InterPodAffinity", "PodTopologySpread"):
        settings = msgspec.structs.replace(settings, **arguments.get(name, {}))
    timeout = arguments.get("DynamicResources", {}).get("binding_timeout_s", BINDING_TIMEOUT_SECONDS)
    made = Profile(scheduler_name=profile.scheduler_name, settings=settings, preempts="DefaultPreemption" not in off)
    return made, timeout


def _plugins(plugins: _Plugins, source: str, where: str) -> tuple[Weights, set[str], set[str]]:
    """Weights of scores, plugins whose filters are off, and plugins that are off altogether."""
    weights: dict[str, int] = {}
    off: dict[str, set[str]] = {}
    for point in ("multi_point", "filter", "score", "post_filter", "pre_filter", "pre_enqueue"):
        field = f"{where}.plugins.{_camel(point)}"
        given: _PluginSet = getattr(plugins, point)
        enabled = {plugin.name for plugin in given.enabled}
        names: set[str] = set()
        for index, plugin in enumerate(given.disabled):
            if plugin.name == "*":
                names |= set(_PLUGINS) - _NEEDED
                continue
            _check_plugin(plugin.name, source, f"{field}.disabled[{index}].name")
            if plugin.name in _NEEDED and plugin.name not in enabled:
                raise _bad(source, f"{field}.disabled[{index}].name", plugin.name, "a plugin that can be done without")
            names.add(plugin.name)
        off[point] = names - enabled
        for index, plugin in enumerate(given.enabled):
            _check_plugin(plugin.name, source, f"{field}.enabled[{index}].name")
            weight = _PLUGINS[plugin.name]
            if plugin.weight and weight is not None and point in ("score", "multi_point"):
                if not 0 < plugin.weight <= 100:
                    raise _bad(source, f"{field}.enabled[{index}].weight", plugin.weight, "a number from 1 to 100")
                # What is said of scores alone counts more than what is said of all points.
                if point == "score" or weight not in weights:
                    weights[weight] = plugin.weight
    for name in off["multi_point"] | off["score"]:
        score = _PLUGINS[name]
        if score is not None:
            weights[score] = 0
    disabled = off["multi_point"] | off["filter"]
    return Weights(**weights), disabled, off["multi_point"] | off["post_filter"]


def _check_plugin(name: str, source: str, field: str) -> None:
    if name not in _PLUGINS:
        raise _bad(source, field, name, f"one of {', '.join(sorted(_PLUGINS))}")


def _arguments(profile: _Profile, source: str, where: str) -> dict[str, dict[str, Any]]:
    """Arguments of plugins, as far as they mean something here."""
    found: dict[str, dict[str, Any]] = {}
    for index, config in enumerate(profile.plugin_config):
        field = f"{where}.pluginConfig[{index}]"
        _check_plugin(config.name, source, f"{field}.name")
        if config.name in found:
            raise _bad(source, f"{field}.name", config.name, "arguments once per plugin")
        given = {key: value for key, value in config.args.items() if key not in ("apiVersion", "kind")}
        reader = _READERS.get(config.name)
        found[config.name] = reader(given, f"{source}: {field}.args") if reader is not None else {}
    return found


# --- arguments of plugins ---


class _Resource(_Wire, frozen=True, kw_only=True):
    name: str
    weight: int = 1


class _ShapePoint(_Wire, frozen=True, kw_only=True):
    utilization: int
    score: int


class _Ratio(_Wire, frozen=True, kw_only=True):
    shape: tuple[_ShapePoint, ...] = ()


class _ScoringStrategy(_Wire, frozen=True, kw_only=True):
    type: Strategy = Strategy.LEAST_ALLOCATED
    resources: tuple[_Resource, ...] = (_Resource(name="cpu"), _Resource(name="memory"))
    requested_to_capacity_ratio: _Ratio = _Ratio()


class _FitArgs(_Wire, frozen=True, kw_only=True):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: _ScoringStrategy = _ScoringStrategy()
    placement_scoring_strategy: Any = None


class _BalancedArgs(_Wire, frozen=True, kw_only=True):
    resources: tuple[_Resource, ...] = (_Resource(name="cpu"), _Resource(name="memory"))


class _AffinityArgs(_Wire, frozen=True, kw_only=True):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _Constraint(_Wire, frozen=True, kw_only=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    min_domains: int | None = None


class _SpreadArgs(_Wire, frozen=True, kw_only=True):
    defaulting_type: str = "System"
    default_constraints: tuple[_Constraint, ...] = ()


class _DynamicResourcesArgs(_Wire, frozen=True, kw_only=True):
    filter_timeout: str = "10s"
    binding_timeout: str = "600s"


def _fit(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = _typed(given, _FitArgs, where)
    strategy = args.scoring_strategy
    for resource in strategy.resources:
        if not 1 <= resource.weight <= 100:
            raise BadConfiguration(
                f"{where}: scoringStrategy.resources: invalid weight {resource.weight} of {resource.name}: "
                "expected a number from 1 to 100"
            )
    shape = strategy.requested_to_capacity_ratio.shape
    if strategy.type is Strategy.REQUESTED_TO_CAPACITY_RATIO and not shape:
        raise BadConfiguration(f"{where}: scoringStrategy.requestedToCapacityRatio.shape: expected at least one point")
    return {
        "ignored_resources": frozenset(args.ignored_resources),
        "ignored_resource_groups": frozenset(args.ignored_resource_groups),
        "strategy": strategy.type,
        "strategy_resources": tuple(ResourceWeight(each.name, each.weight) for each in strategy.resources),
        "strategy_shape": tuple(ShapePoint(point.utilization, point.score) for point in shape),
    }


def _balanced(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = _typed(given, _BalancedArgs, where)
    return {"balanced_resources": tuple(ResourceWeight(each.name, each.weight) for each in args.resources)}


def _affinity(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = _typed(given, _AffinityArgs, where)
    if not 0 <= args.hard_pod_affinity_weight <= 100:
        raise BadConfiguration(
            f"{where}: hardPodAffinityWeight: invalid value {args.hard_pod_affinity_weight}: expected 0 to 100"
        )
    return {
        "hard_pod_affinity_weight": args.hard_pod_affinity_weight,
        "ignore_preferred_terms_of_existing_pods": args.ignore_preferred_terms_of_existing_pods,
    }


def _spread(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = _typed(given, _SpreadArgs, where)
    if args.defaulting_type == "System":
        if args.default_constraints:
            raise BadConfiguration(f"{where}: defaultConstraints: expected none with defaultingType System")
        return {}
    if args.defaulting_type != "List":
        raise BadConfiguration(
            f"{where}: defaultingType: invalid value {args.defaulting_type!r}: expected System or List"
        )
    spreads: dict[bool, list[Spread]] = {True: [], False: []}
    for constraint in args.default_constraints:
        if constraint.max_skew < 1:
            raise BadConfiguration(f"{where}: maxSkew: invalid value {constraint.max_skew}: expected at least 1")
        made = Spread(constraint.topology_key, constraint.max_skew, None, constraint.min_domains or 1)
        spreads[constraint.when_unsatisfiable == SCHEDULE_ANYWAY].append(made)
    return {
        "default_spreads": tuple(spreads[True]),
        "default_hard_spreads": tuple(spreads[False]),
        "system_default_spreads": False,
    }


def _devices(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    args = _typed(given, _DynamicResourcesArgs, where)
    duration_s(args.filter_timeout, f"{where}: filterTimeout")
    timeout = duration_s(args.binding_timeout, f"{where}: bindingTimeout")
    if timeout < 1:
        raise BadConfiguration(f"{where}: bindingTimeout: invalid value {args.binding_timeout!r}: expected at least 1s")
    return {"binding_timeout_s": timeout}


_READERS = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "InterPodAffinity": _affinity,
    "PodTopologySpread": _spread,
    "DynamicResources": _devices,
}


# --- errors ---


def _typed(value: object, type_: type[T], source: str) -> T:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$").removeprefix(".")
        text = text[:1].lower() + text[1:]
        raise BadConfiguration(f"{source}: {field}: {text}" if field else f"{source}: {text}") from None


def _bad(source: str, field: str, value: object, expected: str) -> BadConfiguration:
    return BadConfiguration(f"{source}: {field}: invalid value {value!r}: expected {expected}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
