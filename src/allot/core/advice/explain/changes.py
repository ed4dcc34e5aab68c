"""Which candidates help: each is applied, decided again, and reverted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from allot.core.advice.explain.diagnosis import Candidate, Diagnosis
from allot.core.advice.explain.remedies.templates import existing, made_again
from allot.core.advice.explain.report import Change
from allot.core.advice.explain.trial import Subject, would_help
from allot.core.advice.explain.wording import listed
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1

CHANGES_MAX = 4
# For changes of one kind.
_PER_RANK_MAX = 2
_OR_ELSE = "; or, "
_TRIES_MAX = 40
# On a large cluster, or with many queued jobs, one attempt takes long.
_LARGE_MIN = 500
_LARGE_TRIES_MAX = 4
_NEAR_MAX = 32


def helpful(
    what_if: WhatIfCluster, subject: Subject, diagnosis: Diagnosis, near: Sequence[str] = ()
) -> tuple[Change, ...]:
    """Candidates that were tried and help, smallest first, and advice that cannot be tried. near: the nodes that come
    closest; on a large cluster only some of these, some others, and the changed nodes are considered."""
    is_large = len(what_if.cluster.nodes) >= _LARGE_MIN or len(what_if.machine.jobs()) >= _LARGE_MIN
    tries = _LARGE_TRIES_MAX if is_large else _TRIES_MAX
    names = list(what_if.cluster.nodes)
    some = (*near[:_NEAR_MAX], *names[:: len(names) // _NEAR_MAX or 1])
    found: list[Change] = []
    tried: set[bytes] = set()
    gists: set[str] = set()
    helped: dict[int, int] = {}
    attempts: dict[int, int] = {}
    passed: list[Candidate] = []
    for candidate in sorted(diagnosis.candidates, key=lambda each: each.rank):
        key = msgspec.json.encode(candidate.patches)
        if (
            key in tried
            or any(each.text == candidate.text for each in found)
            or (candidate.gist and candidate.gist in gists)
            or helped.get(candidate.rank, 0) >= _PER_RANK_MAX
        ):
            if key not in tried:
                passed.append(candidate)
            continue
        if len(found) >= CHANGES_MAX or len(tried) >= tries:
            break
        if is_large and attempts.get(candidate.rank, 0) >= _PER_RANK_MAX:
            # Few can be tried: not all of one kind.
            continue
        attempts[candidate.rank] = attempts.get(candidate.rank, 0) + 1
        tried.add(key)
        if any(_is_part(less, candidate) for less in found):
            # Part of it is enough.
            continue
        among = {*some, *_touched(what_if, candidate.patches)} if is_large else None
        candidate = _existing(what_if, subject, candidate)
        outcome = would_help(what_if, subject, candidate.patches, among)
        if outcome is None or not outcome.schedulable:
            continue
        if any(_is_part(less, candidate) and _is_enough(what_if, subject, less, among) for less in passed):
            # So is part of it that was left out because others of its kind help.
            continue
        gists.add(candidate.gist)
        text = made_again(candidate.text, candidate.patches, len(subject.pods))
        helped[candidate.rank] = helped.get(candidate.rank, 0) + 1
        found.append(
            Change(
                text=f"{text}; then {_goes(outcome.leaving)}" if outcome.leaving else text,
                verified=True,
                node=outcome.node_of(subject),
                patches=candidate.patches,
                expression=candidate.expression,
                leaving=outcome.leaving,
                waits=candidate.waits,
            )
        )
    found = list(_told_once(found))
    told = {each.text for each in found}
    return (*found, *(Change(text=text) for text in diagnosis.advice if text not in told))


def _is_part(less: Candidate | Change, candidate: Candidate) -> bool:
    return set(map(msgspec.json.encode, less.patches)) < set(map(msgspec.json.encode, candidate.patches))


def _is_enough(what_if: WhatIfCluster, subject: Subject, candidate: Candidate, among: set[str] | None) -> bool:
    outcome = would_help(what_if, subject, candidate.patches, among)
    return outcome is not None and outcome.schedulable


def _told_once(changes: Sequence[Change]) -> Iterator[Change]:
    """Changes without what an earlier one says already: of `bring node a back; or, if it is off for good, ...`, the other half."""
    before: list[str] = []
    for each in changes:
        first, _, other = each.text.partition(_OR_ELSE)
        again = bool(other) and any(text == first or text.startswith(f"{first}:") for text in before)
        before.append(each.text)
        yield replace(each, text=other) if again else each


def _existing(what_if: WhatIfCluster, subject: Subject, candidate: Candidate) -> Candidate:
    """A change, or the use of a claim template that is already like that."""
    namespace, name = subject.pods[0] if len(subject.pods) == 1 else ("", "")
    pod = what_if.get(core_v1.Pod, name, namespace)
    return (existing(what_if, pod, candidate) if pod is not None else None) or candidate


def _goes(leaving: Sequence[str]) -> str:
    return f"{listed(leaving)} {'has' if len(leaving) == 1 else 'have'} to make room"


def _touched(what_if: WhatIfCluster, patches: Sequence[Patch]) -> Iterator[str]:
    """Nodes that patches change, create, or remove pods from."""
    for patch in patches:
        if patch.object is not None and patch.object.get("kind") == "Node":
            yield str(patch.object["metadata"]["name"])
        elif patch.kind == "Node":
            yield patch.name
        elif patch.kind == "Pod":
            pod = what_if.get(core_v1.Pod, patch.name, patch.namespace)
            if pod is not None and pod.spec.node_name:
                yield pod.spec.node_name
