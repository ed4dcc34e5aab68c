"""Causes related to nodes: devices are available, or none are needed, but the nodes cannot be used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes import driver_pods, spreading, volumes
from allot.core.advice.explain.causes.broken import unhealthy_of, unhealthy_text, with_all_healthy
from allot.core.advice.explain.causes.kinship import fewer_replicas, pods_text
from allot.core.advice.explain.causes.labellers import Absent, absent_labeller
from allot.core.advice.explain.causes.node_groups import empty_group
from allot.core.advice.explain.causes.placing import SELECTING, Placing, is_wish, users_on
from allot.core.advice.explain.causes.spreading import crowded
from allot.core.advice.explain.causes.withheld import held_back, is_withheld, other_forms, repaired, withheld_text
from allot.core.advice.explain.devices import nodes_of, taint_rule_text, users_of
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank
from allot.core.advice.explain.holding import are_siblings, comes_back, controller_of, possessor
from allot.core.advice.explain.nodes import Check, Shortage, amount, asks, hard_spreads, missing, shortages
from allot.core.advice.explain.remedies import holders, nodes, selectors
from allot.core.advice.explain.remedies.templates import workload_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import count, joined, listed, named, of_several
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.allocation.devices import DeviceID
from allot.core.explain import Obstacle
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError
from allot.core.model.scheduling_v1 import PREEMPT_NEVER
from allot.core.quantity import Quantity
from allot.core.scheduling import HOSTNAME, Held, NodeInfo, PodInfo
from allot.core.workloads.daemonset_nodes import placement_of, target_node
from allot.core.workloads.ownership import selector_of

_GROUPS_MAX = 3
_UNSOUND = frozenset((Reason.CORDONED, Reason.NODE_TAINT, Reason.NODE_NOT_READY))


def no_nodes(placing: Placing) -> Diagnosis:
    """The cluster has no nodes."""
    text = "the cluster has no nodes"
    classes = _class_names(placing)
    if classes:
        text += f", so there are no devices of {named('class', classes)} either"
    return Diagnosis(reason=Reason.NO_NODES, text=text, advice=("add a node",))


def for_bare_node(placing: Placing) -> Diagnosis | None:
    """A DaemonSet's pod for a node without the requested devices, which other nodes have; None for any other pod."""
    maker = controller_of(placing.pod)
    home = target_node(placing.pod) if comes_back(placing.pod) else ""
    if maker is None or home not in placing.what_if.cluster.nodes or placing.survey is None:
        return None
    for wanted in placing.survey.wanted:
        there = {name for name, found in wanted.found.nodes.items() if found.in_class}
        if not there or home in there:
            continue
        text = f"DaemonSet {maker.name} created it for node {home}, which has no devices of class {wanted.class_name}"
        text += _selects_all(placing, maker.name)
        label = nodes.telling_label(placing.what_if, there)
        which = f"nodeSelector {label}" if label else "a nodeSelector for nodes that have devices"
        return Diagnosis(
            reason=Reason.NO_DEVICES,
            text=text,
            advice=(f"give DaemonSet {maker.name} {which}, so that it skips node {home}",),
        )
    return None


def _selects_all(placing: Placing, name: str) -> str:
    """A note that a DaemonSet runs on every node; empty if it selects some."""
    found = placing.what_if.get(DaemonSet, name, placing.pod.metadata.namespace)
    try:
        placement = placement_of(found.spec.template) if found is not None and found.spec.template is not None else None
    except DecodeError:
        placement = None
    selects = placement is None or placement.node_selector or placement.required is not None or placement.node_name
    return "" if selects else ": it has no node selector, so it runs a pod on every node"


def _class_names(placing: Placing) -> list[str]:
    names = []
    for namespace, name in placing.what_if.claims.claims_of(placing.pod):
        claim = placing.what_if.get(api.ResourceClaim, name, namespace)
        for request in claim.spec.devices.requests if claim is not None else ():
            leaves = [request.exactly, *request.first_available]
            names += [leaf.device_class_name for leaf in leaves if leaf is not None]
    return list(dict.fromkeys(names))


