"""A pod that fits on no node: each node's reasons, the nearest node, and the conclusion."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cached_property

from msgspec.structs import replace

from allot.core.advice.explain.causes.withheld import held_back, is_withheld
from allot.core.advice.explain.devices import OUTSIDE, DeviceSurvey, NodeDevices, Wanted, find_claim, users_of
from allot.core.advice.explain.diagnosis import place_of_claim
from allot.core.advice.explain.expressions import Published
from allot.core.advice.explain.holding import comes_back
from allot.core.advice.explain.nodes import Check, NodeChecks, grouped, shortages, untolerated
from allot.core.advice.explain.report import NearestMiss, NodeGroup, Reason, RequestReport
from allot.core.advice.explain.wording import count
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.explain import Obstacle, numbered
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import ClaimFit, Failure, NodeInfo

DEVICE_REASONS = (Reason.NO_DEVICES, Reason.SELECTOR_ERROR, Reason.PINNED)
SELECTING = (Obstacle.SELECTOR, Obstacle.SELECTOR_ERROR)
POOL = (Obstacle.POOL_INCOMPLETE, Obstacle.POOL_INVALID)
# How near an unsuitable device is, nearest first.
_NEARNESS = (
    Obstacle.TAINT,
    Obstacle.FEATURE,
    Obstacle.COUNTER,
    Obstacle.COMPATIBILITY_GROUP,
    Obstacle.CAPACITY,
    Obstacle.IN_USE,
    *SELECTING,
    *POOL,
)
# Reasons of the pod itself: its own selectors, and its allocated claims and volumes.
_WISHES = (Reason.AFFINITY, Reason.PINNED)
_VOLUME_ELSEWHERE = "PersistentVolume's node affinity"
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_PINNED_WEIGHT = 3
_NO_DEVICES_WEIGHT = 4
_FAR = 1000
_APART_NODES_MAX = 100
# The allocator's message about devices that a constraint separates.
VALUES = re.compile(
    r"the claim needs (?P<rule>the same|different values of) (?P<attribute>\S+), they have (?P<values>.*)"
)


def is_wish(check: Check) -> bool:
    """Whether the pod's own wishes or claims, not the node, are the reason."""
    return check.reason in _WISHES or (check.reason is Reason.VOLUME and _VOLUME_ELSEWHERE in check.text)


