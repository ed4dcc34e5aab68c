"""Images that do not exist, and the ones that were probably meant: with a digit for a letter, or what others run or ran."""

from __future__ import annotations

import re
from typing import Any

from allot.core.advice.explain.holding import controller_of
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import ReplicaSet
from allot.core.workloads.ownership import controller_reference
from allot.core.workloads.pod_templates import template_value

_DIGITS = str.maketrans({"O": "0", "o": "0", "l": "1", "I": "1"})
_VERSION = re.compile(r"v?\d+(\.\d+)+")
_LETTER = re.compile(r"(?<=[\d.])[OolI](?=[\d.]|$)")
_NAME_LIKENESS_MIN = 0.85


def meant_image(what_if: WhatIfCluster, pod: core_v1.Pod, image: str) -> str:
    """What was probably meant by an image that does not exist, phrased to follow a colon; empty if unknown."""
    name, tag = split(image)
    right = _LETTER.sub(lambda letter: letter[0].translate(_DIGITS), tag)
    known = {**_run(what_if), **_used_before(what_if, pod)}
    known.pop(image, None)
    if right != tag and _VERSION.fullmatch(right):
        wrong = next(_LETTER.finditer(tag))[0]
        return f"{right} is probably meant, with the digit {wrong.translate(_DIGITS)} instead of the letter {wrong}"
    tags = {split(each)[1]: each for each in known if split(each)[0] == name}
    like = nearest(tag, tags, likeness_min=0.0) if tags else None
    if like is None:
        names = {split(each)[0]: each for each in known}
        other = nearest(name, names, likeness_min=_NAME_LIKENESS_MIN)
        like = split(names[other])[1] if other is not None else None
        tags = {like: names[other]} if other is not None and like is not None else {}
    return f"{tags[like]} {known[tags[like]]}" if like is not None else ""


def split(image: str) -> tuple[str, str]:
    """The name and the tag of an image, without its digest."""
    image = image.partition("@")[0]
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "")


def _run(what_if: WhatIfCluster) -> dict[str, str]:
    """Images that nodes have pulled, with who runs them."""
    found: dict[str, str] = {}
    for pod in what_if.all(core_v1.Pod):
        started = {
            each.name
            for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)
            if each.state is not None and (each.state.running is not None or each.state.terminated is not None)
        }
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            if container.name in started:
                found.setdefault(container.image, f"runs in pod {full_name(pod)}")
    return found


def _used_before(what_if: WhatIfCluster, pod: core_v1.Pod) -> dict[str, str]:
    """Images of other revisions of a pod's Deployment."""
    maker = controller_of(pod)
    own = what_if.get(ReplicaSet, maker.name, pod.metadata.namespace) if maker is not None else None
    deployment = controller_reference(own.metadata) if own is not None else None
    found: dict[str, str] = {}
    for each in what_if.all(ReplicaSet) if deployment is not None else ():
        reference = controller_reference(each.metadata)
        if each is own or reference is None or deployment is None or reference.uid != deployment.uid:
            continue
        spec: dict[str, Any] = template_value(each.spec.template).get("spec") or {} if each.spec.template else {}
        for container in spec.get("containers") or ():
            if isinstance(container, dict) and container.get("image"):
                found.setdefault(
                    str(container["image"]),
                    f"is what Deployment {deployment.name} had before (ReplicaSet {each.metadata.name})",
                )
    return found
