"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): reads and checks a configuration file, and builds the settings that
the scheduler runs with.

Supports profiles, their plugins, weights and arguments, leader election, back-off and the connection. What
kube-scheduler needs and this scheduler does not (percentageOfNodesToScore, parallelism, rates of requests) is accepted and
ignored, and listed in `notes`. An extension is `policy` in a profile: pack, spread or first-fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.client.leader import ElectionTimes
from allot.core.scheduling.devices.binding_conditions import BINDING_TIMEOUT_SECONDS
from allot.core.scheduling.queueing.backoff import BackoffTimes
from allot.core.scheduling.queueing.queue_order import PRIORITY_SORT, QUEUE_ORDERS
from allot.core.scheduling.settings import Policy, Settings, Weights
from allot.scheduler.plugin_arguments import READERS, BadConfiguration, Wire, duration_s, typed

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER = "default-scheduler"


# --- what a file may contain ---


class _ClientConnection(Wire, frozen=True, kw_only=True):
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0
    burst: int = 0


class _LeaderElection(Wire, frozen=True, kw_only=True):
    leader_elect: bool = True
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class _Plugin(Wire, frozen=True, kw_only=True):
    name: str = ""
    weight: int = 0


class _PluginSet(Wire, frozen=True, kw_only=True):
    enabled: tuple[_Plugin, ...] = ()
    disabled: tuple[_Plugin, ...] = ()


class _Plugins(Wire, frozen=True, kw_only=True):
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


class _PluginConfig(Wire, frozen=True, kw_only=True):
    name: str = ""
    args: Mapping[str, Any] = {}


class _Profile(Wire, frozen=True, kw_only=True):
    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int | None = None
    plugins: _Plugins = _Plugins()
    plugin_config: tuple[_PluginConfig, ...] = ()
    policy: str = ""


class _File(Wire, frozen=True, kw_only=True):
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


# --- the resulting settings ---


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How the pods of one scheduler name are scheduled."""

    scheduler_name: str = DEFAULT_SCHEDULER
    settings: Settings = Settings()


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """Whether and how one of several schedulers leads."""

    is_on: bool = True
    times: ElectionTimes = ElectionTimes()
    name: str = "kube-scheduler"
    namespace: str = "kube-system"


class SchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a scheduler."""

    profiles: tuple[Profile, ...] = (Profile(),)
    backoff: BackoffTimes = BackoffTimes()
    binding_timeout_s: float = BINDING_TIMEOUT_SECONDS
    # Which pod is next (`core.scheduling.QUEUE_ORDERS`): one queue holds the pods of all profiles.
    queue_sort: str = PRIORITY_SORT
    election: Election = Election()
    kubeconfig: str = ""
    # Settings that are accepted but have no effect.
    notes: tuple[str, ...] = ()


