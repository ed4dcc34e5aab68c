"""Deployments whose rolling update needs missing devices: a new pod must start before an old one may be deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allot.core.advice.convert.objects import mapping
from allot.core.advice.lint.claims import TEMPLATE, PodSpec
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Severity
from allot.core.advice.snapshot import read_object
from allot.core.allocation import ALL_FEATURES, Allocated, AllocationError, Inventory, allocate
from allot.core.model import resource_v1 as api
from allot.core.model.apps_v1 import Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.model.core_v1 import Node
from allot.core.model.meta import IntOrString, ObjectMeta
from allot.core.model.plain import plain_text
from allot.core.workloads.rollout import ROLLING_UPDATE, max_surge, max_unavailable, wanted_replicas

_DEFAULT = "25%"
_STEPS_MAX = 20_000
# Beyond this, report nothing rather than guess.
_REPLICAS_MAX = 64
_NODES_MAX = 500
_FIX = "set strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}, or {type: Recreate}"


def check(context: Context) -> None:
    """Every Deployment whose pods have their own claims."""
    for spec in context.pods:
        if (spec.subject.group, spec.subject.kind) == ("apps", "Deployment"):
            _check(context, spec)


def _check(context: Context, pod: PodSpec) -> None:
    deployment = _sizes(mapping(pod.subject.value.get("spec")))
    names = [plain_text(entry.get("resourceClaimTemplateName")) for entry, _ in pod.claims]
    if deployment is None or not any(names) or max_unavailable(deployment) or not wanted_replicas(deployment):
        return
    wanted, surge = wanted_replicas(deployment), max_surge(deployment)
    rolling = deployment.strategy.rolling_update
    given = rolling.max_unavailable if rolling is not None else None
    rounded = f", {given} of {wanted} rounded down" if isinstance(given, str) else ""
    why = f"an update starts {surge} new pod{'s' if surge > 1 else ''} before it deletes an old one (maxUnavailable is 0{rounded})"
    path = ("spec", "strategy") if "strategy" in mapping(pod.subject.value.get("spec")) else ("spec", "template")
    claims = [_claim_of(context, pod.subject.home, name) for name in names if name]
    room = _room(context, pod, [each for each in claims if each is not None], wanted) if None not in claims else None
    if room is None:
        message = f"{why}: while all {wanted} hold their devices it needs more of them"
        context.report(pod.subject, "surge-needs-devices", path, message, _FIX, severity=Severity.NOTE)
    elif room[0] < room[1]:
        has, needs, what = room
        message = (
            f"{why}, which takes devices for {needs} {what}; there are devices for {has}: the update would never end"
        )
        context.report(pod.subject, "surge-needs-devices", path, message, _FIX)


def _sizes(spec: dict[str, object]) -> DeploymentSpec | None:
    """The size and update settings of a Deployment, with defaults; None if it does not use rolling updates or is unreadable."""
    strategy = mapping(spec.get("strategy"))
    rolling = mapping(strategy.get("rollingUpdate"))
    replicas = spec.get("replicas", 1)
    if strategy.get("type", ROLLING_UPDATE) != ROLLING_UPDATE or type(replicas) is not int:
        return None
    return DeploymentSpec(
        replicas=replicas,
        strategy=DeploymentStrategy(
            rolling_update=RollingUpdateDeployment(
                max_surge=_number(rolling.get("maxSurge")), max_unavailable=_number(rolling.get("maxUnavailable"))
            )
        ),
    )


def _number(value: object) -> IntOrString:
    return value if isinstance(value, int | str) else _DEFAULT


def _claim_of(context: Context, namespace: str, name: str) -> api.ResourceClaim | None:
    """A claim from a template; None if unknown."""
    subject = context.named(TEMPLATE, namespace).get(name)
    template = context.knowledge.templates.get((namespace, name))
    if subject is not None and id(subject) not in context.refused:
        try:
            read = read_object(subject.value)
        except (DecodeError, ConversionError):
            return None
        template = read if isinstance(read, api.ResourceClaimTemplate) else None
    return None if template is None else api.ResourceClaim(spec=template.spec.spec)


def _room(
    context: Context, pod: PodSpec, claims: Sequence[api.ResourceClaim], wanted: int
) -> tuple[int, int, str] | None:
    """For how many pods devices exist, for how many they must, and the noun for these; None if unknown."""
    knowledge = context.knowledge
    # Profiles and slices of the input show which devices may exist, not how many.
    if not knowledge.is_cluster or not claims or wanted > _REPLICAS_MAX:
        return None
    runs = knowledge.has(Deployment, pod.subject.name, pod.subject.home)
    inventory = Inventory(features=ALL_FEATURES)
    for device_class in knowledge.classes.values():
        inventory.put_class(device_class)
    for slice_ in knowledge.slices:
        inventory.put_slice(slice_)
    for rule in knowledge.taint_rules:
        inventory.put_taint_rule(rule)
    for held in knowledge.claims.values():
        inventory.put_claim(held)
    needed = 1 if runs else wanted + 1
    nodes = {node.metadata.name: node for node in knowledge.nodes}
    try:
        found = _fitting(inventory, nodes, claims, needed)
    except (AllocationError, KeyError):
        return None
    if found is None:
        return None
    return found, needed, "more pod" if runs else f"pods at a time ({wanted} and a new one)"


def _fitting(
    inventory: Inventory, nodes: Mapping[str, Node], claims: Sequence[api.ResourceClaim], most: int
) -> int | None:
    """How many pods get their devices, placed one by one."""
    for number in range(most):
        mine = tuple(
            replace(each, metadata=ObjectMeta(name=f"pod-{number}-{index}", namespace="surge"))
            for index, each in enumerate(claims)
        )
        worth = [name for name in inventory.nodes_worth_trying(mine) if name in nodes]
        others = [name for name in nodes if name not in set(inventory.nodes())]
        for name in (*worth, *others)[:_NODES_MAX]:
            answer = allocate(inventory, nodes[name], mine, steps_max=_STEPS_MAX, with_reasons=False)
            if isinstance(answer, Allocated):
                for claim, allocation in zip(mine, answer.results, strict=True):
                    inventory.put_claim(replace(claim, status=api.ResourceClaimStatus(allocation=allocation)))
                break
            if answer.undecided:
                return None
        else:
            return number
    return most
