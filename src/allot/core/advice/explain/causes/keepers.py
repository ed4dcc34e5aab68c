"""Components that have to act on a name: on a gate, a finalizer, a condition or a kind of their own. No object says which they are; their
names, those of their containers, their flags and what they said last do. Of interest are those that do not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.events import scaled_from
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.program_settings import containers_in, words_of
from allot.core.advice.explain.wording import same_letters
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.apps_v1 import Deployment, StatefulSet
from allot.core.model.meta import RawJSON
from allot.core.workloads.ownership import selector_of
from allot.core.workloads.pod_states import is_ready

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WORD_MIN = 4
# Two words are forms of one (staged, stager) if they begin with so many equal letters, and end with no more than so many others.
_STEM_MIN, _ENDING_MAX = 5, 3
# Names of products may be shorter than other words.
_PRODUCT_MIN = 3
_MADE_FOR = "kube"
_SCHEDULER = "scheduler"
# A flag and its value.
_VALUES = re.compile(r"[=\s]+")
_ROLES = frozenset(("operator", "controller", "controllers", "manager"))
# They say nothing about who is meant.
_COMMON = frozenset(
    (
        *(
            "kubernetes",
            "example",
            "driver",
            "drivers",
            "device",
            "devices",
            "resource",
            "resources",
            "claim",
            "claims",
        ),
        *(
            "ready",
            "attached",
            "available",
            "operator",
            "controller",
            "manager",
            "system",
            "service",
            "server",
            "default",
        ),
        *("protection", "cleanup", "finalizer", "finalizers", "foreground", "deletion", "scheduling", "scheduler"),
        *(
            "container",
            "node",
            "pods",
            "failed",
            "error",
            "http",
            "https",
            "from",
            "with",
            "this",
            "that",
            "main",
            "back",
        ),
    )
)


class Keeper(NamedTuple):
    """A component that does not run. text: phrased to follow a comma or a colon; advice: what makes it run again."""

    text: str
    advice: str


def idle_keeper(what_if: WhatIfCluster, names: Iterable[str], role: str, kinds: Iterable[str] = ()) -> Keeper | None:
    """The component that seems to be in charge of some names and does not run; None if there is none, or if all of them run.
    role: what it has to do, as "removes it"; kinds: of its own, as `rayjobs.ray.io`, by which its controller is found if the names do
    not tell."""
    known = list(names)
    words = {word for name in known for word in _words_of(name)}
    found = None
    if words:
        found = _scaled_to_none(what_if, known, words, role) or _failing(what_if, known, words, role)
    return found or _of_kinds(what_if, list(kinds), role)


def _words_of(name: str) -> set[str]:
    """The words of a qualified name, without the domain that all names of a company have: of `a.acme.io/b-done`, a and b."""
    domain, _, rest = name.rpartition("/")
    labels = domain.split(".")
    own = ".".join(labels[:-2])
    if not domain and name.count(".") > 1:
        own, rest = ".".join(name.split(".")[:-2]), ""
    return _words(f"{own} {rest}")


def _words(text: str) -> set[str]:
    found = {word.lower() for word in _WORD.findall(text)}
    return {word for word in found - _COMMON if len(word) >= _WORD_MIN}


def _alike(one: str, other: str) -> bool:
    shared = same_letters(one, other)
    if one == other:
        return True
    return shared >= _STEM_MIN and max(len(one), len(other)) - shared <= _ENDING_MAX


def _is_about(names: Sequence[str], words: set[str], texts: Sequence[str]) -> bool:
    """Whether texts have one of the names, or a word of them."""
    whole = " ".join(texts)
    if any(name in whole for name in names):
        return True
    there = _words(whole)
    return any(_alike(word, other) for word in words for other in there)


def _scaled_to_none(what_if: WhatIfCluster, names: Sequence[str], words: set[str], role: str) -> Keeper | None:
    for each in _workloads(what_if):
        if each.spec.replicas != 0 or not _is_about(names, words, [full_name(each), *_told_by(each.spec.template)]):
            continue
        return _at_0(what_if, each, role)
    return None


def _at_0(what_if: WhatIfCluster, found: Deployment | StatefulSet, role: str) -> Keeper:
    kind = type(found).__name__
    what = f"{kind} {full_name(found)}"
    before = scaled_from(what_if, kind, found.metadata.namespace, found.metadata.name)
    to = f" to {before}" if before else " up"
    return Keeper(
        f"{what}, which seems to be what {role}, is scaled to 0",
        f"scale {what}{to} again, so that it {role}",
    )


def _told_by(template: RawJSON | None) -> list[str]:
    """Names of containers in a pod template, with their commands and arguments."""
    return [text for each in containers_in(template) for text in (str(each.get("name", "")), *words_of(each))]


def _failing(what_if: WhatIfCluster, names: Sequence[str], words: set[str], role: str) -> Keeper | None:
    for pod in what_if.all(core_v1.Pod):
        maker = controller_of(pod)
        if maker is None or maker.kind not in ("ReplicaSet", "StatefulSet") or is_ready(pod):
            continue
        containers = [each.name for each in pod.spec.containers]
        if not _is_about(names, words, [full_name(pod), *containers, *_last_words(pod)]):
            continue
        found = _broken(what_if, pod, role)
        if found is not None:
            return found
    return None


def _broken(what_if: WhatIfCluster, pod: core_v1.Pod, role: str) -> Keeper | None:
    trouble = container_trouble(what_if, pod)
    if trouble is None:
        return None
    advice = trouble.advice[0] if trouble.advice else "see what it says"
    return Keeper(
        f"pod {full_name(pod)}, which seems to be what {role}, does not run: {trouble.text}",
        f"fix pod {full_name(pod)}, so that it {role}: {advice}",
    )


def _last_words(pod: core_v1.Pod) -> list[str]:
    states = [state for each in pod.status.container_statuses for state in (each.state, each.last_state)]
    return [state.terminated.message for state in states if state is not None and state.terminated is not None]


# --- controllers of kinds of their own ---


def _of_kinds(what_if: WhatIfCluster, kinds: Sequence[str], role: str) -> Keeper | None:
    """The controller of some kinds, if it does not run: one that has the product in its own name (kuberay-operator for ray.io), or is the
    only one in the namespace of that name."""
    stems = {stem for kind in kinds for stem in _stems_of(kind)}
    if not stems:
        return None
    # Some are called as their product: karpenter.
    controllers = [
        each
        for each in _workloads(what_if)
        if _ROLES & set(_all_words(each.metadata.name)) or _stems_in(each.metadata.name) <= stems
    ]
    own = [each for each in controllers if stems & _stems_in(each.metadata.name)]
    if own:
        # Of cert-manager and cert-manager-webhook, the first one is the controller.
        fewest = min(len(_all_words(each.metadata.name)) for each in own)
        own = [each for each in own if len(_all_words(each.metadata.name)) == fewest]
    else:
        own = [each for each in controllers if stems & _stems_in(each.metadata.namespace)]
        own = own if len(own) == 1 else []
    return _all_idle(what_if, own, role)


def idle_scheduler(what_if: WhatIfCluster, scheduler: str) -> Keeper | None:
    """What runs a scheduler of this name and does not run; None if it runs, or if the snapshot does not tell."""
    stems = {_stem(word) for word in _all_words(scheduler)} - _COMMON
    exact = [each for each in _workloads(what_if) if _is_called(scheduler, each)]
    own = [
        each
        for each in _workloads(what_if)
        if _SCHEDULER in _all_words(each.metadata.name)
        and stems & (_stems_in(each.metadata.name) | _stems_in(each.metadata.namespace))
    ]
    return _all_idle(what_if, exact or own, "runs the scheduler")


def _is_called(scheduler: str, found: Deployment | StatefulSet) -> bool:
    """Whether a workload has a scheduler's name, or gives it to a program."""
    flags = _told_by(found.spec.template)
    return scheduler == found.metadata.name or any(
        _SCHEDULER in each and scheduler in _VALUES.split(each) for each in flags
    )


