"""The law that explain is held to: the planted fault is named, and the first change undoes it."""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

import msgspec

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.times import seconds_of
from explain_corpus.faults import Expected, Fault
from explain_corpus.scenes import Scene
from explain_corpus.simulation import Invalid, World

NOW = seconds_of("2026-09-14T09:00:00Z")
# What no answer may look like: Python's own words, names that are empty, counts of nothing.
MALFORMED = re.compile(
    r"<[a-z_.]+ object|object at 0x|None\b|\bset\(|\[\]|\{\}|  |\(\)| ,|nodes? ,|0 of 0| and and |''|\.\.$"
)


class Verdict(NamedTuple):
    """What came of one case. problems: how the law was broken."""

    problems: list[str]
    explanation: Explanation


def scene_of(fault: Fault, seed: int) -> Scene:
    """The cluster of a case before its fault is planted."""
    random = Random(f"{fault.name}/{seed}")
    return Scene(random, random.choice(fault.styles) if fault.styles else "")


def judge(fault: Fault, seed: int) -> Verdict:
    """One case of a fault."""
    scene = scene_of(fault, seed)
    healthy = World(scene.objects, DEFAULT_GATES, NOW).outlook(scene.target, scene.namespace)
    assert healthy.schedulable, f"the cluster without the fault: {healthy.told}"
    expected = fault.plant(scene)
    gates = _gates(scene)
    world = World(scene.objects, gates, NOW)
    planted = world.outlook(scene.target, scene.namespace)
    assert not planted.schedulable, "the planted fault does no harm"
    snapshot = Snapshot(tuple(read_object(each) for each in scene.objects), NOW)
    explainer = Explainer(snapshot, gates)
    kind, _, name = scene.target.partition("/")
    found = (explainer.pod if kind == "pod" else explainer.group)(scene.namespace, name)
    return Verdict([*_cause_problems(found, expected), *_change_problems(found, expected, world, scene)], found)


def _gates(scene: Scene) -> FeatureGates:
    gates = DEFAULT_GATES
    for text in scene.gates:
        name, _, value = text.partition("=")
        gates = gates.changed(enable=(name,)) if value == "true" else gates.changed(disable=(name,))
    return gates


def _cause_problems(found: Explanation, expected: Expected) -> list[str]:
    problems = []
    if found.reason is not expected.reason:
        problems.append(f"the reason is {found.reason}, expected {expected.reason}")
    problems += [f"{name!r} is not named" for name in expected.names if not re.search(name, found.cause)]
    texts = [found.cause, *found.details, *(change.text for change in found.changes)]
    problems += [f"malformed: {text}" for text in texts if MALFORMED.search(text)]
    return problems


def _change_problems(found: Explanation, expected: Expected, world: World, scene: Scene) -> list[str]:
    tried = [change for change in found.changes if change.patches]
    if not expected.fixable:
        return [f"nothing helps, but this is offered: {change.text}" for change in tried]
    if not tried or not found.changes[0].patches:
        return ["no change is offered"]
    first = tried[0]
    problems = []
    if expected.remedy and not re.search(expected.remedy, first.text):
        problems.append(f"another first change than {expected.remedy!r}: {first.text}")
    if expected.no_remedy and re.search(expected.no_remedy, first.text):
        problems.append(f"nobody wants to read first: {first.text}")
    patches = msgspec.json.decode(msgspec.json.encode(first.patches))
    try:
        outlook = world.changed(patches).outlook(scene.target, scene.namespace)
    except Invalid as error:
        return [*problems, f"the first change cannot be made: {error}"]
    if not outlook.schedulable and not (expected.then and expected.then in outlook.told):
        problems.append(f"the first change does not help: {first.text}: {outlook.told}")
    return problems
