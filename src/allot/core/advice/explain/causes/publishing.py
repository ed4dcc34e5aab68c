"""Causes in what drivers publish: nothing at all, nothing within reach, nothing in the class."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.causes import driver_pods, states
from allot.core.advice.explain.causes.node_groups import EmptyGroup, empty_group
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.selectors import SENTENCES_MAX, class_selectors
from allot.core.advice.explain.causes.silent import silent
from allot.core.advice.explain.causes.unreached import nothing_reached
from allot.core.advice.explain.devices import (
    Wanted,
    expected_drivers,
)
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis
from allot.core.advice.explain.nodes import selects_node
from allot.core.advice.explain.remedies import drivers, selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.rewrites import similar_driver
from allot.core.advice.explain.wording import count, named
from allot.core.explain import Obstacle, numbered
from allot.core.model import resource_v1 as api

_ADVICE_MAX = 2


def nothing_published(placing: Placing, wanted: Wanted) -> Diagnosis:
    what_if = placing.what_if
    slices = what_if.all(api.ResourceSlice)
    ignored = [
        each
        for each in slices
        if each.spec.devices and (each.spec.shared_counters or each.spec.per_device_node_selection)
    ]
    if slices and ignored and "DRAPartitionableDevices" not in what_if.gates:
        text = "its devices draw on shared counters, and feature gate DRAPartitionableDevices is disabled"
        candidates = drivers.gate(what_if, "DRAPartitionableDevices")
        return Diagnosis(reason=Reason.FEATURE, text=text, candidates=tuple(candidates))
    expected = expected_drivers(what_if.get(api.DeviceClass, wanted.class_name))
    return nothing_reached(placing, expected) or _no_driver(placing, wanted, slices, expected)


def _no_driver(
    placing: Placing, wanted: Wanted, slices: Sequence[api.ResourceSlice], expected: Sequence[str]
) -> Diagnosis:
    """The drivers whose devices are expected have published none for the nodes of the cluster."""
    driver = named("driver", expected) if expected else "the driver of the devices"
    number = "all devices" if wanted.leaf.all_devices else count(wanted.leaf.count, "device")
    need = f"{placing.request_name(wanted)} needs {number} of class {wanted.class_name}"
    own = [each for each in slices if not expected or each.spec.driver in expected]
    candidates: list[Candidate] = []
    advice = [f"install {driver} on the nodes that have the hardware", "add a node that has the devices"]
    failing = [each for driver_name in expected for each in driver_pods.failing(placing.what_if, driver_name)]
    if not failing:
        # Devices of no node are published by a controller.
        failing = [each for name in expected for each in driver_pods.failing(placing.what_if, name, controllers=True)]
    if not failing:
        failing = [each for name in expected if (each := driver_pods.not_made(placing.what_if, name)) is not None]
    group = _no_hardware(placing, expected)
    if group is not None:
        text = f"{need}, but no node has the hardware: {group.text}"
        return Diagnosis(reason=Reason.NO_DRIVER, text=text, advice=(group.advice,))
    if not failing:
        failing = [each for name in expected for each in silent(placing.what_if, name)]
    fails = driver_pods.failing_text(failing)
    if not own:
        no_slices = "there are no ResourceSlices" + (f" of {driver}" if slices or fails else "")
        absent = f"{'it' if slices else driver} runs on no node"
        text = f"{need}, but {no_slices}: {fails or absent}"
    elif not any(slice_.spec.devices for slice_ in own):
        publishers = sorted({each.spec.driver for each in own})
        text = f"{need}, but the ResourceSlices of {named('driver', publishers)} have no devices in them"
    else:
        names = sorted({slice_.spec.node_name for slice_ in own if slice_.spec.devices and slice_.spec.node_name})
        text = f"{need}, but its devices are published for {named('node', names)}, which the cluster does not have"
        candidates += drivers.renamed_nodes(placing.what_if, own)
    if fails:
        advice = list(dict.fromkeys(each.advice for each in failing))[:_ADVICE_MAX]
    return Diagnosis(reason=Reason.NO_DRIVER, text=text, candidates=tuple(candidates), advice=tuple(advice))


def _no_hardware(placing: Placing, expected: Sequence[str]) -> EmptyGroup | None:
    """The group of nodes that would have the devices, if it is empty, and no other node looks as if it had some."""
    nodes_there = [info.node for info in placing.what_if.cluster.nodes.values()]
    if any(map(driver_pods.has_device_words, nodes_there)):
        return None
    return empty_group(placing.what_if, placing.pod, expected)


def nothing_in_class(placing: Placing, wanted: Wanted) -> Diagnosis:
    what_if = placing.what_if
    class_ = what_if.get(api.DeviceClass, wanted.class_name)
    problem, candidates = class_selectors(placing, class_, ())
    expected = expected_drivers(class_)
    slices = what_if.all(api.ResourceSlice)
    if expected and not any(_is_on_a_node(placing, each) for each in slices if each.spec.driver in expected):
        unreached = nothing_reached(placing, expected)
        if unreached is not None:
            return unreached
        if all(similar_driver(driver, placing.published) is None for driver in expected):
            # The name is not a misspelling of another driver.
            return _no_driver(placing, wanted, slices, expected)
    if problem:
        text = f"DeviceClass {wanted.class_name} {problem}"
    else:
        tallies = wanted.found.of(Obstacle.NOT_IN_CLASS)
        why = "; ".join(numbered(tally.count, tally.reason.text) for tally in tallies[:SENTENCES_MAX])
        published = count(wanted.found.published, "device")
        none = (
            "the only device in the cluster is not"
            if wanted.found.published == 1
            else f"none of the {published} in the cluster is"
        )
        text = f"{none} in DeviceClass {wanted.class_name}: {why}"
    candidates += states.changed(what_if, states.excluded(placing, wanted))
    candidates += selectors.other_class(what_if, placing.pod, wanted)
    missing = [driver for driver in expected if driver not in placing.published.drivers]
    advice = (f"install {named('driver', missing)} on the nodes that have the hardware",) if missing else ()
    return Diagnosis(reason=Reason.NOT_IN_CLASS, text=text, candidates=tuple(candidates), advice=advice)


def _is_on_a_node(placing: Placing, slice_: api.ResourceSlice) -> bool:
    """Whether a slice has devices for a node of the cluster."""
    spec, there = slice_.spec, placing.what_if.cluster.nodes
    if not spec.devices:
        return False
    if spec.node_name is not None:
        return spec.node_name in there
    selector = spec.node_selector
    return selector is None or any(selects_node(selector, info) for info in there.values())