def node_cause(placing: Placing) -> Diagnosis:
    """The nearest nodes cannot be used for reasons of their own."""
    unknown = _unknown_resource(placing)
    if unknown is not None:
        return unknown
    lost = volumes.on_lost_nodes(placing.what_if, placing.pod)
    if lost is not None:
        return lost
    groups: dict[tuple[Check, ...], list[NodeInfo]] = {}
    for info in placing.nearest:
        groups.setdefault(placing.checks[info.name], []).append(info)
    reasons = {check.reason for found in groups for check in found}
    texts = [_group_text(placing, found, infos) for found, infos in list(groups.items())[:_GROUPS_MAX]]
    if len(groups) == 1:
        text = f"{_which(placing, placing.near)} {texts[0]}"
    else:
        more = sum(len(infos) for infos in list(groups.values())[_GROUPS_MAX:])
        parts = [
            f"{named('node', [info.name for info in infos])} {text}"
            for infos, text in zip(groups.values(), texts, strict=False)
        ]
        text = f"{_these(placing)}: {'; '.join(parts)}" + (f"; and {more} more for other reasons" if more else "")
    if Reason.AFFINITY in reasons:
        text += _matching(placing) or _gone_host(placing) or _no_labels(placing)
    if Reason.VOLUME not in reasons:
        text += _volume_elsewhere(placing)
    crowd = crowded(placing) if Reason.NEIGHBOURS in reasons else None
    if crowd is not None:
        text = crowd.text if crowd.is_all(placing) else f"{text}; {crowd.text}"
    elif Reason.NEIGHBOURS in reasons and placing.wanted:
        text += _full_elsewhere(placing, reasons)
    candidates = list(spreading.candidates(placing, crowd)) if crowd is not None else []
    candidates += [each for found, infos in groups.items() for each in _for_group(placing, infos, found)]
    if Reason.VOLUME in reasons:
        rivals = volumes.other_users(placing.what_if, placing.pod)
        near = rivals or [each for info in placing.nearest for each in info.pods.values() if each.profile.volume_claims]
        candidates += nodes.gone(placing.what_if, placing.pod, near)
    if Reason.NEIGHBOURS in reasons:
        candidates += [
            each for wanted in placing.wanted for each in holders.freed(placing.what_if, placing.pod, wanted)
        ]
    # A node like one whose taints exclude the pod would not help, and a broken one is a poor model.
    sound = [info for info in placing.nearest if not any(map(_is_unsound, placing.checks[info.name]))]
    candidates += nodes.another_node(placing.what_if, sound[0] if sound else None)
    for info in placing.nearest:
        candidates += [each for resource in _offered(placing) for each in repaired(placing.what_if, info, resource)]
        candidates += with_all_healthy(info, placing.node_checks.profile)
    reason = next(iter(reasons)) if len(reasons) == 1 else Reason.SEVERAL
    if not placing.wanted and len(placing.what_if.cluster.nodes) > 1 and _pinning(placing):
        reason = Reason.PINNED
    return Diagnosis(reason=reason, text=text, candidates=tuple(candidates), advice=_advice(placing, reasons))


def _for_group(placing: Placing, infos: Sequence[NodeInfo], checks: Sequence[Check]) -> Iterator[Candidate]:
    """What helps on the best of similar nodes; who could leave is different on each."""
    best = _roomiest(placing, infos, checks)
    yield from nodes.for_node(placing.what_if, placing.pod, best, checks)
    others = [info for info in infos if info is not best][:_GROUPS_MAX]
    for info in others if any(check.reason is Reason.RESOURCES for check in checks) else ():
        for each in nodes.for_node(placing.what_if, placing.pod, info, checks):
            if all(patch.action == "delete" for patch in each.patches):
                yield each


def _is_unsound(check: Check) -> bool:
    """Whether a node is broken or reserved. One about to be removed counts as usable."""
    return check.reason in _UNSOUND and not check.is_leaving


def _advice(placing: Placing, reasons: Collection[Reason]) -> tuple[str, ...]:
    what_if, pod = placing.what_if, placing.pod
    if Reason.VOLUME in reasons:
        rivals = [each.pod for each in volumes.other_users(what_if, pod)]
        return (*volumes.volume_advice(what_if, pod, placing.nearest), *fewer_replicas(what_if, pod, rivals))
    if Reason.PORTS in reasons:
        users = [each.pod for info in placing.nearest for each in nodes.port_users(what_if, pod, info)]
        return fewer_replicas(what_if, pod, users)
    if Reason.AFFINITY in reasons:
        absent = _absent_labeller(placing)
        labellers = dict.fromkeys(nodes.unlabelled(placing.what_if, placing.pod).values())
        return (
            (absent.advice,)
            if absent
            else tuple(f"check that the pods of {each} run on the nodes" for each in labellers)
        )
    return ()


def _absent_labeller(placing: Placing) -> Absent | None:
    """What sets the labels that the pod asks for and no node has, and does not run on the nodes that look as if they had devices."""
    keys = nodes.unlabelled(placing.what_if, placing.pod)
    infos = placing.what_if.cluster.nodes.values()
    with_devices = [info.node for info in infos if driver_pods.has_device_words(info.node)]
    return absent_labeller(placing.what_if, keys, with_devices) if keys else None


def _group_text(placing: Placing, checks: Sequence[Check], infos: Sequence[NodeInfo]) -> str:
    return joined(_phrases(placing, infos, checks))


