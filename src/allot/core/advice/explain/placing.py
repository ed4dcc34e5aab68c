"""Why the decision found no node: which node comes closest, what is wrong with it, and with the devices of the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain import remedies
from allot.core.advice.explain.devices import DeviceSurvey, Wanted, nodes_of, users_of
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, place_of_claim
from allot.core.advice.explain.expressions import Published, Remedy
from allot.core.advice.explain.expressions import remedies as expression_remedies
from allot.core.advice.explain.nodes import Check, NodeChecks, grouped, shortages
from allot.core.advice.explain.report import NearestMiss, NodeGroup, Reason, RequestReport
from allot.core.advice.explain.wording import count, joined, listed, named, numbered
from allot.core.advice.explain.world import World
from allot.core.allocation.devices import DeviceEntry, DeviceID
from allot.core.explain import Obstacle
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling.devices import DeviceQuestion
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.nodeinfo import NodeInfo

_DEVICE_REASONS = (Reason.NO_DEVICES, Reason.SELECTOR_ERROR, Reason.PINNED)
# What stands in the way of devices that the selectors accept, in the order in which it is told if several would explain it.
_ON_DEVICES = {
    Obstacle.TAINT: Reason.TAINT,
    Obstacle.FEATURE: Reason.FEATURE,
    Obstacle.COUNTER: Reason.COUNTERS,
    Obstacle.COMPATIBILITY_GROUP: Reason.COUNTERS,
    Obstacle.CAPACITY: Reason.CAPACITY,
    Obstacle.IN_USE: Reason.IN_USE,
}
_SELECTING = (Obstacle.SELECTOR, Obstacle.SELECTOR_ERROR)
_POOL = (Obstacle.POOL_INCOMPLETE, Obstacle.POOL_INVALID)


class Placing:
    """One pod that no node took."""

    def __init__(self, world: World, pod: core_v1.Pod, failure: Failure) -> None:
        self.world = world
        self.pod = pod
        self.failure = failure
        self.question = failure.question if isinstance(failure.question, DeviceQuestion) else None
        self.checks = NodeChecks(world, pod, self.question)
        nodes = world.cluster.nodes
        self.survey = DeviceSurvey(world, self.question, nodes.values()) if self.question is not None else None
        self.published = Published(world.all(api.ResourceSlice))
        self.nearest = self._nearest()

    # --- which node comes closest ---

    def _nearest(self) -> list[NodeInfo]:
        """The nodes that fail in the fewest and smallest ways."""
        nodes = self.world.cluster.nodes
        weights = {name: self._weight(name, checks) for name, checks in self.checks.checks.items()}
        if not weights:
            return []
        best = min(weights.values())
        return [nodes[name] for name, weight in weights.items() if weight == best]

    def _weight(self, name: str, checks: Sequence[Check]) -> tuple[int, int, int]:
        weight = lacking = 0
        for check in checks:
            weight += 3 if check.reason is Reason.PINNED else 1
        devices = any(check.reason in _DEVICE_REASONS for check in checks)
        if self.survey is not None:
            for wanted in self._decisive(name):
                found = wanted.found.nodes.get(name)
                if found is None or not found.in_class:
                    weight += 4
                else:
                    needed = found.in_class if wanted.leaf.all_devices else wanted.leaf.count
                    lacking += max(0, needed - found.free)
                    # Devices that are there but of another kind are farther away than such that are only taken.
                    other = sum(number for obstacle, _, number in found.obstacles if obstacle in _SELECTING)
                    weight += found.in_class - other < needed
        return weight, int(devices), lacking

    def _decisive(self, name: str) -> list[Wanted]:
        """The requests; of alternatives the one that comes closest on the node."""
        assert self.survey is not None
        best: dict[tuple[str, str], tuple[int, Wanted]] = {}
        for wanted in self.survey.wanted:
            found = wanted.found.nodes.get(name)
            needed = wanted.leaf.count
            lacking = 1000 if found is None or not found.in_class else max(0, needed - found.free)
            key = (wanted.claim_name, wanted.leaf.parent or wanted.leaf.name)
            if key not in best or lacking < best[key][0]:
                best[key] = (lacking, wanted)
        return [wanted for _, wanted in best.values()]

    # --- the report's parts ---

    def groups(self) -> tuple[NodeGroup, ...]:
        """Nodes by what is wrong with them."""
        return grouped({name: self._texts(name, checks) for name, checks in self.checks.checks.items()})

    def _texts(self, name: str, checks: Sequence[Check]) -> list[str]:
        texts = []
        for check in checks:
            plain = check.reason is Reason.NO_DEVICES and self.survey is not None and self.survey.wanted
            texts.append(self._device_text(name) if plain else check.text)
        return texts

    def _device_text(self, name: str) -> str:
        parts = []
        for wanted in self._decisive(name):
            found = wanted.found.nodes.get(name)
            if found is None or not found.in_class:
                parts.append(f"has no devices of class {wanted.class_name}")
                continue
            if found.free >= max(wanted.leaf.count, 1) and not wanted.leaf.all_devices:
                continue
            obstacles = [
                numbered(number, text)
                for obstacle, text, number in found.obstacles
                if obstacle not in (Obstacle.NOT_IN_CLASS, Obstacle.NOT_ON_NODE)
            ]
            if found.free:
                obstacles.append(f"{found.free} free, {wanted.leaf.count} needed")
            parts.append(f"{count(found.in_class, 'device')} of class {wanted.class_name}: {'; '.join(obstacles)}")
        return "; ".join(dict.fromkeys(parts)) or "its free devices cannot be used together"

    def miss(self) -> NearestMiss | None:
        """The node that comes closest, and what is wrong with it."""
        if not self.nearest:
            return None
        info = self.nearest[0]
        return NearestMiss(node=info.name, reasons=tuple(self._values(info)), device=self._nearest_device(info))

    def _nearest_device(self, info: NodeInfo) -> str:
        if self.survey is None:
            return ""
        order = {obstacle: position for position, obstacle in enumerate((*_ON_DEVICES, *_SELECTING, *_POOL))}
        for wanted in self._decisive(info.name):
            tallies = [
                (order.get(tally.reason.obstacle, 99), tally.reason.device)
                for tally in wanted.found.tallies.values()
                if info.name in tally.nodes and tally.reason.obstacle in order
            ]
            if tallies:
                return min(tallies)[1]
        return ""

    def _values(self, info: NodeInfo) -> list[str]:
        """What is wrong with a node, with its own numbers."""
        texts = []
        for check, text in zip(
            self.checks.checks[info.name], self._texts(info.name, self.checks.checks[info.name]), strict=True
        ):
            if check.reason is Reason.RESOURCES:
                lacks = [
                    f"{each.resource}: {each.free} free, {each.wanted} needed"
                    for each in shortages(self.checks.profile, info)
                ]
                text = "; ".join(lacks) or text
            texts.append(text)
        return texts

    def requests(self) -> tuple[RequestReport, ...]:
        """Requests in numbers."""
        if self.survey is None:
            return ()
        together = ""
        if self.nearest:
            together = next((reason.together for reason in self.survey.on_node(self.nearest[0]) if reason.together), "")
        return self.survey.reports(together)

    # --- the cause ---

    def diagnosis(self) -> Diagnosis:
        """Why, and what may help."""
        if not self.world.cluster.nodes:
            return self._no_nodes()
        info = self.nearest[0]
        checks = self.checks.checks[info.name]
        on_devices = [check for check in checks if check.reason in _DEVICE_REASONS]
        if self.question is not None and self.question.held and any(check.reason is Reason.PINNED for check in checks):
            return self._pinned_elsewhere()
        if on_devices and self.survey is not None:
            return self._device_cause(info)
        return self._node_cause(checks)

    def _no_nodes(self) -> Diagnosis:
        text = "the cluster has no nodes"
        classes = self._class_names()
        if classes:
            text += f", so that there are no devices of {named('class', classes)} either"
        return Diagnosis(reason=Reason.NO_NODES, text=text, advice=("add a node",))

    def _class_names(self) -> list[str]:
        names = []
        for record in self.world.claims.claims_of(self.pod):
            claim = self.world.get(api.ResourceClaim, record.name, record.namespace)
            if claim is not None:
                for request in claim.spec.devices.requests:
                    leaves = [request.exactly, *request.first_available]
                    names += [leaf.device_class_name for leaf in leaves if leaf is not None]
        return list(dict.fromkeys(names))

    # --- nodes ---

    def _node_cause(self, checks: Sequence[Check]) -> Diagnosis:
        """Devices could be had, but the nodes that have them are out of reach for other reasons."""
        info = self.nearest[0]
        names = [each.name for each in self.nearest]
        reasons = {check.reason for check in checks}
        which = self._which(names)
        text = f"{which} {joined(self._phrases(info, checks, len(names)))}"
        candidates = remedies.for_node(self.world, self.pod, info, checks)
        candidates += remedies.another_node(self.world, info)
        reason = next(iter(reasons)) if len(reasons) == 1 else Reason.SEVERAL
        return Diagnosis(reason=reason, text=text, candidates=tuple(candidates))

    def _which(self, names: Sequence[str]) -> str:
        total = len(self.world.cluster.nodes)
        wanted = self.survey.wanted if self.survey is not None else []
        if wanted:
            what = f"free devices of {named('class', [each.class_name for each in wanted])}"
            if len(names) == 1:
                return f"node {names[0]}, {'the only node' if total == 1 else 'the only one'} with {what},"
            return f"{named('node', names)}, the ones with {what},"
        if self.question is not None and self.question.held:
            claims = [held.claim for held in self.question.held if nodes_of(held.claim)]
            if claims:
                where = listed(nodes_of(claims[0]))
                return f"claim {_name(claims[0])} is allocated on node {where}, and that node"
        if len(names) == total:
            return "the only node" if total == 1 else f"each of the {total} nodes"
        return f"{named('node', names)}, nearest of {total} nodes,"

    def _phrases(self, info: NodeInfo, checks: Sequence[Check], number: int) -> list[str]:
        phrases = []
        for check in checks:
            text = check.text
            if check.reason is Reason.AFFINITY:
                text = f"does not match {remedies.node_terms(self.pod, info)}"
            elif check.reason is Reason.RESOURCES:
                lacks = [
                    f"has {each.free} of {each.resource} free"
                    + (f" (of {each.allocatable})" if each.never else "")
                    + f", but the pod needs {each.wanted}"
                    for each in shortages(self.checks.profile, info)
                ]
                text = joined(lacks) or text
            phrases.append(_plural(text) if number > 1 else text)
        return phrases

    # --- claims that have their devices ---

    def _pinned_elsewhere(self) -> Diagnosis:
        """A claim has its devices where the pod cannot be, or two claims have theirs in different places."""
        assert self.question is not None
        held = [each for each in self.question.held if nodes_of(each.claim)] or list(self.question.held)
        parts, details = [], []
        candidates: list[Candidate] = []
        for each in held:
            claim = each.claim
            users = [
                f"{pod.metadata.namespace}/{pod.metadata.name}"
                for pod in users_of(self.world, claim)
                if pod is not self.pod
            ]
            used = f" for {named('pod', users)}" if users else ""
            if each.unavailable:
                parts.append(f"the devices of claim {_name(claim)} did not become ready in time (binding conditions)")
                continue
            where = nodes_of(claim)
            parts.append(
                f"claim {_name(claim)} is allocated on {named('node', where)}{used}"
                if where
                else f"claim {_name(claim)} has devices that only some nodes can reach{used}"
            )
            for name in where:
                home = self.world.cluster.nodes.get(name)
                if home is None:
                    details.append(f"node {name} does not exist any more")
                    continue
                own = [check for check in self.checks.checks[name] if check.reason is not Reason.PINNED]
                if own:
                    parts.append(f"node {name} {joined(self._phrases(home, own, 1))}")
                    candidates += remedies.for_node(self.world, self.pod, home, own)
            candidates += remedies.released(self.world, self.pod, claim)
        return Diagnosis(
            reason=Reason.PINNED, text=", but ".join(parts), details=tuple(details), candidates=tuple(candidates)
        )

    # --- devices ---

    def _device_cause(self, info: NodeInfo) -> Diagnosis:
        assert self.survey is not None
        if not self.survey.wanted:
            return self._plain_cause(info)
        failing = [wanted for wanted in self.survey.wanted if not self._is_met(wanted)]
        alternatives = [wanted for wanted in failing if wanted.leaf.parent is not None]
        if failing and failing[0].leaf.parent is not None and len(alternatives) > 1:
            return self._no_alternative(failing[0].leaf.parent)
        if failing:
            return self._request_cause(failing[0])
        return self._together(info)

    def _is_met(self, wanted: Wanted) -> bool:
        """Whether some node has enough for the request, looked at alone."""
        if wanted.leaf.all_devices:
            return any(found.in_class and found.free == found.in_class for found in wanted.found.nodes.values())
        return any(found.free >= wanted.leaf.count for found in wanted.found.nodes.values())

    def _plain_cause(self, info: NodeInfo) -> Diagnosis:
        texts = [check.text for check in self.checks.checks[info.name]]
        return Diagnosis(reason=Reason.NO_DEVICES, text="; ".join(texts))

    def _no_alternative(self, request: str) -> Diagnosis:
        assert self.survey is not None
        mine = [wanted for wanted in self.survey.wanted if wanted.leaf.parent == request]
        parts: list[str] = []
        candidates: list[Candidate] = []
        for wanted in mine:
            cause = self._request_cause(wanted)
            parts.append(f"{wanted.leaf.name}: {cause.text}")
            candidates += cause.candidates
        text = f'none of the {len(mine)} alternatives of request "{request}" can be had ({"; ".join(parts)})'
        return Diagnosis(reason=Reason.NO_DEVICES, text=text, candidates=tuple(candidates))

    def _request_cause(self, wanted: Wanted) -> Diagnosis:
        """Why one request cannot be met, looked at alone."""
        found = wanted.found
        if not found.published:
            return self._nothing_published(wanted)
        if not found.in_class and not found.count(Obstacle.SELECTOR_ERROR):
            return self._nothing_in_class(wanted)
        errors = found.of(Obstacle.SELECTOR_ERROR)
        if errors and self.failure.status is not None:
            return self._selector_fails(wanted)
        accepted = found.in_class - found.count(*_SELECTING, *_POOL)
        pools = found.of(*_POOL)
        most = max((each.in_class - _numbers(each, *_SELECTING, *_POOL) for each in found.nodes.values()), default=0)
        if pools and (wanted.leaf.all_devices or most < wanted.leaf.count):
            return self._pool(wanted)
        if not accepted:
            return self._selector(wanted) if found.count(Obstacle.SELECTOR) else self._selector_fails(wanted)
        if not wanted.leaf.all_devices and most < wanted.leaf.count:
            return self._too_few(wanted, most)
        return self._taken(wanted)

    def _asks(self, wanted: Wanted) -> str:
        number = "all devices" if wanted.leaf.all_devices else count(wanted.leaf.count, "device")
        return f'request "{wanted.leaf.full_name}" needs {number} of class {wanted.class_name}'

    def _nothing_published(self, wanted: Wanted) -> Diagnosis:
        slices = self.world.all(api.ResourceSlice)
        expected = _expected_drivers(self.world, wanted.class_name)
        driver = f"driver {listed(expected)}" if expected else "no driver"
        if not slices:
            text = (
                f"no driver has published any devices (there are no ResourceSlices): {driver} does not run on any node"
                if expected
                else "no driver has published any devices: there are no ResourceSlices"
            )
        elif not any(slice_.spec.devices for slice_ in slices):
            text = f"the ResourceSlices of {named('driver', sorted({each.spec.driver for each in slices}))} have no devices in them"
        else:
            nodes = sorted({slice_.spec.node_name or "" for slice_ in slices if slice_.spec.devices})
            text = f"all published devices are for {named('node', [name for name in nodes if name])}, which the cluster does not have"
        text += f", and {self._asks(wanted)}"
        return Diagnosis(
            reason=Reason.NO_DRIVER,
            text=text,
            candidates=tuple(remedies.renamed_nodes(self.world)),
            advice=(
                f"install {driver} on the nodes that have the hardware"
                if expected
                else "install the driver of the devices",
                "add a node that has the devices",
            ),
        )

    def _nothing_in_class(self, wanted: Wanted) -> Diagnosis:
        class_ = self.world.get(api.DeviceClass, wanted.class_name)
        tallies = wanted.found.of(Obstacle.NOT_IN_CLASS)
        text = f"none of the {count(wanted.found.published, 'device')} in the cluster is in DeviceClass {wanted.class_name}"
        if tallies:
            text += f": {'; '.join(numbered(tally.count, tally.reason.text) for tally in tallies[:2])}"
        found: list[Remedy] = []
        candidates: list[Candidate] = []
        if class_ is not None:
            for index, selector in enumerate(class_.spec.selectors):
                if selector.cel is None:
                    continue
                mine = expression_remedies(selector.cel.expression, self.published)
                found += mine
                candidates += remedies.class_selector(class_, index, mine)
        problem = next((remedy.problem for remedy in found if remedy.problem), "")
        if problem:
            text = f"DeviceClass {wanted.class_name} {problem}"
        candidates += remedies.other_class(self.world, self.pod, wanted)
        return Diagnosis(reason=Reason.NOT_IN_CLASS, text=text, candidates=tuple(candidates))

    def _entries(self, wanted: Wanted, *obstacles: Obstacle) -> list[DeviceEntry]:
        inventory = self.world.claims.inventory
        found: list[DeviceEntry] = []
        for tally in wanted.found.of(*obstacles):
            for text in tally.devices:
                found += inventory.devices_named(_device_id(text))
        return found

    def _selector(self, wanted: Wanted) -> Diagnosis:
        """Devices are there, but the request's own selectors accept none of them."""
        tallies = wanted.found.of(Obstacle.SELECTOR)
        seen = "; ".join(numbered(tally.count, tally.reason.text) for tally in tallies[:3])
        problem, candidates = self._own_selectors(wanted, ())
        text = f'no device of class {wanted.class_name} satisfies the selectors of request "{wanted.leaf.full_name}": {seen}'
        if problem:
            text = f'the selector of request "{wanted.leaf.full_name}" {problem}, so that no device of class {wanted.class_name} satisfies it'
        candidates += remedies.another_node(self.world, None)
        return Diagnosis(
            reason=Reason.SELECTOR, text=text, details=(seen,) if problem else (), candidates=tuple(candidates)
        )

    def _own_selectors(self, wanted: Wanted, devices: Sequence[DeviceEntry]) -> tuple[str, list[Candidate]]:
        place = place_of_claim(self.world, self.pod, wanted.claim)
        problem = ""
        candidates: list[Candidate] = []
        for index, selector in enumerate(wanted.leaf.request.selectors):
            if selector.cel is None:
                continue
            mine = expression_remedies(selector.cel.expression, self.published, devices)
            problem = problem or next((remedy.problem for remedy in mine if remedy.problem), "")
            if place is not None:
                candidates += remedies.own_selector(place, wanted, index, mine)
        if place is not None and wanted.leaf.request.selectors:
            candidates += remedies.without_selectors(place, wanted)
        return problem, candidates

    def _selector_fails(self, wanted: Wanted) -> Diagnosis:
        """A selector fails with an error on some device, which ends the attempt."""
        tallies = wanted.found.of(Obstacle.SELECTOR_ERROR)
        tally = tallies[0] if tallies else None
        devices = self._entries(wanted, Obstacle.SELECTOR_ERROR)
        problem, candidates = self._own_selectors(wanted, devices)
        where = f'the selector of request "{wanted.leaf.full_name}"'
        class_ = self.world.get(api.DeviceClass, wanted.class_name)
        if class_ is not None and self._is_class_at_fault(class_):
            where = f"the selector of DeviceClass {wanted.class_name}"
            problem, candidates = "", []
            for index, selector in enumerate(class_.spec.selectors):
                if selector.cel is not None:
                    mine = expression_remedies(selector.cel.expression, self.published, devices)
                    problem = problem or next((remedy.problem for remedy in mine if remedy.problem), "")
                    candidates += remedies.class_selector(class_, index, mine)
        said = tally.reason.text.removeprefix("fail a selector with an error: ") if tally is not None else ""
        said = said or (", ".join(self.failure.status.reasons) if self.failure.status is not None else "")
        text = f"{where} {problem}" if problem else f"{where} fails with an error"
        if tally is not None:
            text += f": it fails on {count(tally.count, 'device')} with the error {said!r}, and an error on one device ends the attempt"
        else:
            text += f": {said}"
        return Diagnosis(reason=Reason.SELECTOR_ERROR, text=text, candidates=tuple(candidates))

    def _is_class_at_fault(self, class_: api.DeviceClass) -> bool:
        status = self.failure.status
        if status is not None:
            return any(reason.startswith(f"class {class_.metadata.name}:") for reason in status.reasons)
        return False

    def _pool(self, wanted: Wanted) -> Diagnosis:
        tally = wanted.found.of(*_POOL)[0]
        id_ = _device_id(tally.reason.device)
        text, details, candidates = remedies.pool(self.world, id_.driver, id_.pool)
        if tally.reason.obstacle is Obstacle.POOL_INVALID:
            text = tally.reason.text.removeprefix("are in ")
        reason = Reason.POOL_INCOMPLETE if tally.reason.obstacle is Obstacle.POOL_INCOMPLETE else Reason.POOL_INVALID
        text = f"{text}, so that its {count(tally.count, 'device')} cannot be used"
        return Diagnosis(reason=reason, text=text, details=details, candidates=tuple(candidates))

    def _too_few(self, wanted: Wanted, most: int) -> Diagnosis:
        found = wanted.found
        selecting = found.count(*_SELECTING)
        best = max(
            found.nodes, key=lambda name: found.nodes[name].in_class - _numbers(found.nodes[name], *_SELECTING, *_POOL)
        )
        what = f"devices of class {wanted.class_name}" + (" that satisfy its selectors" if selecting else "")
        text = f'request "{wanted.leaf.full_name}" needs {wanted.leaf.count} {what} on one node, but no node has more than {most} (node {best})'
        problem, candidates = self._own_selectors(wanted, ()) if selecting else ("", [])
        if problem:
            text = f'the selector of request "{wanted.leaf.full_name}" {problem}: {text}'
        place = place_of_claim(self.world, self.pod, wanted.claim)
        free = wanted.found.most_free()[1]
        if place is not None:
            candidates += remedies.lower_count(place, wanted, {most, free})
        return Diagnosis(reason=Reason.TOO_FEW, text=text, candidates=tuple(candidates))

    def _taken(self, wanted: Wanted) -> Diagnosis:
        """Enough devices would do, but something stands in the way of too many of them."""
        found = wanted.found
        best: tuple[int, Obstacle] | None = None
        for obstacle in _ON_DEVICES:
            number = found.count(obstacle)
            if not number:
                continue
            enough = any(
                each.free + _numbers(each, obstacle)
                >= (each.in_class if wanted.leaf.all_devices else wanted.leaf.count)
                for each in found.nodes.values()
                if each.in_class
            )
            score = number + (10**9 if enough else 0)
            if best is None or score > best[0]:
                best = (score, obstacle)
        if best is None:
            return self._together(self.nearest[0])
        return self._obstacle_cause(wanted, best[1])

    def _obstacle_cause(self, wanted: Wanted, obstacle: Obstacle) -> Diagnosis:
        found = wanted.found
        tallies = found.of(obstacle)
        number = found.count(obstacle)
        accepted = found.in_class - found.count(*_SELECTING, *_POOL)
        place = place_of_claim(self.world, self.pod, wanted.claim)
        candidates: list[Candidate] = []
        matching = "that satisfy its selectors " if found.count(*_SELECTING) else ""
        free = found.most_free()
        rest = f"; node {free[0]} has {free[1]} free, the most of all" if free[1] else ""
        every = (
            "the only device"
            if accepted == 1
            else f"all {accepted} devices"
            if number == accepted
            else f"{number} of {accepted} devices"
        )
        subject = f"{every} of class {wanted.class_name} {matching}".rstrip()
        verb = "is" if accepted == 1 or number == 1 else "are"
        if obstacle is Obstacle.IN_USE:
            holders = self.survey.holders(wanted) if self.survey is not None else ()
            claims = [
                f"claim {holder.claim}" + (f" ({named('pod', holder.pods)})" if holder.pods else " (which no pod uses)")
                for holder in holders
            ]
            total = len({claim for tally in tallies for claim in tally.claims})
            by = (
                listed(claims, 2)
                if total <= 2
                else f"{claims[0]} and {total - 1} more claims"
                if claims
                else "other claims"
            )
            text = f"{subject} {verb} in use by {by}{rest}"
            candidates += remedies.freed(self.world, self.pod, wanted)
        elif obstacle is Obstacle.TAINT:
            taint = tallies[0].reason.actual
            text = f"{subject} {'has' if verb == 'is' else 'have'} taint {taint}, which the request does not tolerate{rest}"
            text += remedies.taint_origin(self.world, wanted)
            candidates += remedies.device_taint(self.world, place, wanted)
        elif obstacle is Obstacle.FEATURE:
            text = f"{subject} cannot be used: {numbered(tallies[0].count, tallies[0].reason.text)}"
            candidates += remedies.gates(self.world)
        else:
            holders_of = sorted({claim for tally in tallies for claim in tally.claims})
            text = f"{subject} cannot be had: {numbered(tallies[0].count, tallies[0].reason.text)}"
            if holders_of:
                text += f" (the rest is held by {named('claim', holders_of)})"
            candidates += remedies.freed(self.world, self.pod, wanted)
            if place is not None:
                candidates += remedies.less_capacity(place, wanted)
        if wanted.leaf.all_devices:
            text = f'request "{wanted.leaf.full_name}" asks for all devices of class {wanted.class_name} on a node, but {text}'
            if place is not None:
                candidates += remedies.not_all(place, wanted)
        elif free[1] or wanted.leaf.count > 1:
            text += f", and {wanted.leaf.count} {'is' if wanted.leaf.count == 1 else 'are'} needed on one node"
        if place is not None:
            problem, more = self._own_selectors(wanted, ()) if found.count(Obstacle.SELECTOR) else ("", [])
            candidates += more
            if not wanted.leaf.all_devices:
                candidates += remedies.lower_count(place, wanted, {free[1]})
            if problem:
                text = f'{text}; and the selector of request "{wanted.leaf.full_name}" {problem}'
        candidates += remedies.another_node(self.world, self._like(wanted))
        return Diagnosis(reason=_ON_DEVICES[obstacle], text=text, candidates=tuple(candidates))

    def _like(self, wanted: Wanted) -> NodeInfo | None:
        """A node that would do if it were empty."""
        name = max(wanted.found.nodes, key=lambda each: wanted.found.nodes[each].in_class, default="")
        return self.world.cluster.nodes.get(name)

    def _together(self, info: NodeInfo) -> Diagnosis:
        """Every request could be met alone."""
        assert self.survey is not None
        places = sorted(self.nearest, key=lambda each: each.ordinal)
        reasons = self.survey.on_node(info)
        for each in places[:16]:
            reasons = self.survey.on_node(each)
            if any(reason.together for reason in reasons):
                info = each
                break
        candidates: list[Candidate] = []
        for claim in {wanted.claim_name: wanted.claim for wanted in self.survey.wanted}.values():
            place = place_of_claim(self.world, self.pod, claim)
            if place is not None:
                candidates += remedies.constraints(place, claim)
                for wanted in self.survey.wanted:
                    if wanted.claim is claim:
                        candidates += remedies.lower_count(place, wanted, set(range(1, wanted.leaf.count)))
        for wanted in self.survey.wanted:
            candidates += remedies.freed(self.world, self.pod, wanted)
        together = [reason for reason in reasons if reason.together]
        if together:
            first = together[0]
            names = listed([f'"{reason.request}"' for reason in together])
            text = f"on node {info.name} {first.free} devices are free for request {names}, but not together: {first.together}"
            constrained = any(
                claim.spec.devices.constraints for claim in {w.claim_name: w.claim for w in self.survey.wanted}.values()
            )
            reason = Reason.CONSTRAINT if constrained else Reason.TOGETHER
        elif reasons:
            text = f"on node {info.name}, {reasons[0].sentence()}"
            reason = Reason.TOGETHER
        else:
            texts = (
                self.failure.status.reasons
                if self.failure.status is not None
                else ("its requests cannot be met on one node",)
            )
            text, reason = "; ".join(texts), Reason.TOGETHER
            split = self._split()
            text = split or text
        return Diagnosis(reason=reason, text=text, candidates=tuple(candidates))

    def _split(self) -> str:
        """Requests that can each be met, but on different nodes."""
        assert self.survey is not None
        parts = []
        for wanted in self.survey.wanted:
            names = [name for name, found in wanted.found.nodes.items() if found.free >= max(wanted.leaf.count, 1)]
            parts.append(f'request "{wanted.leaf.full_name}" can be met on {named("node", names)}')
        return f"no node can meet all of its requests: {'; '.join(parts)}" if len(parts) > 1 else ""


def _expected_drivers(world: World, class_name: str) -> list[str]:
    from allot.core.advice.lint.expressions import read_expression

    class_ = world.get(api.DeviceClass, class_name)
    found: list[str] = []
    for selector in class_.spec.selectors if class_ is not None else ():
        reading = read_expression(selector.cel.expression) if selector.cel is not None else None
        found += reading.drivers if reading is not None else ()
    return found


def _numbers(found: object, *obstacles: Obstacle) -> int:
    return sum(number for obstacle, _, number in found.obstacles if obstacle in obstacles)  # type: ignore[attr-defined]


def _device_id(text: str) -> DeviceID:
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    return DeviceID(driver, pool, device)


def _name(claim: api.ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _plural(text: str) -> str:
    verb, _, rest = text.partition(" ")
    return f"{ {'is': 'are', 'has': 'have', 'does': 'do'}.get(verb, verb) } {rest}"
