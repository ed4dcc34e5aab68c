"""Answers slow questions from a cluster: why something waits, what fits, which queue owes which. Pure.

Answers are plain values: the JSON of the commands, and what pages need in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from allot.core.advice.explain.answer import Explainer, NotFound
from allot.core.advice.explain.text import lines
from allot.core.advice.outlook import outlooks
from allot.core.advice.planning.changes import (
    ChangeError,
    nodes_like,
    with_assumed_capacity,
    with_machines,
    with_objects,
    without_nodes,
)
from allot.core.advice.planning.changes import nodes_named as named_nodes
from allot.core.advice.planning.copies import NoTemplate
from allot.core.advice.planning.manifest import ManifestError, read_manifest
from allot.core.advice.planning.outcome import PlanResult, outcome_of
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.usage.devices import By, device_usage
from allot.core.advice.usage.partitions import partition_usage
from allot.core.advice.usage.published import published_pools, units_of
from allot.core.advice.usage.queues import queue_usage, resources_shown, strays
from allot.core.advice.waking import wakes
from allot.core.advice.what_if import WhatIfCluster, as_json
from allot.core.allocation.devices import DeviceEntry
from allot.core.cel.data.values import EvaluationError
from allot.core.cel.selector import CompiledSelector, EnvironmentOptions, SelectorCompileError, compile_selector
from allot.core.explain import numbered
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import APIStruct
from allot.core.scheduling import group_key, group_name_of
from allot.dashboard.views.pods import waits
from allot.dashboard.views.remedies import command_of

Arguments = Mapping[str, str]
COPIES_MAX = 2000
NODES_MAX = 500
_DEVICES_MAX = 64
# A prefix for machines as node templates; node names have no colon.
_MACHINE = "machine:"
_WAITING_MAX = 300
_EVERY_FIELD = EnvironmentOptions(list_type_attributes=True, consumable_capacity=True, stored=False)


class BadQuestion(ValueError):
    """An invalid question, or about an object that does not exist."""


class Machines(Protocol):
    """Machines that could be added. The dashboard does not know drivers, so they are passed in."""

    def offered(self) -> Sequence[tuple[str, str]]:
        """Their names, and what they have."""

    def objects(self, name: str, count: int) -> Sequence[APIStruct]:
        """So many nodes of one, with slices and classes. ChangeError if there is none of that name."""


class NoMachines:
    """No machines."""

    def offered(self) -> Sequence[tuple[str, str]]:
        """None."""
        return ()

    def objects(self, name: str, count: int) -> Sequence[APIStruct]:  # noqa: ARG002
        """Never."""
        raise ChangeError(f"machine {name}: not known here")


NO_MACHINES = NoMachines()


def answer(what_if: WhatIfCluster, name: str, arguments: Arguments, machines: Machines = NO_MACHINES) -> Any:
    """The answer to a question. BadQuestion."""
    return QUESTIONS[name](what_if, arguments, machines)


# --- why ---


def _explain(what_if: WhatIfCluster, arguments: Arguments, _machines: Machines) -> Any:
    explainer = Explainer(what_if)
    kind, namespace, name = (_needed(arguments, key) for key in ("kind", "ns", "name"))
    try:
        if kind == "pod":
            found = explainer.pod(namespace, name)
        elif kind == "gang":
            found = explainer.group(namespace, name)
        elif kind == "claim":
            found = explainer.claim(namespace, name)
        elif kind == "queue":
            found = explainer.queue(name)
        else:
            raise BadQuestion(f"kind {kind!r}: expected pod, gang, claim or queue")
    except NotFound as error:
        raise BadQuestion(error.message) from None
    value = msgspec.to_builtins(found)
    for request in value["requests"]:
        for removed in request["removed"]:
            removed["sentence"] = numbered(removed["count"], removed["text"])
    for change, shown in zip(found.changes, value["changes"], strict=True):
        shown["command"] = command_of(change)
    waiting = {"pod": f"{namespace}/{name}", "gang": _gang_key(what_if, namespace, name)}.get(kind, "")
    # Also the full text of `allot explain`, which users paste into tickets.
    return {**value, "wakes": wakes(what_if, waiting) if waiting else (), "text": "\n".join(lines(found))}


def _gang_key(what_if: WhatIfCluster, namespace: str, name: str) -> str:
    group = what_if.group_named(namespace, name)
    return group_key(group_name_of(group)) if group is not None else ""


# --- how much ---


def _capacity(what_if: WhatIfCluster, _arguments: Arguments, _machines: Machines) -> Any:
    by = {each.value: msgspec.to_builtins(device_usage(what_if, each)) for each in (By.CLASS, By.MODEL)}
    for report in by.values():
        for row in report["rows"]:
            row["holders"] = row["holders"][:20]
    return {**by, "partitions": msgspec.to_builtins(partition_usage(what_if))}


def _select(what_if: WhatIfCluster, arguments: Arguments, _machines: Machines) -> Any:
    """Which cells have a device that an expression selects."""
    try:
        selector = compile_selector(_needed(arguments, "expression"), _EVERY_FIELD)
    except SelectorCompileError as error:
        raise BadQuestion(error.message) from None
    if selector.max_cost > api.CEL_COST_MAX:
        raise BadQuestion(f"the expression may cost {selector.max_cost}: expected at most {api.CEL_COST_MAX}")
    # One answer serves all devices that look the same to the expression.
    known: dict[Hashable, bool | str] = {}
    matches: list[str] = []
    failures: list[str] = []
    units = [unit for pool in published_pools(what_if) for unit in units_of(pool, pool.entries)]
    for unit in units:
        name = f"{unit.pool.id.driver}/{unit.pool.id.pool}/{unit.counter_set or unit.entries[0].id.device}"
        answers = [_selected(selector, entry, known) for entry in unit.entries]
        if any(each is True for each in answers):
            matches.append(name)
        failures += [f"{name}: {each}" for each in answers if isinstance(each, str)][:1]
    return {"matches": matches, "all": len(units), "failed": len(failures), "failure": next(iter(failures), "")}


def _selected(selector: CompiledSelector, entry: DeviceEntry, known: dict[Hashable, bool | str]) -> bool | str:
    """Whether, or what the expression fails with."""
    try:
        key = selector.projection.key(entry.view)
        if key not in known:
            explanation = selector.explain(entry.view)
            known[key] = explanation.sentence() if explanation.outcome == "error" else explanation.outcome == "match"
        return known[key]
    except EvaluationError as error:
        return str(error)


def _queues(what_if: WhatIfCluster, _arguments: Arguments, _machines: Machines) -> Any:
    found = outlooks(what_if)
    rows = queue_usage(what_if, found)
    return {
        "queues": msgspec.to_builtins(rows),
        "resources": resources_shown(rows),
        "strays": strays(what_if, found),
    }


def _machines(_what_if: WhatIfCluster, _arguments: Arguments, machines: Machines) -> Any:
    return [{"name": name, "has": has} for name, has in machines.offered()]


def _plan(what_if: WhatIfCluster, arguments: Arguments, machines: Machines) -> Any:
    snapshot, silent = with_assumed_capacity(what_if.snapshot())
    add, remove = _number(arguments, "add", NODES_MAX), arguments.get("remove", "")
    try:
        values = [_copied(what_if, arguments)]
        manifest = read_manifest(values, snapshot)
        snapshot = with_objects(snapshot, manifest.context)
        changed, assumed = snapshot, tuple[str, ...]()
        if add:
            like = _needed(arguments, "like")
            if like.startswith(_MACHINE):
                changed, assumed = with_machines(changed, machines.objects(like.removeprefix(_MACHINE), add))
            else:
                changed = with_objects(changed, nodes_like(snapshot, like, add))
        if remove:
            changed = without_nodes(changed, set(named_nodes(snapshot, remove)))

        def outcome(cluster: Snapshot) -> PlanResult:
            fresh = WhatIfCluster(cluster, what_if.gates)
            # A gang starts completely or not at all, which placing its pods one by one would not show.
            waiting = [
                pod for pod in fresh.all(Pod) if waits(pod) and not pod.spec.node_name and fresh.group_of(pod) is None
            ]
            waiting.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.key))
            ready = [pod for pod in waiting if fresh.machine.unit_of(pod.key) is not None]
            return outcome_of(fresh, manifest, COPIES_MAX, ready[:_WAITING_MAX])

        now = outcome(snapshot)
        then = outcome(changed) if changed is not snapshot else None
    except (ManifestError, NoTemplate, ChangeError, DecodeError, ConversionError) as error:
        raise BadQuestion(str(error)) from None
    notes = [*manifest.notes, *now.notes]
    if assumed:
        notes.append(f"not in the cluster, assumed as their drivers install them: DeviceClasses {', '.join(assumed)}")
    if silent:
        notes.append(f"{silent} nodes do not state CPU, memory and pods: assumed to be enough")
    return {
        "what": manifest.name,
        "now": _short(now),
        "then": _short(then) if then is not None else None,
        "notes": notes,
    }


def _short(result: PlanResult) -> Any:
    value = msgspec.to_builtins(result)
    return {
        **value,
        "placement": value["placement"][:50],
        "stranded": value["stranded"][:20],
        "strandedCount": len(result.stranded),
    }


def _copied(what_if: WhatIfCluster, arguments: Arguments) -> dict[str, Any]:
    """A copy: a pod like an existing one, or a claim for devices of a class."""
    pod_name = arguments.get("pod", "")
    if pod_name:
        namespace, _, name = pod_name.partition("/")
        pod = what_if.get(Pod, name, namespace)
        if pod is None:
            raise BadQuestion(f"pod {pod_name}: not found")
        return as_json(pod)
    count = _number(arguments, "count", _DEVICES_MAX) or 1
    request = {"name": "devices", "exactly": {"deviceClassName": _needed(arguments, "class"), "count": count}}
    metadata = {"name": "copy", "namespace": arguments.get("ns") or "default"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [request]}},
    }


def _needed(arguments: Arguments, name: str) -> str:
    found = arguments.get(name, "")
    if not found and name != "ns":
        raise BadQuestion(f"{name}: expected a value")
    return found


def _number(arguments: Arguments, name: str, most: int) -> int:
    text = arguments.get(name, "") or "0"
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= most):
        raise BadQuestion(f"{name} is {text!r}: expected a number from 0 to {most}")
    return int(text)


QUESTIONS: Mapping[str, Callable[[WhatIfCluster, Arguments, Machines], Any]] = {
    "explain": _explain,
    "capacity": _capacity,
    "queues": _queues,
    "select": _select,
    "machines": _machines,
    "plan": _plan,
}