def _these(placing: Placing) -> str:
    if placing.wanted:
        return f"the nodes with free devices of {named('class', [each.class_name for each in placing.wanted])} cannot take it"
    if _are_those_that_offer(placing, placing.near):
        have = "have" if placing.withholding >= set(placing.near) else "offer"
        return f"the nodes that {have} {listed(_offered(placing))} cannot take it"
    return f"none of the {len(placing.what_if.cluster.nodes)} nodes can take it"


def _offered(placing: Placing) -> list[str]:
    """The extended resources that the pod asks for."""
    return [name for name in placing.node_checks.profile.scalars if "/" in name]


def _are_those_that_offer(placing: Placing, names: Sequence[str]) -> bool:
    """Whether these nodes, and not all, offer the extended resources that the pod asks for."""
    return placing.offering == set(names) and len(names) < len(placing.what_if.cluster.nodes)


def _matching(placing: Placing) -> str:
    """Nodes that the pod's selector allows but that have no devices."""
    names = [
        name for name, checks in placing.checks.items() if all(check.reason is not Reason.AFFINITY for check in checks)
    ]
    if not names or not placing.wanted:
        return ""
    verb, has = ("does", "has") if len(names) == 1 else ("do", "have")
    lacking = [
        each.class_name
        for each in placing.wanted
        if not any((found := each.found.nodes.get(name)) is not None and found.in_class for name in names)
    ]
    if not lacking:
        return ""
    return f"; {named('node', names)}, which {verb}, {has} no devices of {named('class', lacking)}"


def _volume_elsewhere(placing: Placing) -> str:
    """Nodes that cannot be used because they do not reach the pod's volumes."""
    found = {
        name: check
        for name, checks in placing.checks.items()
        for check in checks
        if check.reason is Reason.VOLUME and is_wish(check)
    }
    if not found or set(found) & set(placing.near):
        return ""
    infos = [placing.what_if.cluster.nodes[name] for name in found]
    return f"; {named('node', found)} {_group_text(placing, list(found.values())[:1], infos)}"


def _full_elsewhere(placing: Placing, reasons: Collection[Reason]) -> str:
    """Nodes that other pods leave to the pod but that have too few free devices."""
    for wanted in placing.wanted:
        there = {
            name: found
            for name, found in wanted.found.nodes.items()
            if found.in_class > found.count(*SELECTING)
            and found.free < max(wanted.leaf.count, 1)
            and not any(check.reason in reasons for check in placing.checks[name])
        }
        if not there:
            continue
        most = max(found.free for found in there.values())
        free = f"at most {most} of the {wanted.leaf.count} that it needs free" if most else "none free"
        verb = "has" if len(there) == 1 else "have"
        who = [] if most else users_on(placing, wanted, there)
        by = f" (in use by {pods_text(placing.what_if, who)})" if who else ""
        return f"; {named('node', there)}, where it may run, {verb} {free}{by}"
    return _bare_elsewhere(placing, reasons)


def _bare_elsewhere(placing: Placing, reasons: Collection[Reason]) -> str:
    """Nodes that other pods leave to the pod but that have no devices at all."""
    for wanted in placing.wanted:
        names = [
            name
            for name, found in wanted.found.nodes.items()
            if not found.in_class
            and not any(check.reason in reasons or check.reason in _UNSOUND for check in placing.checks[name])
        ]
        if not names:
            continue
        infos = [placing.what_if.cluster.nodes[name] for name in names]
        keys = [each.topology_key for each in hard_spreads(placing.pod)]
        domains = sorted(
            {f"{key}={info.labels[key]}" for info in infos for key in keys if key in info.labels and key != HOSTNAME}
        )
        where = f" ({listed(domains)})" if domains else ""
        verb = "has" if len(names) == 1 else "have"
        return f"; {named('node', names)}{where}, where it may run, {verb} no devices of class {wanted.class_name}"
    return ""


def _gone_host(placing: Placing) -> str:
    """A node that the pod selects by name and that does not exist."""
    host = placing.pod.spec.node_selector.get(HOSTNAME)
    there = {info.labels.get(HOSTNAME, info.name) for info in placing.what_if.cluster.nodes.values()}
    return f"; the cluster no longer has node {host}" if host is not None and host not in there else ""


def _no_labels(placing: Placing) -> str:
    """Labels that no node has, and the component that should set them."""
    found = nodes.unlabelled(placing.what_if, placing.pod)
    absent = _absent_labeller(placing)
    if absent is not None:
        return f"; no node has label {', '.join(found)}: {absent.text}"
    return "".join(f"; no node has label {key}, which {labeller} sets" for key, labeller in found.items())


