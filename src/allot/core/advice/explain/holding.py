"""Who holds devices: running, finished or deleted pods, or no pod at all; and which of them matters least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from allot.core.advice.explain.wording import count, joined, named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.lifecycle.claim_owners import group_name
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import OwnerReference
from allot.core.model.scheduling_v1 import PREEMPT_NEVER, PodGroup

FINISHED = ("Succeeded", "Failed")
_PODS = "pods"
_GROUPS = "podgroups"
# Kubernetes then ends the node's pods by force, and detaches their volumes.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
_SHOWN_MAX = 2
# What kube-scheduler says for any pod that wants devices.
NOT_FOR_DEVICES = "its scheduler does not preempt for devices"
_NOT_PREEMPTED = "Preemption is not helpful for scheduling"
# A kubelet may be slow; after this it counts as stuck.
OVERDUE_MIN_S = 120
# For a pod that would fit elsewhere.
FITS_TOO = "it also fits on"
# Below every priority that a pod can have.
NOBODY = -(2**31) - 1


class Possessor(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that has devices, and the pods that it is reserved for."""

    claim: api.ResourceClaim
    running: tuple[core_v1.Pod, ...] = ()
    # Pods that are terminating.
    ending: tuple[core_v1.Pod, ...] = ()
    # Pods whose node is gone: no kubelet can stop them.
    stranded: tuple[core_v1.Pod, ...] = ()
    finished: tuple[core_v1.Pod, ...] = ()
    # Names of pods that no longer exist.
    gone: tuple[str, ...] = ()
    # Users that the snapshot does not contain: of other kinds, or of namespaces without pods in it.
    unseen: tuple[str, ...] = ()
    # Nodes of terminating pods whose kubelet has not reported for long: it cannot end them.
    silent: tuple[str, ...] = ()
    # Groups whose pods have all ended: they keep their claims until they are deleted.
    groups: tuple[PodGroup, ...] = ()
    # Kinds of users other than pods, as `sessions.example.com`: Kubernetes never ends their reservations.
    kinds: tuple[str, ...] = ()

    @property
    def priority(self) -> int:
        """The priority of the most important pod; terminating pods, and those whose work is over, do not count."""
        if self.done:
            return NOBODY
        return max((pod.spec.priority or 0 for pod in self.running), default=0 if self.unseen else NOBODY)

    @property
    def pods(self) -> tuple[core_v1.Pod, ...]:
        """Existing pods, in any state."""
        return (*self.running, *self.ending, *self.stranded, *self.finished)

    @property
    def is_idle(self) -> bool:
        """Whether no pod needs the devices."""
        return not self.running and not self.ending and not self.stranded and not self.unseen and not self.groups

    @property
    def done(self) -> tuple[core_v1.Pod, ...]:
        """The pods, if in all that run the containers with the devices have ended; otherwise none."""
        return self.running if self.running and all(map(still_running, self.running)) else ()

    @property
    def is_lost(self) -> bool:
        """Whether all holders were on nodes that are gone."""
        return bool(self.stranded) and not self.running and not self.ending and not self.unseen

    @property
    def is_going(self) -> bool:
        """Whether the claim has been deleted, but is kept by its finalizer."""
        return self.claim.metadata.deletion_timestamp is not None

    @property
    def text(self) -> str:
        """The object to look at first, and what is odd about it."""
        if self.running:
            return named("pod", map(full_name, self.running))
        if self.ending:
            return joined([_ending_text(pod, self.silent) for pod in self.ending[:_SHOWN_MAX]])
        if self.stranded:
            return f"{named('pod', map(full_name, self.stranded))} of {_lost_nodes(self.stranded, 'which no longer')}"
        claim = f"claim {full_name(self.claim)}{' (being deleted)' if self.is_going else ''}"
        if self.unseen:
            return f"{claim} for {joined(self.unseen[:_SHOWN_MAX])}"
        if self.groups:
            return f"{claim} of {groups_text(self.groups)}"
        if self.finished:
            verb = "has" if len(self.finished) == 1 else "have"
            return f"{named('pod', map(full_name, self.finished))}, which {verb} finished"
        if self.gone:
            verb = "exists" if len(self.gone) == 1 else "exist"
            return f"{claim}, reserved for {named('pod', self.gone)}, which no longer {verb}"
        return f"{claim}, which no pod uses"


def still_running(pod: core_v1.Pod) -> list[str]:
    """The containers that keep a pod although those that use its devices have ended for good; none while these may run."""
    users = set(_device_users(pod))
    running, ended = running_and_ended(pod)
    return running if users and users <= set(ended) else []


