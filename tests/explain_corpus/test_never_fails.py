"""Whatever is asked about whatever dump, whole or damaged, explain answers: it never ends with an error of its own.

`ALLOT_RUNS=N` asks about everything in every dump, and about N damaged copies of each.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from allot.core.advice.explain.answer import Explainer, NotFound
from allot.core.advice.explain.report import Explanation
from allot.core.advice.explain.text import lines
from allot.core.advice.explain.workloads.answer import ASKED, WORKLOADS
from allot.core.advice.snapshot import NotInSnapshots, Snapshot, read_object
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup
from explain_corpus.cases import Case, all_cases
from explain_corpus.law import MALFORMED

RUNS = int(os.environ.get("ALLOT_RUNS", "0"))
# Of a dump, so many objects of a kind are asked about; a dump with hundreds of pods says nothing new with each.
ASKED_MAX = 100 if RUNS else 1
DAMAGES_MAX = 4
Object = dict[str, Any]


def objects_of(case: Case) -> list[Object]:
    """The objects of a case's dump."""
    found: list[Object] = yaml.load(case.dump.read_bytes(), yaml.CSafeLoader)["items"]
    return found


def damaged(objects: list[Object], dice: random.Random) -> list[Object]:
    """A copy of which objects and fields are missing."""
    left = [each for each in objects if dice.random() > 0.1] or list(objects)
    for number in dice.sample(range(len(left)), min(DAMAGES_MAX, len(left))):
        left[number] = copy.deepcopy(left[number])
        place = dice.choice(list(members(left[number])) or [()])
        parent = left[number]
        for key in place[:-1]:
            parent = parent[key]
        if place:
            del parent[place[-1]]
    return left


def members(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in an object but those that say what it is."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        place = (*path, key)
        if place not in (("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace")):
            yield place
        yield from members(part, place)


def snapshot_of(objects: list[Object], now: str) -> Snapshot:
    """What can be read of objects."""
    found = []
    for each in objects:
        try:
            found.append(read_object(each))
        except (DecodeError, ConversionError, NotInSnapshots):
            continue
    return Snapshot(tuple(found), seconds_of(now))


def answers(snapshot: Snapshot) -> Iterator[Explanation]:
    """What is said of objects of every kind that can be asked about."""
    explainer = Explainer(snapshot)
    asked: list[tuple[type[APIStruct], Any]] = [
        (core_v1.Pod, explainer.pod),
        (api.ResourceClaim, explainer.claim),
        (PodGroup, explainer.group),
        *(
            (kind.type, lambda *key, word=kind.words[0]: explainer.workload(word, *key))
            for kind in (*WORKLOADS, *ASKED)
        ),
    ]
    for type_, ask in asked:
        waiting_first = sorted(snapshot.of(type_), key=lambda each: bool(getattr(each.spec, "node_name", "")))  # type: ignore[attr-defined]
        for each in waiting_first[:ASKED_MAX]:
            metadata = each.metadata  # type: ignore[attr-defined]
            try:
                yield ask(metadata.namespace, metadata.name)
            except NotFound:
                # A name that was lost.
                continue
    list(explainer.overview(None))


def check(objects: list[Object], now: str) -> None:
    """Every answer can be printed, and has nothing in it that only programmers read."""
    for found in answers(snapshot_of(objects, now)):
        text = list(lines(found))
        assert text[0]
        assert not MALFORMED.search(text[0]), text[0]


CASES = all_cases()
each_case = pytest.mark.parametrize("case", [pytest.param(case, id=case.folder) for case in CASES[:: 1 if RUNS else 6]])


@each_case
def test_a_question_about_any_object_is_answered(case: Case) -> None:
    check(objects_of(case), case.now)


@each_case
def test_a_dump_of_which_parts_are_missing_is_answered(case: Case) -> None:
    for run in range(RUNS or 1):
        dice = random.Random(f"{case.folder} {run}")
        objects = damaged(objects_of(case), dice)
        snapshot = snapshot_of(objects, case.now)
        for found in answers(snapshot):
            assert next(iter(lines(found)))