def ruled_out(placing: Placing) -> str:
    """Nodes with free devices that the pod itself excludes."""
    infos = placing.elsewhere
    if not infos:
        return ""
    wishes = {check.reason: check for info in infos for check in placing.checks[info.name] if is_wish(check)}
    names = named("node", [info.name for info in infos])
    phrases = joined(_phrases(placing, infos, list(wishes.values())))
    return f"; {names} {'has' if len(infos) == 1 else 'have'} free ones, but {phrases}"


def volume_apart(placing: Placing, found: Diagnosis) -> Diagnosis | None:
    """The pod's volume is where no devices of the wanted kind are, and these are where it is not: it is the volume that has to move.
    None if that is not so. found: what is wrong where the volume is."""
    if found.reason not in (Reason.SELECTOR, Reason.NOT_IN_CLASS, Reason.TOO_FEW) or not placing.elsewhere:
        return None
    checks = [[check for check in placing.checks[info.name] if is_wish(check)] for info in placing.elsewhere]
    if not all(check.reason is Reason.VOLUME for each in checks for check in each):
        return None
    infos = placing.elsewhere
    names = named("node", [info.name for info in infos])
    why = volumes.node_text(placing.what_if, placing.pod, infos[0]) or checks[0][0].text
    text = (
        f"{names}, the {'only one' if len(infos) == 1 else 'ones'} with enough free devices for it, "
        f"{why if len(infos) == 1 else of_several(why)}; where the volume is, {found.text}"
    )
    return Diagnosis(reason=Reason.VOLUME, text=text, advice=moved_advice(placing))


def moved_advice(placing: Placing) -> tuple[str, ...]:
    """Remedies for volumes that keep the pod from nodes with free devices."""
    held = any(check.reason is Reason.VOLUME for info in placing.elsewhere for check in placing.checks[info.name])
    return tuple(volumes.volume_advice(placing.what_if, placing.pod, placing.elsewhere)) if held else ()


def let_in(placing: Placing) -> Iterator[Candidate]:
    """The pod stops excluding a node that has free devices. It has its reasons, so other changes come first."""
    for info in placing.elsewhere[:1]:
        for each in nodes.for_node(placing.what_if, placing.pod, info, placing.checks[info.name]):
            yield replace(each, rank=max(each.rank, Rank.DROP + 1))


def _which(placing: Placing, names: Sequence[str]) -> str:
    """The nodes, and why these."""
    if [target_node(placing.pod)] == names:
        return f"node {names[0]}"
    total = len(placing.what_if.cluster.nodes)
    if placing.wanted:
        near = {info.name for info in placing.nearest}
        # Other nodes may have some too.
        few = any(there.free for each in placing.wanted for name, there in each.found.nodes.items() if name not in near)
        free = "enough free devices" if few else "free devices"
        what = f"{free} of {named('class', [each.class_name for each in placing.wanted])}"
        what += _as_wished(placing, len(names)) or _as_selected(placing, near)
        if len(names) == 1:
            return f"node {names[0]}, {'the only node' if total == 1 else 'the only one'} with {what},"
        return f"{named('node', names)}, the only ones with {what},"
    pinned = _pinning(placing)
    if pinned:
        return f"claim {full_name(pinned[0])} is allocated on node {listed(nodes_of(pinned[0]))}, and that node"
    if len(names) == total:
        return f"node {names[0]}, the only one," if total == 1 else f"each of the {total} nodes"
    if _are_those_that_offer(placing, names):
        one = len(names) == 1
        verb = ("has", "have") if placing.withholding >= set(names) else ("offers", "offer")
        which = f"the only {'one' if one else 'ones'} that {verb[0] if one else verb[1]} {listed(_offered(placing))}"
        return f"{named('node', names)}, {which},"
    lacking = placing.withholding >= set(names) or _are_unhealthy(placing, names)
    if lacking and not _excluded(placing, names):
        return f"{named('node', names)}, the only {'one that matches' if len(names) == 1 else 'ones that match'} {nodes.own_terms(placing.pod)},"
    return f"{named('node', names)}, nearest of {total} nodes,"


def _are_unhealthy(placing: Placing, names: Sequence[str]) -> bool:
    """Whether each of these nodes has unhealthy devices of a kind that the pod asks for."""
    nodes_there = placing.what_if.cluster.nodes
    return all(any(unhealthy_of(nodes_there[name], each) for each in _offered(placing)) for name in names)


def _excluded(placing: Placing, names: Sequence[str]) -> bool:
    """Whether the pod's own terms leave other nodes than these."""
    left = {
        name for name, checks in placing.checks.items() if all(check.reason is not Reason.AFFINITY for check in checks)
    }
    return left != set(names)


