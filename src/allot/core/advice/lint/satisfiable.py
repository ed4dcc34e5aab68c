"""Claims that no known node can satisfy even when all devices are free, with the allocator's reasons."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allot.core.advice.lint.claims import CLAIM, GROUP, TEMPLATE, PodSpec
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.source import Subject
from allot.core.advice.places import Path
from allot.core.advice.snapshot import read_object
from allot.core.allocation import ALL_FEATURES, Allocated, AllocationError, Inventory, Unallocatable, allocate
from allot.core.explain import Obstacle, RequestReason
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.meta import ObjectMeta
from allot.core.model.plain import plain_text

_HOSTNAME_LABEL = "kubernetes.io/hostname"
# Beyond this, report nothing rather than guess.
_NODES_MAX = 2000
_STEPS_MAX = 20_000
_EXPLAINED_MAX = 10


def check(context: Context) -> None:
    """Every claim and template by itself, then the claims of each pod together."""
    if not context.knowledge.has_devices:
        return
    trial = _Trial(context)
    satisfiable: dict[tuple[str, str, str], api.ResourceClaim] = {}
    for subject in context.subjects:
        claim = written_claim(context, subject)
        if claim is None or not trial.knows_classes(claim):
            continue
        if trial.report(subject, ("spec",), (claim,)):
            satisfiable[subject.kind, subject.home, subject.name] = claim
    for spec in context.pods:
        together = _claims_of(spec, satisfiable)
        if together is not None and len(together) > 1:
            trial.report(spec.subject, (*spec.path, "resourceClaims"), together)


def written_claim(context: Context, subject: Subject) -> api.ResourceClaim | None:
    """The claim of an object or template; None if it cannot be tried."""
    if subject.group != GROUP or subject.kind not in (CLAIM, TEMPLATE) or id(subject) in context.refused:
        return None
    try:
        object_ = read_object(subject.value)
    except (DecodeError, ConversionError):
        return None
    if isinstance(object_, api.ResourceClaimTemplate):
        return api.ResourceClaim(metadata=object_.metadata, spec=object_.spec.spec)
    assert isinstance(object_, api.ResourceClaim)
    return object_ if object_.status.allocation is None else None


def _claims_of(
    spec: PodSpec, known: dict[tuple[str, str, str], api.ResourceClaim]
) -> tuple[api.ResourceClaim, ...] | None:
    """The claims of a pod, each with its own name; None if one of them is unknown."""
    found = []
    for entry, _ in spec.claims:
        namespace = spec.subject.home
        claim = known.get((CLAIM, namespace, plain_text(entry.get("resourceClaimName")))) or known.get(
            (TEMPLATE, namespace, plain_text(entry.get("resourceClaimTemplateName")))
        )
        if claim is None:
            return None
        name = plain_text(entry.get("name"))
        found.append(msgspec.structs.replace(claim, metadata=ObjectMeta(name=name, namespace=namespace)))
    return tuple(found)


class _Trial:
    """The known nodes with all their devices free."""

    def __init__(self, context: Context) -> None:
        self._context = context
        knowledge = context.knowledge
        self._inventory = Inventory(features=ALL_FEATURES)
        self._classes = dict(knowledge.classes)
        for device_class in self._classes.values():
            self._inventory.put_class(device_class)
        for slice_ in knowledge.slices:
            self._inventory.put_slice(slice_)
        for rule in knowledge.taint_rules:
            self._inventory.put_taint_rule(rule)
        self._nodes = {node.metadata.name: node for node in knowledge.nodes or _assumed_nodes(knowledge.slices)}

    def knows_classes(self, claim: api.ResourceClaim) -> bool:
        """Whether all classes of a claim are known."""
        names = [
            leaf.device_class_name
            for request in claim.spec.devices.requests
            for leaf in (*((request.exactly,) if request.exactly is not None else ()), *request.first_available)
        ]
        return all(name in self._classes for name in names)

    def report(self, subject: Subject, path: Path, claims: tuple[api.ResourceClaim, ...]) -> bool:
        """Whether the claims fit on a node together; if not, says why."""
        try:
            if self._fits(claims):
                return True
            refusals = [allocate(self._inventory, node, claims, steps_max=_STEPS_MAX) for node in self._samples()]
        except AllocationError:
            # `evaluation` reports failing expressions.
            return True
        self._report_refusals(subject, path, claims, [each for each in refusals if isinstance(each, Unallocatable)])
        return False

    def _fits(self, claims: Sequence[api.ResourceClaim]) -> bool:
        """Whether a node fits the claims, or proving that none does takes too long."""
        own = set(self._inventory.nodes())
        # The others have no their own devices but may reach network-attached ones.
        worth = [name for name in self._inventory.nodes_worth_trying(claims) if name in self._nodes]
        others = [name for name in self._nodes if name not in own]
        for count, name in enumerate((*worth, *others)):
            if count >= _NODES_MAX:
                return True
            answer = allocate(self._inventory, self._nodes[name], claims, steps_max=_STEPS_MAX, with_reasons=False)
            if isinstance(answer, Allocated) or answer.undecided:
                return True
        return False

    def _samples(self) -> list[core_v1.Node]:
        """One node of each kind, for the explanation."""
        sorts: dict[object, core_v1.Node] = {}
        devices: dict[str, list[tuple[str, int]]] = {}
        for slice_ in self._context.knowledge.slices:
            spec = slice_.spec
            devices.setdefault(spec.node_name or "", []).append((spec.driver, len(spec.devices or ())))
        for name, node in self._nodes.items():
            sorts.setdefault(tuple(sorted(devices.get(name, ()))), node)
        return list(sorts.values())[:_EXPLAINED_MAX]

    def _report_refusals(
        self, subject: Subject, path: Path, claims: tuple[api.ResourceClaim, ...], refusals: list[Unallocatable]
    ) -> None:
        reasons = min((refusal.reasons for refusal in refusals if refusal.reasons), key=_distance, default=())
        sentences = "; ".join(dict.fromkeys(map(_sentence, reasons)))
        what = "the claim" if len(claims) == 1 else "the claims of the pod together"
        context = self._context
        taints = _taints(reasons)
        if taints:
            message = f"the devices that fit are tainted: {sentences}"
            context.report(
                subject, "missing-toleration", path, message, "add tolerations to the request", severity=context.certain
            )
            return
        message = f"no known node can satisfy {what}, even when all devices are free: {sentences}"
        context.report(subject, "unsatisfiable-claim", path, message, severity=context.certain)


def _distance(reasons: tuple[RequestReason, ...]) -> tuple[int, int]:
    """How far a node is from satisfying the claims: missing devices, then requests."""
    return sum(max(reason.needed - reason.free, 0) for reason in reasons), len(reasons)


def _sentence(reason: RequestReason) -> str:
    """A readable reason, without devices of other classes."""
    if reason.devices:
        return reason.sentence()
    return f'request "{reason.request}": no devices in class {reason.device_class} on node {reason.node}'


def _taints(reasons: tuple[RequestReason, ...]) -> bool:
    """Whether tolerating taints would be enough."""
    return bool(reasons) and all(
        reason.free + sum(each.obstacle is Obstacle.TAINT for each in reason.in_the_way) >= max(reason.needed, 1)
        and any(each.obstacle is Obstacle.TAINT for each in reason.in_the_way)
        for reason in reasons
    )


def _assumed_nodes(slices: Sequence[api.ResourceSlice]) -> list[core_v1.Node]:
    """The nodes that slices name, if no nodes are known."""
    names = dict.fromkeys(slice_.spec.node_name for slice_ in slices if slice_.spec.node_name)
    return [core_v1.Node(metadata=ObjectMeta(name=name, labels={_HOSTNAME_LABEL: name})) for name in names if name]