def running_and_ended(pod: core_v1.Pod) -> tuple[list[str], dict[str, int]]:
    """The containers that run, and the exit codes of those that have ended and are not restarted."""
    running, ended = [], {}
    for status in pod.status.container_statuses:
        state = status.state
        if state is not None and state.running is not None:
            running.append(status.name)
        elif state is not None and state.terminated is not None:
            code = state.terminated.exit_code
            again = pod.spec.restart_policy == "Always" or (pod.spec.restart_policy == "OnFailure" and code)
            if not again:
                ended[status.name] = code
    return running, ended


def _device_users(pod: core_v1.Pod) -> list[str]:
    """The containers that use devices, by a claim or by an extended resource."""
    generated = pod.status.extended_resource_claim_status
    mapped = {each.container_name for each in generated.request_mappings} if generated is not None else set()
    return [each.name for each in pod.spec.containers if each.resources.claims or each.name in mapped]


def done_text(pods: Sequence[core_v1.Pod]) -> str:
    """What is over in pods, and what still runs there: `container main has ended, and only istio-proxy still runs`."""
    running = dict.fromkeys(name for pod in pods for name in still_running(pod))
    users = dict.fromkeys(name for pod in pods for name in _device_users(pod))
    over = f"{named('container', users)} {'has' if len(users) == 1 else 'have'} ended"
    return f"{over}, and only {joined(list(running))} still {'runs' if len(running) == 1 else 'run'}"


def groups_text(groups: Sequence[PodGroup]) -> str:
    """`PodGroup a/b (its pods have ended, and it keeps its claim until it is deleted)`."""
    one = len(groups) == 1
    its, keeps = (
        ("its", "it keeps its claim until it is") if one else ("their", "they keep their claims until they are")
    )
    return f"{named('PodGroup', map(full_name, groups))} ({its} pods have ended, and {keeps} deleted)"


def _ending_text(pod: core_v1.Pod, silent: Sequence[str]) -> str:
    metadata = pod.metadata
    if pod.spec.node_name in silent:
        return (
            f"pod {full_name(pod)} (terminating since {metadata.deletion_timestamp} on node {pod.spec.node_name}, which is unreachable, so "
            "nothing ends it)"
        )
    kept = f" (kept by {named('finalizer', metadata.finalizers)})" if metadata.finalizers else ""
    return f"pod {full_name(pod)}, which has been terminating since {metadata.deletion_timestamp}{kept}"


def possessor(what_if: WhatIfCluster, claim: api.ResourceClaim) -> Possessor:
    """Who holds the devices of a claim."""
    namespace = claim.metadata.namespace
    running, ending, stranded, finished, gone, unseen, kinds, groups = [], [], [], [], [], [], [], []
    for user in claim.status.reserved_for:
        group = _ended_group(what_if, user, namespace)
        if group is not None:
            groups.append(group)
            continue
        if user.resource != _PODS:
            kinds.append(f"{user.resource}.{user.api_group}" if user.api_group else user.resource)
            unseen.append(f"{user.resource.removesuffix('s')} {namespace}/{user.name}")
            continue
        pod = what_if.get(core_v1.Pod, user.name, namespace)
        if pod is None or (user.uid and pod.metadata.uid and pod.metadata.uid != user.uid):
            if what_if.has_pods_in(namespace):
                gone.append(f"{namespace}/{user.name}")
            else:
                unseen.append(f"pod {namespace}/{user.name}")
        elif pod.status.phase in FINISHED:
            finished.append(pod)
        elif is_stranded(what_if, pod):
            stranded.append(pod)
        elif pod.metadata.deletion_timestamp is not None:
            ending.append(pod)
        else:
            running.append(pod)
    return Possessor(
        claim=claim,
        running=tuple(running),
        ending=tuple(ending),
        stranded=tuple(stranded),
        finished=tuple(finished),
        gone=tuple(gone),
        unseen=tuple(unseen),
        kinds=tuple(kinds),
        silent=tuple(sorted({pod.spec.node_name for pod in ending if is_silent(what_if, pod)})),
        groups=tuple(groups),
    )


def _ended_group(what_if: WhatIfCluster, user: api.ResourceClaimConsumerReference, namespace: str) -> PodGroup | None:
    """The PodGroup that a claim is reserved for, if all its pods have ended."""
    group = what_if.get(PodGroup, user.name, namespace) if user.resource == _GROUPS else None
    if group is None or user.uid not in ("", group.metadata.uid):
        return None
    pods = [
        pod
        for pod in what_if.all(core_v1.Pod)
        if pod.metadata.namespace == namespace and group_name(pod) == group.metadata.name
    ]
    return group if pods and all(pod.status.phase in FINISHED for pod in pods) else None


def is_silent(what_if: WhatIfCluster, pod: core_v1.Pod) -> bool:
    """Whether the kubelet of a pod's node, which is still there, has stopped reporting."""
    info = what_if.cluster.nodes.get(pod.spec.node_name)
    return info is not None and any(
        each.type == "Ready" and each.status == "Unknown" for each in info.node.status.conditions
    )