def _as_wished(placing: Placing, number: int) -> str:
    """Of nodes with free devices, where others have some, too: what the pod wants of them. number: how many nodes are spoken of."""
    reasons = {check.reason for info in placing.elsewhere for check in placing.checks[info.name] if is_wish(check)}
    if Reason.AFFINITY in reasons:
        return f" that {'matches' if number == 1 else 'match'} {nodes.own_terms(placing.pod)}"
    if Reason.VOLUME in reasons:
        return f" that {'reaches' if number == 1 else 'reach'} its volumes"
    return ""


def _as_selected(placing: Placing, near: Collection[str]) -> str:
    """Of nodes with free devices, where others have some that the request does not select: what is true of these."""
    others = [
        name
        for each in placing.wanted
        for tally in each.found.of(Obstacle.SELECTOR)
        for name in tally.nodes
        if name not in near
    ]
    return " that match its selectors" if others else ""


def _are_all(placing: Placing, infos: Sequence[NodeInfo]) -> bool:
    """Whether these are worded as `each of the 3 nodes`."""
    return len(infos) == len(placing.what_if.cluster.nodes) == len(placing.nearest) and not _pinning(placing)


def _pinning(placing: Placing) -> list[api.ResourceClaim]:
    """Allocated claims, which determine a node."""
    return [held.claim for held in placing.fit.held if nodes_of(held.claim)] if placing.fit is not None else []


def _phrases(placing: Placing, infos: Sequence[NodeInfo], checks: Sequence[Check]) -> list[str]:
    """What is wrong with similar nodes, with the first one's numbers."""
    info = infos[0]
    phrases = []
    for check in checks:
        text = check.text
        if check.reason is Reason.AFFINITY:
            text = f"does not match {nodes.node_terms(placing.pod, infos)}"
        elif check.reason is Reason.RESOURCES:
            roomiest = _roomiest(placing, infos, checks)
            lacking = shortages(placing.node_checks.profile, roomiest)
            alike = len({_room(placing, each) for each in infos}) == 1
            text = joined([_shortage(placing, roomiest, each, at_most=not alike) for each in lacking]) or text
        elif check.reason is Reason.PORTS:
            users = [
                each.pod for one in infos[:_GROUPS_MAX] for each in nodes.port_users(placing.what_if, placing.pod, one)
            ]
            makers = [maker.name for each in users if comes_back(each) and (maker := controller_of(each)) is not None]
            of = f" of {named('DaemonSet', makers)}" if makers else ""
            text = f"{text} by {named('pod', map(full_name, users))}{of}"
        elif check.reason is Reason.NEIGHBOURS and "anti-affinity" in text:
            apart = [
                full_name(each.pod)
                for one in infos[:_GROUPS_MAX]
                for each in nodes.kept_apart(placing.what_if, placing.pod, one)
            ]
            repelled = nodes.repelled_by(placing.what_if, placing.pod, infos[0])
            if repelled is not None:
                text = f"has {'pods' if len(apart) > 1 else 'a pod'} ({listed(apart)}) whose anti-affinity keeps {repelled.text}"
            else:
                text += f" ({named('pod', apart)} {'is' if len(apart) == 1 else 'are'} there)" if apart else ""
        elif check.reason is Reason.NEIGHBOURS and "affinity requires" in text:
            text += _wanted_neighbours(placing)
        elif check.reason is Reason.VOLUME:
            text = volumes.node_text(placing.what_if, placing.pod, info) or text
        phrases.append(
            text if len(infos) == 1 or (not placing.wanted and _are_all(placing, infos)) else of_several(text)
        )
    return phrases


def _wanted_neighbours(placing: Placing) -> str:
    """The pods that a pod's affinity requires nearby, and whether any exist."""
    affinity = placing.pod.spec.affinity
    found = affinity.pod_affinity if affinity is not None else None
    terms = found.required_during_scheduling_ignored_during_execution if found is not None else ()
    texts = []
    for term in terms:
        selector = term.label_selector
        if selector is None:
            continue
        requirements = selector_of(selector)
        labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.match_labels.items()))
        there = [
            info.pod
            for info in placing.what_if.cluster.pods.values()
            if requirements is not None and requirements.matches(info.pod.metadata.labels)
        ]
        what = labels or "such labels"
        homes = named("node", sorted({each.spec.node_name for each in there}))
        pods = f"{what}: {named('pod', map(full_name, there))} on {homes}"
        texts.append(pods if there else f"no pod with {what} has a node")
    return f" ({listed(texts)})" if texts else ""


def _roomiest(placing: Placing, infos: Sequence[NodeInfo], checks: Sequence[Check]) -> NodeInfo:
    """Of similar nodes, the one with the most of what they lack."""
    if all(check.reason is not Reason.RESOURCES for check in checks):
        return infos[0]
    return max(infos, key=lambda each: (_room(placing, each), _foreign(placing, each)))


