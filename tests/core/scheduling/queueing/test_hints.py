"""Which events can help a refused pod, plugin by plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from allot.core.model import core_v1 as core
from allot.core.model.meta import LabelSelector, ObjectMeta
from allot.core.model.resource_v1 import DeviceClass, DeviceClassSpec, ResourceSlice
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.quantity import Quantity
from allot.core.scheduling.queueing.hints import RULES, ClusterEvent, EventResource, helps, may_help
from allot.core.scheduling.settings import AddedAffinity
from allot.core.selectors import node_matcher


class Facts:
    """Every claim is usable; pods ask for their overhead."""

    def claims_are_usable(self, pod: core.Pod) -> bool:
        return "broken" not in pod.metadata.labels

    def requests(self, pod: core.Pod) -> Mapping[str, Quantity]:
        return pod.spec.overhead

    def added_affinity(self, pod: core.Pod) -> AddedAffinity | None:
        terms = (
            core.NodeSelectorTerm(match_expressions=(core.NodeSelectorRequirement(key="own", operator="Exists"),)),
        )
        own = AddedAffinity(required=node_matcher(core.NodeSelector(node_selector_terms=terms)))
        return own if "added" in pod.metadata.labels else None


def said(plugin: str, resource: EventResource, pod: core.Pod, *, old: Any = None, new: Any = None) -> bool:
    state = new if new is not None else old
    namespace = state.metadata.namespace
    key = f"{namespace}/{state.metadata.name}" if namespace else state.metadata.name
    event = ClusterEvent(resource=resource, key=key, old=old, new=new)
    answer = helps(plugin, event, pod, Facts())
    # The first look at an event must never hide what would help.
    assert may_help(plugin, event) or not answer
    return answer


def pod(name: str = "p", labels: Mapping[str, str] | None = None, namespace: str = "ns", **spec: Any) -> core.Pod:
    metadata = ObjectMeta(name=name, namespace=namespace, labels=labels or {})
    return core.Pod(metadata=metadata, spec=core.PodSpec(**spec))


def node(
    labels: Mapping[str, str] | None = None,
    taints: tuple[core.Taint, ...] = (),
    unschedulable: bool = False,
    **resources: str,
) -> core.Node:
    return core.Node(
        metadata=ObjectMeta(name="n", labels=labels or {}),
        spec=core.NodeSpec(taints=taints, unschedulable=unschedulable),
        status=core.NodeStatus(
            allocatable={name.replace("_", "/"): Quantity.parse(text) for name, text in resources.items()}
        ),
    )


def asks(**resources: str) -> Mapping[str, Quantity]:
    return {name.replace("_", "/"): Quantity.parse(text) for name, text in resources.items()}


NO_SCHEDULE = core.Taint(key="k", value="v", effect="NoSchedule")


def test_node_resources_fit_hopes_for_room() -> None:
    waiting = pod(overhead=asks(cpu="2"))
    for_it, elsewhere = EventResource.NODE, EventResource.ASSIGNED_POD
    assert said("NodeResourcesFit", for_it, waiting, new=node(cpu="2"))
    assert not said("NodeResourcesFit", for_it, waiting, new=node(cpu="1"))
    assert said("NodeResourcesFit", for_it, waiting, old=node(cpu="2"), new=node(cpu="3"))
    assert said("NodeResourcesFit", for_it, waiting, old=node(cpu="2", pods="1"), new=node(cpu="2", pods="2"))
    assert not said("NodeResourcesFit", for_it, waiting, old=node(cpu="3"), new=node(cpu="2"))
    assert not said("NodeResourcesFit", for_it, waiting, old=node(cpu="2", memory="1"), new=node(cpu="2", memory="2"))
    assert not said("NodeResourcesFit", for_it, waiting, old=node(cpu="2"), new=node({"a": "b"}, cpu="2"))
    assert said("NodeResourcesFit", elsewhere, waiting, old=pod("other"))
    assert not said("NodeResourcesFit", elsewhere, waiting, new=pod("other"))
    larger, smaller = pod("other", overhead=asks(cpu="2")), pod("other", overhead=asks(cpu="1"))
    assert said("NodeResourcesFit", elsewhere, waiting, old=larger, new=smaller)
    assert not said("NodeResourcesFit", elsewhere, waiting, old=smaller, new=larger)


def test_node_resources_fit_hopes_for_a_class_that_stands_for_what_it_asks() -> None:
    waiting = pod(overhead=asks(**{"example.com_gpu": "1", "deviceclass.resource.kubernetes.io_nic": "1"}))

    def device_class(name: str, extended: str | None) -> DeviceClass:
        return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(extended_resource_name=extended))

    resource = EventResource.CLASS
    assert said("NodeResourcesFit", resource, waiting, new=device_class("gpu", "example.com/gpu"))
    assert said("NodeResourcesFit", resource, waiting, new=device_class("nic", None))
    assert not said("NodeResourcesFit", resource, waiting, new=device_class("gpu", "example.com/other"))
    same = device_class("gpu", "example.com/gpu")
    assert not said("NodeResourcesFit", resource, waiting, old=same, new=same)
    assert said("NodeResourcesFit", resource, waiting, old=device_class("gpu", None), new=same)


def test_node_affinity_hopes_for_labels() -> None:
    waiting = pod(node_selector={"zone": "a"})
    assert said("NodeAffinity", EventResource.NODE, waiting, new=node({"zone": "a"}))
    assert not said("NodeAffinity", EventResource.NODE, waiting, new=node({"zone": "b"}))
    assert said("NodeAffinity", EventResource.NODE, waiting, old=node({"zone": "b"}), new=node({"zone": "a"}))
    moved = node({"zone": "a", "more": "x"})
    assert not said("NodeAffinity", EventResource.NODE, waiting, old=node({"zone": "a"}), new=moved)
    required = core.NodeSelector(
        node_selector_terms=(
            core.NodeSelectorTerm(
                match_expressions=(core.NodeSelectorRequirement(key="zone", operator="In", values=("c",)),)
            ),
        )
    )
    affinity = core.Affinity(
        node_affinity=core.NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    )
    assert said("NodeAffinity", EventResource.NODE, pod(affinity=affinity), new=node({"zone": "c"}))
    # What the profile asks for all pods.
    told = pod(labels={"added": "yes"})
    assert said("NodeAffinity", EventResource.NODE, told, old=node({"zone": "c"}), new=node({"own": ""}))
    assert not said("NodeAffinity", EventResource.NODE, told, old=node({"zone": "c"}), new=node({"zone": "d"}))
    assert not said("NodeAffinity", EventResource.NODE, pod(affinity=affinity), new=node({"zone": "a"}))


def test_taints_and_cordons_hope_for_their_end() -> None:
    waiting = pod()
    tainted = node(taints=(NO_SCHEDULE,))
    assert said("TaintToleration", EventResource.NODE, waiting, old=tainted, new=node())
    assert not said("TaintToleration", EventResource.NODE, waiting, old=node(), new=tainted)
    assert not said("TaintToleration", EventResource.NODE, waiting, new=tainted)
    tolerates = pod(tolerations=(core.Toleration(key="k", value="v"),))
    assert said("TaintToleration", EventResource.NODE, tolerates, new=tainted)
    assert said("TaintToleration", EventResource.OWN_POD, waiting, old=waiting, new=tolerates)
    assert not said("TaintToleration", EventResource.OWN_POD, waiting, old=waiting, new=waiting)
    assert said("NodeUnschedulable", EventResource.NODE, waiting, old=node(unschedulable=True), new=node())
    assert not said("NodeUnschedulable", EventResource.NODE, waiting, new=node(unschedulable=True))
    assert not said("NodeUnschedulable", EventResource.NODE, waiting, old=node(), new=node({"a": "b"}))


def test_ports_hope_for_the_end_of_a_pod_that_has_the_same() -> None:
    def with_port(number: int, ip: str = "") -> core.Pod:
        port = core.ContainerPort(host_port=number, host_ip=ip, protocol="TCP")
        return pod("other", containers=(core.Container(name="c", ports=(port,)),))

    waiting = with_port(80, "10.0.0.1")
    assert said("NodePorts", EventResource.ASSIGNED_POD, waiting, old=with_port(80))
    assert said("NodePorts", EventResource.ASSIGNED_POD, waiting, old=with_port(80, "10.0.0.1"))
    assert not said("NodePorts", EventResource.ASSIGNED_POD, waiting, old=with_port(80, "10.0.0.2"))
    assert not said("NodePorts", EventResource.ASSIGNED_POD, waiting, old=with_port(81))
    assert not said("NodePorts", EventResource.ASSIGNED_POD, waiting, new=with_port(80))
    assert said("NodePorts", EventResource.NODE, waiting, new=node())


def term(value: str, **more: Any) -> core.PodAffinityTerm:
    return core.PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": value}), topology_key="zone", **more)


def near(*terms: core.PodAffinityTerm) -> core.Affinity:
    return core.Affinity(pod_affinity=core.PodAffinity(required_during_scheduling_ignored_during_execution=terms))


def away(*terms: core.PodAffinityTerm) -> core.Affinity:
    return core.Affinity(
        pod_anti_affinity=core.PodAntiAffinity(required_during_scheduling_ignored_during_execution=terms)
    )


def test_affinity_hopes_for_the_pods_that_it_names() -> None:
    waiting = pod(affinity=near(term("db")))
    resource = EventResource.ASSIGNED_POD
    assert said("InterPodAffinity", resource, waiting, new=pod("o", {"app": "db"}))
    assert not said("InterPodAffinity", resource, waiting, new=pod("o", {"app": "web"}))
    assert not said("InterPodAffinity", resource, waiting, new=pod("o", {"app": "db"}, namespace="other"))
    assert not said("InterPodAffinity", resource, waiting, old=pod("o", {"app": "db"}))
    assert said("InterPodAffinity", resource, waiting, old=pod("o", {"app": "web"}), new=pod("o", {"app": "db"}))
    everywhere = pod(affinity=near(term("db", namespace_selector=LabelSelector())))
    assert said("InterPodAffinity", resource, everywhere, new=pod("o", {"app": "db"}, namespace="other"))
    assert said("InterPodAffinity", EventResource.NODE, waiting, old=node(), new=node({"zone": "a"}))
    # For somebody else's terms, which the rule does not know.
    assert said("InterPodAffinity", EventResource.NODE, waiting, old=node(), new=node({"other": "a"}))
    assert said("InterPodAffinity", EventResource.NODE, waiting, old=node({"zone": "a"}))
    assert not said(
        "InterPodAffinity", EventResource.NODE, waiting, old=node({"a": "b"}), new=node({"a": "b"}, cpu="9")
    )


def test_anti_affinity_hopes_for_the_end_of_pods_on_either_side() -> None:
    resource = EventResource.ASSIGNED_POD
    assert said("InterPodAffinity", resource, pod(affinity=away(term("db"))), old=pod("o", {"app": "db"}))
    assert not said("InterPodAffinity", resource, pod(affinity=away(term("db"))), old=pod("o", {"app": "web"}))
    hostile = pod("o", affinity=away(term("me")))
    assert said("InterPodAffinity", resource, pod(labels={"app": "me"}), old=hostile)
    assert not said("InterPodAffinity", resource, pod(labels={"app": "me"}), new=hostile)


def test_affinity_hopes_for_labels_of_namespaces_that_terms_may_select() -> None:
    def after(waiting: core.Pod, name: str) -> bool:
        old, new = (core.Namespace(metadata=ObjectMeta(name=name, labels={"team": team})) for team in "ab")
        return said("InterPodAffinity", EventResource.NAMESPACE, waiting, old=old, new=new)

    by_team = term("db", namespace_selector=LabelSelector(match_labels={"team": "a"}))
    assert after(pod(affinity=near(by_team)), "other")
    assert after(pod(affinity=away(by_team)), "other")
    assert not after(pod(affinity=near(term("db"))), "other")
    # Terms of others may select the pod's own.
    assert after(pod(), "ns")


def test_spreading_hopes_for_pods_that_count_and_nodes_that_have_the_topology() -> None:
    constraint = core.TopologySpreadConstraint(
        max_skew=1, topology_key="zone", label_selector=LabelSelector(match_labels={"app": "web"})
    )
    waiting = pod(topology_spread_constraints=(constraint,))
    resource = EventResource.ASSIGNED_POD
    assert said("PodTopologySpread", resource, waiting, new=pod("o", {"app": "web"}))
    assert said("PodTopologySpread", resource, waiting, old=pod("o", {"app": "web"}))
    assert not said("PodTopologySpread", resource, waiting, old=pod("o", {"app": "db"}))
    assert not said("PodTopologySpread", resource, waiting, old=pod("o", {"app": "web"}, namespace="x"))
    assert said("PodTopologySpread", EventResource.NODE, waiting, new=node({"zone": "a"}))
    assert not said("PodTopologySpread", EventResource.NODE, waiting, new=node())
    assert said("PodTopologySpread", EventResource.NODE, waiting, old=node({"zone": "a"}))
    assert said("PodTopologySpread", EventResource.NODE, waiting, old=node({"zone": "a"}), new=node({"zone": "b"}))
    assert not said("PodTopologySpread", EventResource.NODE, waiting, old=node({"zone": "a"}), new=node({"zone": "a"}))


def test_devices_hope_for_slices_classes_and_nodes_but_not_for_their_end() -> None:
    waiting = pod()
    slice_ = ResourceSlice(metadata=ObjectMeta(name="s"))
    assert said("DynamicResources", EventResource.SLICE, waiting, new=slice_)
    assert said("DynamicResources", EventResource.SLICE, waiting, old=slice_, new=slice_)
    assert not said("DynamicResources", EventResource.SLICE, waiting, old=slice_)
    assert said("DynamicResources", EventResource.CLASS, waiting, new=DeviceClass(metadata=ObjectMeta(name="c")))
    assert said("DynamicResources", EventResource.NODE, waiting, new=node())
    assert said("DynamicResources", EventResource.NODE, waiting, old=node(), new=node({"a": "b"}))
    assert not said("DynamicResources", EventResource.NODE, waiting, old=node(), new=node(taints=(NO_SCHEDULE,)))
    assert not said("DynamicResources", EventResource.NODE, waiting, old=node())


def test_a_gang_hopes_for_its_own_pods_and_group() -> None:
    waiting = pod(scheduling_group=core.PodSchedulingGroup(pod_group_name="g"))
    mate = pod("mate", scheduling_group=core.PodSchedulingGroup(pod_group_name="g"))
    assert said("GangScheduling", EventResource.UNSCHEDULED_POD, waiting, new=mate)
    assert not said("GangScheduling", EventResource.UNSCHEDULED_POD, waiting, new=pod("other"))
    group = PodGroup(metadata=ObjectMeta(name="g", namespace="ns"))
    assert said("GangScheduling", EventResource.POD_GROUP, waiting, old=group, new=group)
    assert not said("GangScheduling", EventResource.POD_GROUP, waiting, old=group)


@pytest.mark.parametrize("plugin", sorted(filter(None, RULES)))
def test_no_plugin_hopes_for_what_it_did_not_ask_for(plugin: str) -> None:
    unasked = next(resource for resource in EventResource if resource not in RULES[plugin])
    assert not said(plugin, unasked, pod(), new=node())


def test_a_plugin_that_nobody_knows_hopes_for_everything() -> None:
    assert said("SomebodyElses", EventResource.NODE, pod(), new=node())
