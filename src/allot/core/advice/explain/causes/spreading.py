"""Topology spread constraints that allow only places where the pod may not run: domains count although their nodes are cordoned, tainted
or not selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.diagnosis import Candidate, Rank, patch_of
from allot.core.advice.explain.nodes import Check
from allot.core.advice.explain.remedies.nodes import uncordoned
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import joined, listed, named, of_several
from allot.core.advice.what_if import as_json
from allot.core.scheduling import SCHEDULE_ANYWAY, NodeInfo, Spread
from allot.core.scheduling.plugins import pod_topology_spread

_TAINTS = (Reason.CORDONED, Reason.NODE_TAINT, Reason.NODE_NOT_READY)
_EXCLUDING = (*_TAINTS, Reason.AFFINITY)
_DOMAINS_SHOWN_MAX = 4


class Crowded(NamedTuple):
    """A constraint whose only domains with room have no node for the pod. counts: pods by domain; checks: why, by node."""

    spread: Spread
    counts: Mapping[str, int]
    roomy: Sequence[str]
    nodes: Sequence[NodeInfo]
    checks: Mapping[str, Check]

    @property
    def text(self) -> str:
        """Phrased to follow "is pending because"."""
        spread = self.spread
        shown = [f"{number} in {value}" for value, number in sorted(self.counts.items())]
        groups: dict[str, list[str]] = {}
        for info in self.nodes:
            groups.setdefault(self.checks[info.name].text, []).append(info.name)
        lone = len(self.nodes) == 1 and len(self.roomy) == 1
        why = [
            f"{'its only ' if lone else ''}{named('node', names)} {text if len(names) == 1 else of_several(text)}"
            for text, names in groups.items()
        ]
        policies = joined([f"{each}: Ignore" for each in self.policies])
        counts = (
            f"; {joined(self.roomy)} still {'count' if len(self.roomy) > 1 else 'counts'} ({policies})"
            if policies
            else ""
        )
        return (
            f"its topology spread constraint on {spread.topology_key} (maxSkew {spread.max_skew}) allows another pod only in {joined(self.roomy)} "
            f"(now {listed(shown, _DOMAINS_SHOWN_MAX)}), and {joined(why)}{counts}"
        )

    def is_all(self, placing: Placing) -> bool:
        """Whether nothing else is wrong with the nearest nodes."""
        own = {info.name for info in self.nodes}
        return all(
            info.name in own or all(check.reason is Reason.NEIGHBOURS for check in placing.checks[info.name])
            for info in placing.nearest
        )

    @property
    def policies(self) -> list[str]:
        """Fields of the constraint by which nodes that the pod may not have count."""
        reasons = {check.reason for check in self.checks.values()}
        found = ["nodeTaintsPolicy"] if not self.spread.honors_taints and reasons & set(_TAINTS) else []
        return [
            *found,
            *(["nodeAffinityPolicy"] if not self.spread.honors_affinity and Reason.AFFINITY in reasons else []),
        ]


def crowded(placing: Placing) -> Crowded | None:
    """The constraint that leaves the pod only nodes it may not have; None if there is none."""
    cluster = placing.what_if.cluster
    profile = placing.node_checks.profile
    spreads = profile.hard_spreads
    nodes = [info for info in cluster.nodes.values() if all(spread.topology_key in info.labels for spread in spreads)]
    for spread in spreads:
        pods = cluster.affinity_index.on_nodes(profile.namespace, spread.selector)
        counts: dict[str, int] = {}
        for info in nodes:
            if pod_topology_spread.is_counted(spread, profile, info):
                value = info.labels[spread.topology_key]
                counts[value] = counts.get(value, 0) + pods.get(info.name, 0)
        itself = spread.selector is not None and spread.selector.matches(profile.labels)
        most = min(counts.values(), default=0) + spread.max_skew - itself
        roomy = sorted(value for value, number in counts.items() if number <= most)
        there = [info for info in nodes if info.labels[spread.topology_key] in roomy]
        checks = {info.name: found for info in there if (found := _excluding(placing.checks[info.name])) is not None}
        if there and len(checks) == len(there) and len(roomy) < len(counts) >= spread.min_domains:
            return Crowded(spread, counts, roomy, there, checks)
    return None


def _excluding(checks: Sequence[Check]) -> Check | None:
    return next((check for check in checks if check.reason in _EXCLUDING), None)


def candidates(placing: Placing, found: Crowded) -> Iterator[Candidate]:
    """A node of the domain that may have the pod is let in again, or the domain does not count."""
    for info in found.nodes:
        if [check.reason for check in placing.checks[info.name]] == [Reason.CORDONED]:
            text = f"uncordon node {info.name}, if its maintenance is over"
            yield Candidate(rank=Rank.RELAX - 2, text=text, patches=(uncordoned(info),))
            break
    policies = found.policies
    if not policies:
        return
    metadata, key = placing.pod.metadata, found.spread.topology_key
    rules = as_json(placing.pod)["spec"].get("topologySpreadConstraints", [])
    for index, rule in enumerate(rules):
        if rule.get("topologyKey") != key or rule.get("whenUnsatisfiable") == SCHEDULE_ANYWAY:
            continue
        operations = [
            {"op": "add", "path": f"/spec/topologySpreadConstraints/{index}/{each}", "value": "Honor"}
            for each in policies
        ]
        patch = patch_of("Pod", metadata.name, *operations, namespace=metadata.namespace, recreate=True)
        fields = joined([f"{each}: Honor" for each in policies])
        text = f"set {fields} in the pod's topology spread constraint on {key}, so that {joined(found.roomy)} does not count"
        yield Candidate(rank=Rank.RELAX - 1, text=text, patches=(patch,))
        return