def _foreign(placing: Placing, info: NodeInfo) -> int:
    """How much of what a node lacks its largest pod uses, replicas of the pod aside."""
    names = [each.resource for each in shortages(placing.node_checks.profile, info)]
    others = [each for each in info.pods.values() if not are_siblings(placing.pod, [each.pod])]
    return max((asks(each, name) for each in others for name in names[:1]), default=0)


def _room(placing: Placing, info: NodeInfo) -> tuple[int, ...]:
    """How much is free of a resource that a node lacks."""
    return tuple(Quantity.parse(each.free).nano for each in shortages(placing.node_checks.profile, info))


def _shortage(placing: Placing, info: NodeInfo, lacking: Shortage, *, at_most: bool = False) -> str:
    broken = unhealthy_text(info, lacking.resource, by_name=at_most)
    total = f" (of {lacking.allocatable})" if lacking.never and not broken else f" ({broken})" if broken else ""
    most = "at most " if at_most else ""
    if "/" in lacking.resource and is_withheld(info, lacking.resource):
        return withheld_text(placing.what_if, info, lacking.resource)
    text = f"has {most}{lacking.free} {lacking.resource} free{total}, but the pod needs {lacking.wanted}"
    devices, held = placing.what_if.claims.totals(lacking.resource, info)
    if devices > held and lacking.allocatable != "0":
        free = count(devices - held, "free device")
        return f"{text}: a device plugin offers it there, so the {free} that DRA has for it on the node cannot be used"
    if "/" not in lacking.resource or lacking.never:
        return text + (_not_preempted(placing, info, lacking) or _largest_user(placing, info, lacking))
    users = [full_name(each.pod) for each in info.pods.values() if lacking.resource in each.scalars]
    by = f"a device plugin offers {lacking.allocatable}, in use by {named('pod', users)}"
    others = _not_preempted(placing, info, lacking)
    if others and all(
        each.priority < (placing.pod.spec.priority or 0) for each in info.pods.values() if asks(each, lacking.resource)
    ):
        have = "has" if len(users) == 1 else "have"
        return f"{text} ({by}, which {have} a lower priority), and {_class_of(placing.pod)} has preemptionPolicy: {PREEMPT_NEVER}"
    return f"{text} ({by}){others}"


def _largest_user(placing: Placing, info: NodeInfo, lacking: Shortage) -> str:
    """A pod that alone uses enough of the missing resource to be in the way; empty if there is none."""
    if lacking.never:
        return ""
    least = missing(placing.node_checks.profile, info, lacking.resource)
    enough = [each for each in info.pods.values() if asks(each, lacking.resource) >= least]
    # A replica of the pod has as much right to the node.
    others = [each for each in enough if not are_siblings(placing.pod, [each.pod])]
    largest = max(others or enough, key=lambda each: asks(each, lacking.resource), default=None)
    if largest is None:
        return ""
    has = amount(lacking.resource, asks(largest, lacking.resource))
    return f" (pod {full_name(largest.pod)} uses {has} on node {info.name})"


def _not_preempted(placing: Placing, info: NodeInfo, lacking: Shortage) -> str:
    """Pods of lower priority that hold what the pod lacks but that it may not preempt."""
    pod = placing.pod
    if pod.spec.preemption_policy != PREEMPT_NEVER or lacking.never:
        return ""
    own = pod.spec.priority or 0
    others = [each for each in info.pods.values() if each.priority < own and asks(each, lacking.resource)]
    if not others:
        return ""
    names = named(
        "pod", [full_name(each.pod) for each in sorted(others, key=lambda each: -asks(each, lacking.resource))]
    )
    return f"; {names} on node {info.name} {'has' if len(others) == 1 else 'have'} a lower priority, but {_class_of(pod)} has preemptionPolicy: {PREEMPT_NEVER}"


def _class_of(pod: core_v1.Pod) -> str:
    """Where a pod has its preemptionPolicy from."""
    return f"PriorityClass {pod.spec.priority_class_name}" if pod.spec.priority_class_name else "the pod"