def recover_text(pods: Sequence[core_v1.Pod]) -> str:
    """What to do about terminating pods whose nodes are unreachable."""
    nodes = sorted({pod.spec.node_name for pod in pods})
    are, them = ("is", "it") if len(nodes) == 1 else ("are", "them")
    return (
        f"bring {named('node', nodes)} back; or, if {named('node', nodes)} {are} off for good, taint {them} {OUT_OF_SERVICE}, or force the deletion of "
        f"{named('pod', map(full_name, pods))} (kubectl delete --force)"
    )


def is_stranded(what_if: WhatIfCluster, pod: core_v1.Pod) -> bool:
    """Whether the node of a pod, and with it its kubelet, is gone. Unknown, hence false, without permission to list nodes."""
    there = what_if.cluster.nodes
    name = pod.spec.node_name
    return bool(there and name) and name not in there and core_v1.Node not in what_if.unread


def _lost_nodes(pods: Sequence[core_v1.Pod], how: str) -> str:
    """`node a, which no longer exists`."""
    names = sorted({pod.spec.node_name for pod in pods})
    return f"{named('node', names)}{',' if how.startswith('which') else ''} {how} {'exists' if len(names) == 1 else 'exist'}"


def force_text(pods: Sequence[core_v1.Pod]) -> str:
    """How to remove pods whose node is gone, and the risk."""
    it, its = ("it", "its") if len(pods) == 1 else ("them", "their")
    return (
        f"force the deletion of {named('pod', map(full_name, pods))} (kubectl delete --force): {_lost_nodes(pods, 'no longer')}, so "
        f"nothing can stop {it}; make sure that the machine is off, or {its} containers keep running with their devices"
    )


def overdue(what_if: WhatIfCluster, pod: core_v1.Pod) -> int:
    """For how many seconds a pod is overdue: its deletionTimestamp includes its grace period."""
    at = pod.metadata.deletion_timestamp
    return int(what_if.taken_at - seconds_of(at)) if at is not None and what_if.taken_at is not None else 0


def controller_of(pod: core_v1.Pod) -> OwnerReference | None:
    """The controller that created a pod and recreates it; None if there is none."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def comes_back(pod: core_v1.Pod) -> bool:
    """Whether a deleted pod is recreated on the same node at once."""
    maker = controller_of(pod)
    return maker is not None and maker.kind == "DaemonSet"


def ends_by_itself(pod: core_v1.Pod) -> bool:
    """Whether a pod works until it is done: then its controller does not recreate it."""
    maker = controller_of(pod)
    return maker is not None and maker.kind == "Job"


def are_siblings(pod: core_v1.Pod, others: Sequence[core_v1.Pod]) -> bool:
    """Whether the other pods all belong to the controller of a pod, which would recreate them."""
    own = controller_of(pod)
    return (
        own is not None
        and bool(others)
        and all((maker := controller_of(other)) is not None and maker.uid == own.uid for other in others)
    )


def importance(found: Possessor, devices: int, namespace: str) -> tuple[int, int, int, str]:
    """A key that sorts first what matters least to a pod of a namespace: low priority, own namespace, few
    devices."""
    foreign = int(found.claim.metadata.namespace != namespace)
    return found.priority, foreign, devices, full_name(found.claim)


def holders_text(found: Sequence[Possessor], more: int = 0) -> str:
    """`pod default/a, pod default/b and 3 more`. more: how many are not in the list."""
    texts = list(dict.fromkeys(each.text for each in found))
    rest = len(texts) - _SHOWN_MAX + more
    # A single extra name is as short as "and 1 more".
    if (rest > 1 or more) and len(texts) >= _SHOWN_MAX:
        return joined([*texts[:_SHOWN_MAX], count(rest, "other")])
    return joined(texts)


def priorities_text(pod: core_v1.Pod, group_policy: str, found: Iterable[Possessor]) -> str:
    """How priorities matter; empty if they do not."""
    own = pod.spec.priority or 0
    held = [each.priority for each in found if each.running and not each.done]
    if not held:
        return ""
    who = "it has" if len(held) == 1 else "they have"
    if min(held) > own:
        return f" ({who} a higher priority, {min(held)}, than the pod, {own})"
    if min(held) == own:
        return ""
    said = next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")
    why = NOT_FOR_DEVICES if _NOT_PREEMPTED in said else ""
    if PREEMPT_NEVER in (pod.spec.preemption_policy, group_policy):
        why = f"the {'PodGroup' if group_policy == PREEMPT_NEVER else 'pod'}'s preemptionPolicy is Never"
    who = who if max(held) < own else "some have"
    return f" ({who} a lower priority, {min(held)}, than the pod, {own}, but {why})" if why else ""