def _workloads(what_if: WhatIfCluster) -> list[Deployment | StatefulSet]:
    return [*what_if.all(Deployment), *what_if.all(StatefulSet)]


def _all_idle(what_if: WhatIfCluster, found: Sequence[Deployment | StatefulSet], role: str) -> Keeper | None:
    """Why none of some workloads runs: of several, any that runs may be the one."""
    idle = [_idle(what_if, each, role) for each in found]
    return idle[0] if idle and all(idle) else None


def _all_words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _stems_in(name: str) -> set[str]:
    return set(map(_stem, _all_words(name)))


def _stem(word: str) -> str:
    """The name of a product, without what shows that it is made for Kubernetes: of kuberay, ray."""
    return word.removeprefix(_MADE_FOR) or word


def _stems_of(kind: str) -> set[str]:
    """What names a product in `rayjobs.ray.io`: the parts of its group, without the last one. Of Kubernetes' own groups, nothing."""
    labels = kind.split(".")[1:-1]
    if labels[-1:] == ["k8s"]:
        return set()
    words = [word for label in labels if "k8s" not in label for word in _all_words(label)]
    return {_stem(word) for word in words if word not in _COMMON and len(word) >= _PRODUCT_MIN}


def _idle(what_if: WhatIfCluster, found: Deployment | StatefulSet, role: str) -> Keeper | None:
    """Why a controller does not run; None if it does, or if the snapshot does not say."""
    if found.spec.replicas == 0:
        return _at_0(what_if, found, role)
    kind, metadata = type(found).__name__, found.metadata
    requirements = selector_of(found.spec.selector)
    if requirements is None:
        return None
    there = (pod for pod in what_if.all(core_v1.Pod) if pod.metadata.namespace == metadata.namespace)
    pods = [pod for pod in there if requirements.matches(pod.metadata.labels)]
    if not pods or any(map(is_ready, pods)):
        return None
    broken = next((keeper for pod in pods if (keeper := _broken(what_if, pod, role)) is not None), None)
    if broken is not None:
        return broken
    what = f"{kind} {full_name(found)}"
    return Keeper(
        f"{what}, which seems to be what {role}, has no pod that is ready",
        f"fix {what}, so that it {role}: allot explain {kind.lower()}/{metadata.name} -n {metadata.namespace}",
    )