def _unknown_resource(placing: Placing) -> Diagnosis | None:
    """An extended resource that no node offers."""
    what_if = placing.what_if
    cluster = what_if.cluster
    for resource in placing.node_checks.profile.scalars:
        offered = any(info.allocatable_scalars.get(resource) for info in cluster.nodes.values())
        held = any(held_back(info, resource) for info in cluster.nodes.values())
        if "/" not in resource or offered or held or what_if.claims.backs(resource):
            continue
        forms = other_forms(what_if, resource)
        if forms is not None:
            text = f"it asks for {resource}, which no node offers: {forms.text}"
            named_so = [
                each for form in forms.offered for each in selectors.renamed_resource(placing.pod, resource, form)
            ]
            return Diagnosis(reason=Reason.RESOURCE_UNKNOWN, text=text, candidates=tuple(named_so), advice=forms.advice)
        meant = nearest(resource, selectors.known_resources(what_if, resource))
        implicit = resource.removeprefix(api.IMPLICIT_EXTENDED_RESOURCE_PREFIX)
        if implicit != resource:
            text = f"it asks for {resource}, but there is no DeviceClass {implicit}"
        else:
            text = f"it asks for {resource}, which no node offers (no device plugin) and no DeviceClass names in extendedResourceName"
        group = empty_group(what_if, placing.pod, [resource])
        if group is not None and not any(driver_pods.has_device_words(info.node) for info in cluster.nodes.values()):
            text = f"it asks for {resource}, which no node offers: {group.text}"
            return Diagnosis(reason=Reason.RESOURCE_UNKNOWN, text=text, advice=(group.advice,))
        own = selectors.classes_of_vendor(what_if, resource) if implicit == resource else []
        if meant is not None:
            text += f'; did you mean "{meant}"?'
        elif own:
            text += f"; DeviceClass {own[0]}, the one for such devices, does not set that field"
        candidates = [*selectors.renamed_resource(placing.pod, resource, meant)]
        advice: tuple[str, ...] = ()
        if implicit == resource:
            candidates += selectors.extended_resource(what_if, resource, meant)
            candidates += selectors.from_template(what_if, placing.pod, resource, placing.needed_of(resource))
            vendor = resource.partition("/")[0]
            if not any(driver.endswith(vendor) for driver in placing.published.drivers):
                # Beside a driver that publishes the same devices, a plugin would hand them out a second time.
                advice = (f"install the device plugin that offers {resource}",)
        return Diagnosis(reason=Reason.RESOURCE_UNKNOWN, text=text, candidates=tuple(candidates), advice=advice)
    return None


# --- claims that have their devices ---


def pinned(placing: Placing, here: Diagnosis | None) -> Diagnosis:
    """Claims are allocated where the pod cannot run. here: why it cannot run there, if devices are the cause."""
    assert placing.fit is not None
    parts: list[str] = []
    candidates: list[Candidate] = []
    for held in placing.fit.held:
        claim = held.claim
        if held.unavailable:
            return _never_ready(placing.what_if, claim)
        users = [
            full_name(pod) for pod in users_of(placing.what_if, claim) if pod.metadata.uid != placing.pod.metadata.uid
        ]
        who = possessor(placing.what_if, claim)
        used = f" for {who.text if who.ending and not who.running else named('pod', users)}" if users else ""
        homes = _homes(placing, held)
        apart = _one_for_all(placing, held, homes)
        if apart:
            parts.append(apart)
            candidates += holders.own_claims(placing.what_if, placing.pod, claim, Rank.FIX)
        parts.append(f"claim {full_name(claim)} is allocated{used} and can only be used on {named('node', homes)}")
        for name in homes[:_GROUPS_MAX]:
            parts += _at_home(placing, name, candidates)
        candidates = [_not_first(each, users) for each in candidates]
        candidates += holders.released(placing.what_if, placing.pod, claim)
    if here is not None:
        parts.append(here.text)
        candidates += here.candidates
    text = "; ".join(dict.fromkeys(parts))
    return Diagnosis(reason=Reason.PINNED, text=text, candidates=tuple(candidates))


def _one_for_all(placing: Placing, held: Held, homes: Collection[str]) -> str:
    """The field by which all pods of a workload share one claim, although they cannot run on one node; empty if that is not so."""
    what_if, pod, name = placing.what_if, placing.pod, held.claim.metadata.name
    running = possessor(what_if, held.claim).running
    others = [each for each in running if each.metadata.uid != pod.metadata.uid]
    workload = workload_of(what_if, pod)
    if not workload or not are_siblings(pod, others) or not any(_parts(placing, home, others) for home in homes):
        return ""
    at = next((at for at, each in enumerate(pod.spec.resource_claims) if each.resource_claim_name == name), None)
    if at is None:
        return ""
    above = "spec.jobTemplate.spec.template" if workload.startswith("CronJob ") else "spec.template"
    field = f"{above}.spec.resourceClaims[{at}].resourceClaimName: {name}"
    return f"{workload} names one claim for all its pods ({field}), which may not share a node"