class Placing:
    """One pod, all nodes, all devices."""

    def __init__(self, what_if: WhatIfCluster, pod: core_v1.Pod, failure: Failure) -> None:
        self.what_if = what_if
        self.pod = pod
        self.failure = failure
        self.fit = failure.fit if isinstance(failure.fit, ClaimFit) else None
        self.node_checks = NodeChecks(what_if, pod, self.fit, failure.refusals)
        self.checks = self.node_checks.checks
        self.survey: DeviceSurvey | None = None
        if self.fit is not None:
            self.survey = DeviceSurvey(what_if, self.fit, what_if.cluster.nodes.values())
        self.published = Published(what_if.all(api.ResourceSlice))
        # Where the pod's own selectors allow it, and what it finds there.
        self._reach = self.survey
        allowed = [info for name, info in what_if.cluster.nodes.items() if self._is_allowed(name)]
        if self.fit is not None and allowed and len(allowed) < len(what_if.cluster.nodes) and self._has_wishes():
            self._reach = DeviceSurvey(what_if, self.fit, allowed)
        self._allowed = {info.name for info in allowed}
        self.nearest = self._nearest()

    def _has_wishes(self) -> bool:
        """Whether the pod itself excludes nodes."""
        return any(is_wish(check) for checks in self.checks.values() for check in checks)

    @cached_property
    def elsewhere(self) -> list[NodeInfo]:
        """Nodes with enough free devices that the pod itself excludes."""
        if self.survey is None or self._reach is self.survey or comes_back(self.pod):
            # A DaemonSet's pod is meant for one node.
            return []
        found = []
        for name, info in self.what_if.cluster.nodes.items():
            if not any(is_wish(check) and check.reason is not Reason.PINNED for check in self.checks[name]):
                continue
            if all(has_enough(each, name) for each in self.survey.wanted):
                found.append(info)
        return found

    @property
    def wanted(self) -> list[Wanted]:
        """Requests that need devices, and what exists for them where the pod may run."""
        return self._reach.wanted if self._reach is not None else []

    @cached_property
    def of_plugins(self) -> list[str]:
        """The extended resources that the pod asks for and device plugins offer."""
        return [
            name for name in self.node_checks.profile.scalars if "/" in name and not self.what_if.claims.backs(name)
        ]

    @cached_property
    def offering(self) -> set[str] | None:
        """The nodes whose device plugins offer all extended resources that the pod asks for; if there are none, those that have them and
        withhold them now; None if it asks for none, or no node has any."""
        nodes, asked = self.what_if.cluster.nodes, self.of_plugins
        found = {
            name for name, info in nodes.items() if all(info.allocatable_scalars.get(resource) for resource in asked)
        }
        held = {name for name, info in nodes.items() if all(held_back(info, resource) for resource in asked)}
        return found or held or None if asked else None

    @cached_property
    def withholding(self) -> set[str]:
        """The nodes that have what the pod asks for as extended resources, but do not offer it now."""
        nodes = self.what_if.cluster.nodes.values()
        return {info.name for info in nodes if any(is_withheld(info, resource) for resource in self.of_plugins)}

    @property
    def near(self) -> list[str]:
        """Names of the nodes that come closest."""
        return [info.name for info in self.nearest]

    def resource_of(self, wanted: Wanted) -> str:
        """The extended resource of a generated request; empty for a request from a claim."""
        if self.what_if.get(api.ResourceClaim, wanted.claim.metadata.name, wanted.claim.metadata.namespace) is not None:
            return ""
        asked = {name for each in self._containers for name in each.resources.requests}
        class_ = self.what_if.get(api.DeviceClass, wanted.class_name)
        explicit = class_.spec.extended_resource_name if class_ is not None else None
        implicit = api.IMPLICIT_EXTENDED_RESOURCE_PREFIX + wanted.class_name
        return next((name for name in (explicit, implicit) if name in asked), "") or ""

    @property
    def _containers(self) -> list[core_v1.Container]:
        return [*self.pod.spec.init_containers, *self.pod.spec.containers]

    def request_name(self, wanted: Wanted) -> str:
        """A request as the user knows it."""
        return self.resource_of(wanted) or f'request "{wanted.leaf.full_name}"'

    def request_text(self, wanted: Wanted) -> str:
        """A request with the object in which it is written."""
        place = place_of_claim(self.what_if, self.pod, wanted.claim)
        return f"{self.request_name(wanted)}{f' of {place.spoken}' if place is not None else ''}"

    def class_text(self, wanted: Wanted, matching: str = "", which: str = "") -> str:
        """`of class x`, phrased to follow `devices`. matching: more about them; which: the name of the only one."""
        resource = self.resource_of(wanted)
        notes = [*([f"class {wanted.class_name}"] if resource else []), *([which] if which else [])]
        shown = f" ({', '.join(notes)})" if notes else ""
        return f"for {resource}{matching}{shown}" if resource else f"of class {wanted.class_name}{matching}{shown}"

    # --- which node comes closest ---

    def _nearest(self) -> list[NodeInfo]:
        """The nodes that fail in the fewest and smallest ways."""
        weights = {name: self._weight(name, checks) for name, checks in self.checks.items()}
        if not weights:
            return []
        if self._allowed:
            # Nodes that the pod excludes matter only if there are no others.
            weights = {name: weight for name, weight in weights.items() if name in self._allowed}
        best = min(weights.values())
        found = [self.what_if.cluster.nodes[name] for name, weight in weights.items() if weight == best]
        # Those of the control plane are for no one, as long as others are as near.
        return [info for info in found if not self._is_reserved(info)] or found

    def _is_reserved(self, info: NodeInfo) -> bool:
        """Whether a node is the control plane's, and the pod does not tolerate that."""
        taints = untolerated(self.node_checks.profile, info)
        return any(taint.key in CONTROL_PLANE for taint in taints)

    def _is_allowed(self, name: str) -> bool:
        """Whether the pod's own selector and affinity, and the claims that it has already, admit a node that has devices of the
        classes it asks for."""
        if any(map(is_wish, self.checks[name])):
            return False
        if self.survey is None and self.offering is not None and name not in self.offering | self.withholding:
            return False
        return all((found := each.found.nodes.get(name)) is not None and found.in_class for each in self.decisive(name))

    def _weight(self, name: str, checks: Sequence[Check]) -> tuple[int, int, int]:
        weight = sum(_PINNED_WEIGHT if check.reason is Reason.PINNED else 1 for check in checks)
        if self.offering is not None and name not in self.offering:
            weight += _NO_DEVICES_WEIGHT
        lacking = 0
        for wanted in self.decisive(name):
            found = wanted.found.nodes.get(name)
            if found is None or not found.in_class:
                weight += _NO_DEVICES_WEIGHT
                continue
            needed = found.in_class if wanted.leaf.all_devices else wanted.leaf.count
            lacking += max(0, needed - found.free)
            # Devices of another kind are farther away than devices in use.
            weight += found.in_class - found.count(*SELECTING) < needed
        return weight, int(any(check.reason in DEVICE_REASONS for check in checks)), lacking

    def decisive(self, name: str) -> list[Wanted]:
        """The requests; of alternatives, the one nearest to fitting on the node."""
        best: dict[tuple[str, str], tuple[int, Wanted]] = {}
        for wanted in self.wanted:
            found = wanted.found.nodes.get(name)
            lacking = _FAR if found is None or not found.in_class else max(0, wanted.leaf.count - found.free)
            key = (wanted.claim_name, wanted.leaf.parent or wanted.leaf.name)
            if key not in best or lacking < best[key][0]:
                best[key] = (lacking, wanted)
        return [wanted for _, wanted in best.values()]

    # --- the report's parts ---

    def groups(self, *, without: str = "", nothing_wrong: str = "") -> tuple[NodeGroup, ...]:
        """Nodes by what is wrong with them, except one. nothing_wrong: the text for those that fit."""
        return grouped({name: self._texts(name) or [nothing_wrong] for name in self.checks if name != without})

    def _texts(self, name: str) -> list[str]:
        return [
            self._device_text(name) if check.reason is Reason.NO_DEVICES and self.wanted else check.text
            for check in self.checks[name]
        ]

    def _device_text(self, name: str) -> str:
        parts = []
        for wanted in self.decisive(name):
            found = wanted.found.nodes.get(name) or self._anywhere(wanted, name)
            if found is None or not found.in_class:
                parts.append(f"publishes no devices of class {wanted.class_name}")
                continue
            if found.free >= max(wanted.leaf.count, 1) and not wanted.leaf.all_devices:
                continue
            reasons = [numbered(number, text) for obstacle, text, number in found.obstacles if obstacle not in OUTSIDE]
            if found.free:
                needed = "all" if wanted.leaf.all_devices else wanted.leaf.count
                reasons.append(f"{found.free} free, {needed} needed")
            parts.append(f"{count(found.in_class, 'device')} of class {wanted.class_name}: {'; '.join(reasons)}")
        return "; ".join(dict.fromkeys(parts)) or self._apart_text(name)

    def _anywhere(self, wanted: Wanted, name: str) -> NodeDevices | None:
        """What a node that the pod itself excludes has for a request."""
        key = (wanted.claim_name, wanted.leaf.full_name)
        everywhere = self.survey.wanted if self.survey is not None else []
        same = (each for each in everywhere if (each.claim_name, each.leaf.full_name) == key)
        return next((each.found.nodes.get(name) for each in same), None)

    def _apart_text(self, name: str) -> str:
        """Why the free devices of a node cannot be combined; too slow for large clusters."""
        text = "its free devices cannot be used together"
        if self.survey is None or len(self.checks) > _APART_NODES_MAX:
            return text
        reasons = self.survey.on_node(self.what_if.cluster.nodes[name])
        found = [(reason.request, VALUES.fullmatch(reason.together)) for reason in reasons]
        shown = [
            f"request {request}: {each['attribute']} {each['values']}" for request, each in found if each is not None
        ]
        return f"{text} ({'; '.join(shown)})" if shown else text

    def miss(self) -> NearestMiss | None:
        """The node that comes closest, and what is wrong with it."""
        if not self.nearest:
            return None
        info = self.nearest[0]
        on_devices = any(check.reason in DEVICE_REASONS for check in self.checks[info.name])
        device = self._nearest_device(info) if on_devices else ""
        return NearestMiss(node=info.name, reasons=tuple(self._values(info)), device=device)

    def _nearest_device(self, info: NodeInfo) -> str:
        for wanted in self.decisive(info.name):
            tallies = [
                (_NEARNESS.index(tally.reason.obstacle), tally.reason.device)
                for tally in wanted.found.tallies.values()
                if info.name in tally.nodes and tally.reason.obstacle in _NEARNESS
            ]
            if tallies:
                return min(tallies)[1]
        return ""

    def _values(self, info: NodeInfo) -> list[str]:
        """What is wrong with a node, with its own numbers."""
        texts = []
        for check, text in zip(self.checks[info.name], self._texts(info.name), strict=True):
            if check.reason is Reason.RESOURCES:
                lacking = shortages(self.node_checks.profile, info)
                shown = [f"{each.resource}: {each.free} free, {each.wanted} needed" for each in lacking]
                text = "; ".join(shown) or text
            texts.append(text)
        return texts

    def requests(self) -> tuple[RequestReport, ...]:
        """Requests in numbers."""
        if self.survey is None:
            return ()
        reasons = self.survey.on_node(self.nearest[0]) if self.nearest else ()
        together = {each.request: each.together for each in reasons if each.together}
        reports = self.survey.reports(together)
        found: dict[str, RequestReport] = {}
        for wanted, report in zip(self.survey.wanted, reports, strict=True):
            resource = self.resource_of(wanted)
            if resource:
                # Containers have a generated request each, which the user does not know.
                report = replace(report, resource=resource, needed=self.needed_of(resource))
            found.setdefault(resource or f"{report.claim} {report.request}", report)
        return tuple(found.values())

    def needed_of(self, resource: str) -> int:
        """How much of an extended resource the pod needs at once."""
        return self.node_checks.profile.scalars.get(resource, 0)


def has_enough(wanted: Wanted, node: str) -> bool:
    """Whether a node has enough free devices for a request."""
    found = wanted.found.nodes.get(node)
    if found is None or not found.in_class:
        return False
    return found.free >= (found.in_class if wanted.leaf.all_devices else wanted.leaf.count)


def users_on(placing: Placing, wanted: Wanted, names: Collection[str]) -> list[core_v1.Pod]:
    """The pods on some nodes that hold devices which a request could use."""
    users = [
        user
        for tally in wanted.found.of(Obstacle.IN_USE)
        for name in tally.claims
        if (claim := find_claim(placing.what_if, name)) is not None
        for user in users_of(placing.what_if, claim)
        if user.spec.node_name in names
    ]
    alike = placing.pod.metadata.labels
    # Replicas of the pod come last: the others may fit where replicas do not.
    return sorted(users, key=lambda each: (each.metadata.labels == alike, full_name(each)))
