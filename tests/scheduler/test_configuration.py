"""KubeSchedulerConfiguration: what it comes to, and what is said about mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.scheduling.queueing.queue_order import PriorityOrder
from allot.core.scheduling.settings import Policy, ResourceWeight, ShapePoint, Strategy
from allot.scheduler import configuration
from allot.scheduler.configuration import SchedulerConfiguration, parse_configuration
from allot.scheduler.plugin_arguments import BadConfiguration, duration_s

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def parse(**fields: Any) -> SchedulerConfiguration:
    return parse_configuration({**HEAD, **fields}, "s.yaml")


def profile(**fields: Any) -> SchedulerConfiguration:
    return parse(profiles=[fields])


def arguments(name: str, **args: Any) -> SchedulerConfiguration:
    return profile(pluginConfig=[{"name": name, "args": {"apiVersion": "x", "kind": "y", **args}}])


def test_an_empty_file_is_the_default() -> None:
    assert parse() == SchedulerConfiguration()
    assert parse().profiles[0].settings.weights.taint_toleration == 3


def test_nodes_may_be_asked_for_on_behalf_of_all_pods() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    disk = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    added = arguments(
        "NodeAffinity",
        addedAffinity={
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": disk}],
        },
    )
    found = added.profiles[0].settings.added_affinity
    assert found is not None
    assert found.allows("n", {"zone": "a"}) and not found.allows("n", {})
    ((weight, matcher),) = found.preferred
    assert weight == 7 and matcher.matches("n", {"disk": ""})
    assert arguments("NodeAffinity").profiles[0].settings.added_affinity is None


def test_profiles_weights_and_policies_are_understood() -> None:
    made = parse(
        profiles=[
            {
                "schedulerName": "packer",
                "policy": "pack",
                "plugins": {
                    "score": {
                        "enabled": [{"name": "ImageLocality", "weight": 7}],
                        "disabled": [{"name": "PodTopologySpread"}],
                    },
                    "multiPoint": {"disabled": [{"name": "NodePorts"}, {"name": "DefaultPreemption"}]},
                    "filter": {"disabled": [{"name": "VolumeZone"}]},
                },
            },
            {"schedulerName": "other"},
        ]
    )
    packer, other = made.profiles
    assert packer.settings.policy is Policy.PACK
    assert (packer.settings.weights.image_locality, packer.settings.weights.pod_topology_spread) == (7, 0)
    assert {"NodePorts", "VolumeZone"} <= packer.settings.disabled_filters
    assert not packer.settings.preempts
    assert other.settings.policy is Policy.DEFAULT
    assert other.settings.preempts


def test_all_scores_can_be_switched_off_and_some_on_again() -> None:
    weights = (
        profile(
            plugins={
                "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 4}]},
            }
        )
        .profiles[0]
        .settings.weights
    )
    assert (weights.node_resources_fit, weights.image_locality, weights.taint_toleration) == (4, 0, 0)


def test_arguments_of_plugins_are_understood() -> None:
    assert arguments("DynamicResources", bindingTimeout="1m30s", filterTimeout="0s").binding_timeout_s == 90
    fit = (
        arguments(
            "NodeResourcesFit",
            ignoredResources=["example.com/foo"],
            scoringStrategy={
                "type": "RequestedToCapacityRatio",
                "resources": [{"name": "example.com/gpu", "weight": 3}],
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
                },
            },
        )
        .profiles[0]
        .settings
    )
    assert fit.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO
    assert fit.strategy_resources == (ResourceWeight("example.com/gpu", 3),)
    assert fit.strategy_shape == (ShapePoint(0, 0), ShapePoint(100, 10))
    assert fit.ignored_resources == {"example.com/foo"}
    affinity = arguments("InterPodAffinity", hardPodAffinityWeight=9).profiles[0].settings
    assert affinity.hard_pod_affinity_weight == 9
    spread = (
        arguments(
            "PodTopologySpread",
            defaultingType="List",
            defaultConstraints=[{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        )
        .profiles[0]
        .settings
    )
    assert spread.default_hard_spreads[0].topology_key == "zone"
    assert spread.default_spreads == ()
    assert arguments("DefaultPreemption", minCandidateNodesPercentage=10).profiles[0].settings.preempts


def test_leader_election_back_off_and_connection_are_understood() -> None:
    made = parse(
        leaderElection={"leaderElect": False, "leaseDuration": "30s", "renewDeadline": "20s", "resourceName": "mine"},
        podInitialBackoffSeconds=2,
        podMaxBackoffSeconds=20,
        clientConnection={"kubeconfig": "/etc/kubeconfig", "qps": 50, "burst": 100},
        percentageOfNodesToScore=10,
    )
    assert not made.election.is_on
    assert (made.election.times.lease_duration_s, made.election.name) == (30, "mine")
    assert (made.backoff.initial_s, made.backoff.max_s) == (2, 20)
    assert made.kubeconfig == "/etc/kubeconfig"
    assert [note.partition(":")[0] for note in made.notes] == [
        "percentageOfNodesToScore",
        "clientConnection.qps",
        "clientConnection.burst",
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "Other"}, "s.yaml: expected apiVersion kubescheduler.config.k8s.io/v1 and kind"),
        ({"profile": []}, "s.yaml: object contains unknown field `profile`"),
        ({"profiles": [{"schedulrName": "x"}]}, "s.yaml: profiles[0]: object contains unknown field `schedulrName`"),
        ({"profiles": []}, "s.yaml: profiles: invalid value []: expected at least one"),
        ({"profiles": [{}, {}]}, "s.yaml: profiles[1].schedulerName: invalid value 'default-scheduler'"),
        (
            {"profiles": [{"policy": "random"}]},
            "s.yaml: profiles[0].policy: invalid value 'random': expected one of first-fit, pack, spread",
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nope"}]}}}]},
            "s.yaml: profiles[0].plugins.score.enabled[0].name: invalid value 'Nope': expected one of ",
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 101}]}}}]},
            "profiles[0].plugins.score.enabled[0].weight: invalid value 101: expected a number from 1 to 100",
        ),
        (
            {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "DefaultBinder"}]}}}]},
            "profiles[0].plugins.multiPoint.disabled[0].name: invalid value 'DefaultBinder'",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": {}}}]}]},
            "profiles[0].pluginConfig[0].args: addedAffinity: expected terms that are required or preferred",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": {"required": {}}}}]}]},
            "profiles[0].pluginConfig[0].args: addedAffinity: object contains unknown field `required`",
        ),
        (
            {
                "profiles": [
                    {
                        "pluginConfig": [
                            {
                                "name": "NodeAffinity",
                                "args": {
                                    "addedAffinity": {
                                        "requiredDuringSchedulingIgnoredDuringExecution": {
                                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "X"}]}]
                                        }
                                    }
                                },
                            }
                        ]
                    }
                ]
            },
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"bindingTimeout": "0s"}}]}]},
            "profiles[0].pluginConfig[0].args: bindingTimeout: invalid value '0s': expected at least 1s",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "DynamicResources", "args": {"bindingTimeout": "soon"}}]}]},
            "invalid value 'soon': expected a duration such as 10s or 1m30s",
        ),
        (
            {
                "profiles": [
                    {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "X"}}}]}
                ]
            },
            "s.yaml: profiles[0].pluginConfig[0].args: scoringStrategy.type: invalid enum value 'X'",
        ),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: invalid value 0: expected a number from 1 to"),
        ({"podMaxBackoffSeconds": "10"}, "s.yaml: podMaxBackoffSeconds: expected `int`, got `str`"),
        ({"leaderElection": {"resourceLock": "endpoints"}}, "leaderElection.resourceLock: invalid value 'endpoints'"),
        ({"leaderElection": {"leaseDuration": "5s"}}, "leaderElection: lease duration 5 s must be longer than"),
        ({"extenders": [{"urlPrefix": "http://x"}]}, "extenders are not supported"),
        (
            {"profiles": [{"plugins": {"permit": {"enabled": [{"name": "Coscheduling"}]}}}]},
            "profiles[0].plugins.permit.enabled[0].name: invalid value 'Coscheduling': expected one of ",
        ),
        (
            {"profiles": [{"plugins": {"bind": {"disabled": [{"name": "DefaultBinder"}]}}}]},
            "profiles[0].plugins.bind.disabled[0].name: invalid value 'DefaultBinder'",
        ),
        (
            {"profiles": [{"plugins": {"queueSort": {"enabled": [{"name": "Coscheduling"}]}}}]},
            's.yaml: profiles[0].plugins.queueSort.enabled[0].name: QueueSortPlugin "Coscheduling" does not exist',
        ),
        (
            {"profiles": [{"plugins": {"queueSort": {"enabled": [{"name": "NodeName"}]}}}]},
            'queueSort.enabled[0].name: plugin "NodeName" does not extend QueueSortPlugin plugin',
        ),
        (
            {"profiles": [{"plugins": {"queueSort": {"enabled": [{"name": "PrioritySort"}] * 2}}}]},
            'queueSort.enabled[1].name: plugin "PrioritySort" already registered as "QueueSortPlugin"',
        ),
        (
            {"profiles": [{"schedulerName": "x", "plugins": {"queueSort": {"disabled": [{"name": "*"}]}}}]},
            'only one queue sort plugin required for profile with scheduler name "x", but got 0',
        ),
    ],
)
def test_mistakes_are_named_with_file_field_and_value(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadConfiguration) as raised:
        parse(**fields)
    assert expected in str(raised.value)


def test_the_order_of_the_queue_is_chosen_by_its_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def profile(name: str, *enabled: str, disabled: str = "*") -> dict[str, Any]:
        queue_sort = {"enabled": [{"name": each} for each in enabled], "disabled": [{"name": disabled}]}
        return {"schedulerName": name, "plugins": {"queueSort": queue_sort}}

    assert parse(profiles=[profile("a", "PrioritySort")]).queue_sort == "PrioritySort"
    assert parse(profiles=[profile("a", disabled="Other")]).queue_sort == "PrioritySort"
    monkeypatch.setattr(configuration, "QUEUE_ORDERS", {"PrioritySort": PriorityOrder, "FairShare": PriorityOrder})
    assert parse(profiles=[profile("a", "FairShare"), profile("b", "FairShare")]).queue_sort == "FairShare"
    with pytest.raises(BadConfiguration, match='name "a", but got 2'):
        parse(profiles=[profile("a", "FairShare", disabled="Other")])
    with pytest.raises(BadConfiguration) as raised:
        parse(profiles=[profile("a", "PrioritySort"), profile("b", "FairShare")])
    assert 'different queue sort plugins for profile "b": "FairShare", first: "PrioritySort"' in str(raised.value)


def test_switching_a_plugin_off_where_that_does_nothing_is_told() -> None:
    made = parse(profiles=[{"plugins": {"preFilter": {"disabled": [{"name": "NodePorts"}]}}}])
    assert made.notes == (
        "profiles[0].plugins.preFilter.disabled: NodePorts has no effect: plugins are off at multiPoint, filter, score "
        "or postFilter",
    )


def test_what_is_no_mapping_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="expected `object`, got `str`"):
        parse_configuration("text", "s.yaml")


def test_durations_are_read_as_go_writes_them() -> None:
    assert duration_s("1h2m3.5s", "x") == 3723.5
    assert duration_s("250ms", "x") == 0.25
    assert duration_s("0", "x") == 0
    for wrong in ("", "5", "s", "1s2", "-1s", "1 s"):
        with pytest.raises(BadConfiguration, match="x: invalid value"):
            duration_s(wrong, "x")
