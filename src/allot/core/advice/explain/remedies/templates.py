"""Changes to a workload's pod: they belong in the workload's template, because a pod is immutable."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from allot.core.advice.explain.causes.kinship import deployment_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.report import Change
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1

_IN_THE_POD = re.compile(r"\b(?P<word>in|from|to|of) (?:the|this) pod\b(?!')")
_OF_THE_POD = re.compile(r"\bthe pod's\b")


def workload_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """`Deployment web`: the workload that creates pods like this one; empty if there is none."""
    maker = controller_of(pod)
    if maker is None:
        return ""
    deployment = deployment_of(what_if, pod)
    return f"Deployment {deployment}" if deployment else f"{maker.kind} {maker.name}"


def in_template(what_if: WhatIfCluster, pod: core_v1.Pod, changes: Iterable[Change]) -> tuple[Change, ...]:
    """Changes to the workload instead of its pod."""
    owner = workload_of(what_if, pod)
    if not owner:
        return tuple(changes)
    again = ", and recreate it" if owner.startswith("Job ") else ""
    return tuple(replace(each, text=of_workload(each.text, owner, again)) for each in changes)


def of_workload(text: str, owner: str, again: str) -> str:
    """A change to a workload instead of its pod. again: what else has to be done then."""
    changed = _OF_THE_POD.sub(f"{owner}'s", _IN_THE_POD.sub(rf"\g<word> {owner}", text))
    return f"{changed}{again}" if changed != text else text