def _parts(placing: Placing, home: str, others: Sequence[core_v1.Pod]) -> bool:
    """Whether it is the other pods of its workload that keep the pod from a node."""
    info = placing.what_if.cluster.nodes.get(home)
    uids = {each.metadata.uid for each in others}
    for check in placing.checks[home] if info is not None else ():
        assert info is not None
        if check.reason is Reason.NEIGHBOURS and "spread" in check.text:
            return True
        near: Sequence[PodInfo] = ()
        if check.reason is Reason.NEIGHBOURS and "anti-affinity" in check.text:
            near = nodes.kept_apart(placing.what_if, placing.pod, info)
        elif check.reason is Reason.PORTS:
            near = nodes.port_users(placing.what_if, placing.pod, info)
        if any(each.pod.metadata.uid in uids for each in near):
            return True
    return False


def _not_first(candidate: Candidate, users: Collection[str]) -> Candidate:
    """Deleting a pod that shares the claim comes last: the two are meant to run together."""
    shared = any(
        patch.action == "delete" and patch.kind == "Pod" and f"{patch.namespace}/{patch.name}" in users
        for patch in candidate.patches
    )
    return replace(candidate, rank=max(candidate.rank, Rank.ADMIN)) if shared else candidate


def _never_ready(what_if: WhatIfCluster, claim: api.ResourceClaim) -> Diagnosis:
    """Devices that their driver could not prepare for the node. The scheduler deallocates them by itself."""
    again = "the scheduler deallocates the claim and retries automatically; the driver's log says what failed"
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    failures = {name for result in results for name in result.binding_failure_conditions}
    for device in claim.status.devices:
        for condition in device.conditions:
            if condition.type in failures and condition.status == "True":
                said = f": {condition.message or condition.reason}" if condition.message or condition.reason else ""
                others, who = _others_of_pool(what_if, claim, device.driver, device.pool)
                text = (
                    f"driver {device.driver} could not make device {device.device} of claim {full_name(claim)} ready: condition "
                    f"{condition.type} is True{said}{others}"
                )
                which = f"device {device.device} of pool {device.pool}"
                repair = (
                    f"repair what condition {condition.type} reports of {which}, as the scheduler may choose it again; until then, "
                    f"create {taint_rule_text(DeviceID(device.driver, device.pool, device.device))}"
                )
                end = (f"end {named('pod', who)}, or wait until a device of the pool is free",) if who else ()
                return Diagnosis(reason=Reason.BINDING_CONDITIONS, text=text, advice=(repair, *end, again))
    missing = named("binding condition", sorted({name for result in results for name in result.binding_conditions}))
    text = f"the devices of claim {full_name(claim)} did not become ready in time: {missing} not True"
    return Diagnosis(reason=Reason.BINDING_CONDITIONS, text=text, advice=(again,))


def _others_of_pool(
    what_if: WhatIfCluster, claim: api.ResourceClaim, driver: str, pool: str
) -> tuple[str, tuple[str, ...]]:
    """That all other devices of a pool are in use, and by which pods; empty if some are free, or there are none."""
    held: dict[str, list[str]] = {}
    own: set[str] = set()
    for each in what_if.all(api.ResourceClaim):
        for result in each.status.allocation.devices.results if each.status.allocation is not None else ():
            if (result.driver, result.pool) == (driver, pool) and full_name(each) == full_name(claim):
                own.add(result.device)
            elif (result.driver, result.pool) == (driver, pool):
                held.setdefault(result.device, []).extend(full_name(user) for user in users_of(what_if, each))
    there = {
        device.name
        for slice_ in what_if.all(api.ResourceSlice)
        if (slice_.spec.driver, slice_.spec.pool.name) == (driver, pool)
        for device in slice_.spec.devices or ()
    }
    rest = sorted(there - own)
    if not rest or not set(rest) <= set(held):
        return "", ()
    who = tuple(dict.fromkeys(name for device in rest for name in held[device]))
    by = f" by {named('pod', who)}" if who else ""
    return (
        f"; {named('device', rest)}, the only other {'one' if len(rest) == 1 else 'ones'} of pool {pool}, {'is' if len(rest) == 1 else 'are'} in use{by}",
        who,
    )


def _homes(placing: Placing, held: Held) -> list[str]:
    named_nodes = nodes_of(held.claim)
    if named_nodes:
        return list(named_nodes)
    return [info.name for info in placing.what_if.cluster.nodes.values() if held.is_on(info.node)]


def _at_home(placing: Placing, name: str, candidates: list[Candidate]) -> list[str]:
    """What is wrong with a node where a claim is allocated."""
    info = placing.what_if.cluster.nodes.get(name)
    if info is None:
        return [f"node {name} no longer exists"]
    own = [check for check in placing.checks[name] if check.reason not in (Reason.PINNED, Reason.NO_DEVICES)]
    if not own:
        return []
    candidates += nodes.for_node(placing.what_if, placing.pod, info, own)
    return [f"node {name} {joined(_phrases(placing, [info], own))}"]
