"""Pods that fail since their DaemonSet or StatefulSet was changed: what is new about them, and which setting their message speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.program_settings import containers_in
from allot.core.advice.explain.wording import count, listed, named
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model.apps_v1 import DaemonSet, StatefulSet
from allot.core.workloads.pod_states import is_ready

_HASH, _GENERATION = "controller-revision-hash", "pod-template-generation"
_KINDS: dict[str, type[DaemonSet | StatefulSet]] = {"DaemonSet": DaemonSet, "StatefulSet": StatefulSet}
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{3,}")
# In messages and values alike.
_COMMON = frozenset(("true", "false", "error", "with", "node", "name", "info", "gpus", "plugin", "kubelet", "driver"))
_SHOWN_MAX = 3


class Setting(NamedTuple):
    """A variable, argument or image of a container. before: its value in pods that run; None if there are no others."""

    name: str
    value: str
    before: str | None = None

    @property
    def text(self) -> str:
        """`FEATURE_GATES is "a=true" (was "b=true")`."""
        was = "" if self.before is None else f', and was "{self.before}"' if self.before else ", and was not set"
        return f'{self.name} is "{self.value}"{was}' if self.value else f"{self.name} is not set{was}"


class Revision(NamedTuple):
    """What is new about a pod. workload: with its kind and namespace; nodes: where pods of the revision before run."""

    kind: str
    namespace: str
    name: str
    hash: str
    nodes: tuple[str, ...]
    settings: tuple[Setting, ...]

    @property
    def text(self) -> str:
        """Phrased to follow a semicolon."""
        changed = f": {listed([each.text for each in self.settings], _SHOWN_MAX)}" if self.settings else ""
        run = f"that of {named('node', self.nodes)} still runs the revision before"
        if len(self.nodes) > 1:
            run = f"those of {count(len(self.nodes), 'other node')} still run the revision before"
        return f"the pod is of the new revision {self.hash} of {self.kind} {self.namespace}/{self.name}{changed}; {run}"

    @property
    def advice(self) -> str:
        """How to go back."""
        undo = f"roll {self.kind} {self.namespace}/{self.name} back: kubectl rollout undo {self.kind.lower()} {self.name} -n {self.namespace}"
        first = self.settings[0] if self.settings else None
        return f'{undo}; or correct {first.name}, which is "{first.value}" now' if first is not None else undo


def revision(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Revision | None:
    """The revision that a failing pod is of, if others of its workload run with the one before. said: what it reports, to name first
    the settings that it is about."""
    maker = controller_of(pod)
    own = pod.metadata.labels.get(_HASH, "")
    if maker is None or maker.kind not in _KINDS or not own:
        return None
    before = [
        other
        for other in what_if.all(core_v1.Pod)
        if (owner := controller_of(other)) is not None
        and owner.uid == maker.uid
        and other.metadata.labels.get(_HASH, own) != own
        and is_ready(other)
        and _age(other) < _age(pod)
    ]
    if not before:
        return None
    words = _words(said)
    changed = list(_changed(pod, before[0]))
    spoken = spoken_of(what_if, pod, said)
    if spoken is not None and spoken.name not in {each.name for each in changed}:
        changed.append(spoken)
    changed.sort(key=lambda each: -len(words & _words(each.value)))
    nodes = tuple(sorted({each.spec.node_name for each in before}))
    return Revision(maker.kind, pod.metadata.namespace, maker.name, own, nodes, tuple(changed))


def spoken_of(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Setting | None:
    """The variable or flag of a pod that a message is about, as it has words of its value; None if there is none."""
    words = _words(said)
    settings = {**_flags(pod), **_variables(what_if, pod)}
    found = [(len(words & _words(value)), Setting(name, value)) for name, value in settings.items()]
    most = max(found, key=lambda each: each[0], default=None)
    return most[1] if most is not None and most[0] else None


def _flags(pod: core_v1.Pod) -> dict[str, str]:
    """The flags of a pod's containers, with their values."""
    found: dict[str, str] = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for argument in (*container.command, *container.args):
            flag, equals, value = argument.partition("=")
            if flag.startswith("-") and equals:
                found.setdefault(flag, value)
    return found


def _variables(what_if: WhatIfCluster, pod: core_v1.Pod) -> dict[str, str]:
    """The environment variables in the template of a pod's workload, with their values."""
    maker = controller_of(pod)
    type_ = _KINDS.get(maker.kind) if maker is not None else None
    made_by = (
        what_if.get(type_, maker.name, pod.metadata.namespace) if type_ is not None and maker is not None else None
    )
    template = made_by.spec.template if made_by is not None else None
    return {
        str(variable.get("name", "")): str(variable["value"])
        for container in containers_in(template)
        for variable in container.get("env") or ()
        if isinstance(variable, dict) and variable.get("value")
    }


def _changed(pod: core_v1.Pod, before: core_v1.Pod) -> Iterator[Setting]:
    images = {each.name: each.image for each in before.spec.containers}
    for container in pod.spec.containers:
        if container.image != images.get(container.name, container.image):
            yield Setting(f"the image of container {container.name}", container.image, images[container.name])
    ours, theirs = _flags(pod), _flags(before)
    for name in dict.fromkeys((*ours, *theirs)):
        if ours.get(name, "") != theirs.get(name, ""):
            yield Setting(name, ours.get(name, ""), theirs.get(name, ""))


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text) if word.lower() not in _COMMON}


def _age(pod: core_v1.Pod) -> tuple[int, str]:
    """A key that grows with the revision of a workload's pods."""
    generation = pod.metadata.labels.get(_GENERATION, "")
    return int(generation) if generation.isdecimal() and len(
        generation
    ) < 10 else 0, pod.metadata.creation_timestamp or ""