# The plugins of kube-scheduler by name, with their field in `Weights`; None: it has no score.
_PLUGINS: Mapping[str, str | None] = {
    PRIORITY_SORT: None,
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
# Without these, nothing could be scheduled, or not reliably.
_NEEDED = frozenset({PRIORITY_SORT, "DefaultBinder", "SchedulingGates", "DynamicResources"})
# Plugins have no separate parts here: one is off as a whole, or as a filter, as a score, or for preemption.
_POINTS_WITHOUT_EFFECT = (
    *("pre_enqueue", "pre_filter", "pre_score", "reserve", "permit", "pre_bind", "bind", "post_bind"),
)


def parse_configuration(value: object, source: str) -> SchedulerConfiguration:
    """Parse the content of a YAML file. BadConfiguration if it is invalid; source: the file name for that message."""
    file = typed(value, _File, source)
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
    orders: list[str] = []
    for index, profile in enumerate(file.profiles):
        where = f"profiles[{index}]"
        made, timeout = _profile(profile, source, where)
        if any(known.scheduler_name == made.scheduler_name for known in profiles):
            raise _bad(source, f"{where}.schedulerName", made.scheduler_name, "a name that no other profile has")
        profiles.append(made)
        timeouts.add(timeout)
        orders.append(_queue_sort(profile, source, where))
        if orders[-1] != orders[0]:
            raise BadConfiguration(
                f'{source}: {where}.plugins.queueSort: different queue sort plugins for profile "{made.scheduler_name}": '
                f'"{orders[-1]}", first: "{orders[0]}"'
            )
    if len(timeouts) > 1:
        raise BadConfiguration(f"{source}: bindingTimeout must be the same in all profiles, got {sorted(timeouts)}")
    return SchedulerConfiguration(
        profiles=tuple(profiles),
        backoff=BackoffTimes(
            initial_s=float(file.pod_initial_backoff_seconds), max_s=float(file.pod_max_backoff_seconds)
        ),
        binding_timeout_s=timeouts.pop(),
        queue_sort=orders[0],
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
    notes = [
        f"{name}: {value} has no effect: every node is considered"
        for name, value in ignored.items()
        if value is not None
    ]
    for index, profile in enumerate(file.profiles):
        for point in _POINTS_WITHOUT_EFFECT:
            given: _PluginSet = getattr(profile.plugins, point)
            names = ", ".join(plugin.name for plugin in given.disabled)
            if names:
                field = f"profiles[{index}].plugins.{_camel(point)}.disabled"
                notes.append(
                    f"{field}: {names} has no effect: plugins are off at multiPoint, filter, score or postFilter"
                )
    return notes


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
        settings,
        weights=weights,
        disabled_filters=frozenset(disabled),
        policy=policy,
        preempts="DefaultPreemption" not in off,
        **(fit or {}),
    )
    for name in ("NodeResourcesBalancedAllocation", "NodeAffinity", "InterPodAffinity", "PodTopologySpread"):
        settings = msgspec.structs.replace(settings, **arguments.get(name, {}))
    timeout = arguments.get("DynamicResources", {}).get("binding_timeout_s", BINDING_TIMEOUT_SECONDS)
    made = Profile(scheduler_name=profile.scheduler_name, settings=settings)
    return made, timeout


def _plugins(plugins: _Plugins, source: str, where: str) -> tuple[Weights, set[str], set[str]]:
    """Weights of scores, plugins whose filters are off, and plugins that are off altogether."""
    weights: dict[str, int] = {}
    off: dict[str, set[str]] = {}
    for point in ("multi_point", "filter", "score", "post_filter", *_POINTS_WITHOUT_EFFECT):
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
                # Settings for scores alone override those for all extension points.
                if point == "score" or weight not in weights:
                    weights[weight] = plugin.weight
    for name in off["multi_point"] | off["score"]:
        score = _PLUGINS[name]
        if score is not None:
            weights[score] = 0
    disabled = off["multi_point"] | off["filter"]
    return Weights(**weights), disabled, off["multi_point"] | off["post_filter"]


def _queue_sort(profile: _Profile, source: str, where: str) -> str:
    """The one plugin that determines which pod is next. Refused in kube-scheduler's words."""
    field, given = f"{where}.plugins.queueSort", profile.plugins.queue_sort
    off = {plugin.name for plugin in given.disabled}
    names = [] if off & {"*", PRIORITY_SORT} else [PRIORITY_SORT]
    for index, plugin in enumerate(given.enabled):
        at, name = f"{source}: {field}.enabled[{index}].name", plugin.name
        if name not in QUEUE_ORDERS:
            is_known = name in _PLUGINS
            text = (
                f'plugin "{name}" does not extend QueueSortPlugin plugin'
                if is_known
                else f'QueueSortPlugin "{name}" does not exist'
            )
            raise BadConfiguration(f"{at}: {text}")
        if any(name == other.name for other in given.enabled[:index]):
            raise BadConfiguration(f'{at}: plugin "{name}" already registered as "QueueSortPlugin"')
        if name not in names:
            names.append(name)
    if len(names) != 1:
        text = "only one queue sort plugin required for profile with scheduler name"
        raise BadConfiguration(f'{source}: {field}: {text} "{profile.scheduler_name}", but got {len(names)}')
    return names[0]


def _check_plugin(name: str, source: str, field: str) -> None:
    if name not in _PLUGINS:
        raise _bad(source, field, name, f"one of {', '.join(sorted(_PLUGINS))}")


def _arguments(profile: _Profile, source: str, where: str) -> dict[str, dict[str, Any]]:
    """Arguments of plugins, as far as they apply here."""
    found: dict[str, dict[str, Any]] = {}
    for index, config in enumerate(profile.plugin_config):
        field = f"{where}.pluginConfig[{index}]"
        _check_plugin(config.name, source, f"{field}.name")
        if config.name in found:
            raise _bad(source, f"{field}.name", config.name, "arguments once per plugin")
        given = {key: value for key, value in config.args.items() if key not in ("apiVersion", "kind")}
        reader = READERS.get(config.name)
        found[config.name] = reader(given, f"{source}: {field}.args") if reader is not None else {}
    return found


# --- errors ---


def _bad(source: str, field: str, value: object, expected: str) -> BadConfiguration:
    return BadConfiguration(f"{source}: {field}: invalid value {value!r}: expected {expected}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
