"""ComputeClasses: which pools a class has, for which of its priorities, and in which order they are bought.

A pool belongs to the class in its nodes' label; pools without the label belong to the class called default, if it exists. Its priority is
the first that its nodes match: by the pool's name, or by the machine in their labels. Does not know which pods need nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from allot.core.autoscaling.pools import Pool, Standing
from allot.core.model import compute_classes as names
from allot.core.model.compute_classes import Accelerator, ComputeClass, Priority
from allot.core.model.core_v1 import Node
from allot.core.quantity import Quantity

_GIB = 2**30
# Per class; no one reads more.
_PROBLEMS_MAX = 20
# GKE's default if a priority describes no machine.
DEFAULT_FAMILY = "e2"


class ClassProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a class with the existing pools. index: of the priority, None for the class itself; reason: as in GKE's
    conditions; value, known: the unknown name, and the known ones."""

    index: int | None
    reason: str
    text: str
    value: str = ""
    known: tuple[str, ...] = ()


def machine_type(node: Node) -> str:
    """The cloud's machine type."""
    return node.metadata.labels.get(names.INSTANCE_TYPE, "")


def machine_family(node: Node) -> str:
    """The machine family from the node's label, or else the first part of its type."""
    return node.metadata.labels.get(names.MACHINE_FAMILY) or machine_type(node).partition("-")[0]


def matches(priority: Priority, pool: str, node: Node, zones: Sequence[str] = ()) -> bool:
    """Whether a node of a pool matches a priority. zones: the default if the priority names none."""
    labels = node.metadata.labels
    amounts = node.status.capacity or node.status.allocatable
    if priority.nodepools:
        return pool in priority.nodepools or labels.get(names.NODE_POOL, "") in priority.nodepools
    describes = priority.machine_type or priority.machine_family or priority.gpu or priority.tpu
    family = priority.machine_family or ("" if describes else DEFAULT_FAMILY)
    reserved = [each.name for each in priority.reservations.specific]
    wanted_zones = priority.location.zones or zones
    return (
        (not priority.machine_type or _is_type(machine_type(node), priority.machine_type))
        and (not family or machine_family(node) == family)
        and _has(amounts.get("cpu"), priority.min_cores)
        and _has(amounts.get("memory"), priority.min_memory_gb * _GIB)
        and _accelerated(priority.gpu, labels, names.ACCELERATOR)
        and _accelerated(priority.tpu, labels, names.TPU_ACCELERATOR)
        and (labels.get(names.SPOT) == "true") == priority.spot
        and (labels.get(names.FLEX_START) == "true") == priority.flex_start.enabled
        and (priority.reservations.affinity != names.SPECIFIC or labels.get(names.RESERVATION) in reserved)
        and (not wanted_zones or labels.get(names.ZONE, wanted_zones[0]) in wanted_zones)
        and all(labels.get(key) == value for key, value in priority.node_labels.items())
    )


def _is_type(type_: str, wanted: str) -> bool:
    """Whether it is this machine type. Types with a choice of GPUs have these in their name here: n1-standard-8-t4x2."""
    return type_ == wanted or type_.startswith(f"{wanted}-")


def _has(amount: Quantity | None, wanted: int) -> bool:
    return not wanted or (amount is not None and amount >= Quantity.from_int(wanted))


def _accelerated(wanted: Accelerator | None, labels: Mapping[str, str], key: str) -> bool:
    if wanted is None:
        return True
    count = labels.get(names.ACCELERATOR_COUNT, "")
    topology = labels.get(names.TPU_TOPOLOGY, "")
    return (
        key in labels
        and (not wanted.type or labels[key] == wanted.type)
        and (not wanted.count or not count or count == str(wanted.count))
        and (not wanted.topology or not topology or topology == wanted.topology)
    )


def described(priority: Priority) -> str:
    """A priority for display: its pools, or its description of machines."""
    if priority.nodepools:
        return ", ".join(priority.nodepools)
    parts = []
    for accelerator in (priority.gpu, priority.tpu):
        if accelerator is not None:
            count = f" x {accelerator.count}" if accelerator.count else ""
            parts.append(f"{accelerator.type}{count}")
    described = priority.machine_type or priority.machine_family
    if described or not parts:
        parts.insert(0, described or DEFAULT_FAMILY)
    if priority.spot:
        parts.append("spot")
    if priority.flex_start.enabled:
        parts.append("flex start")
    parts += [f"reservation {each.name}" for each in priority.reservations.specific]
    parts += priority.location.zones
    return ", ".join(parts)


def priority_text(index: int, priority: Priority) -> str:
    """A priority with its number, counted from 1: priority 1 (a100-80)."""
    return f"priority {index + 1} ({described(priority)})"


def ranks(priorities: Sequence[Priority]) -> tuple[int, ...]:
    """The rank of each priority: 0 is best. Scores come before list order, which decides between priorities without a score."""
    keys = [
        (0, -each.priority_score) if each.priority_score is not None else (1, index)
        for index, each in enumerate(priorities)
    ]
    order = sorted(set(keys))
    return tuple(order.index(key) for key in keys)


class Classes:
    """The classes of a cluster."""

    def __init__(self, classes: Iterable[ComputeClass]) -> None:
        self.by_name = {each.metadata.name: each for each in classes}

    def class_name(self, pool: Pool) -> str:
        """The class of a pool; empty without one."""
        named = pool.template.node.metadata.labels.get(names.CLASS_LABEL, "")
        return named or (names.DEFAULT_NAME if names.DEFAULT_NAME in self.by_name else "")

    def ranked(self, pools: Sequence[Pool]) -> list[Pool]:
        """The pools, each with its standing in its class. Those that the class excludes are barred."""
        return [self._ranked(pool) for pool in pools]

    def _ranked(self, pool: Pool) -> Pool:
        name = self.class_name(pool)
        if not name:
            return replace(pool, standing=None, barred="")
        found = self.by_name.get(name)
        if found is None:
            standing = Standing(compute_class=name, rank=0, index=None, text="no priority")
            return replace(pool, standing=standing, barred=f"ComputeClass {name} does not exist")
        spec = found.spec
        index = self.index_of(pool, found)
        if index is not None:
            text = priority_text(index, spec.priorities[index])
            standing = Standing(compute_class=name, rank=ranks(spec.priorities)[index], index=index, text=text)
            return replace(pool, standing=standing, barred="")
        standing = Standing(compute_class=name, rank=len(spec.priorities), index=None, text="no priority")
        if spec.when_unsatisfiable == names.SCALE_UP_ANYWAY:
            return replace(pool, standing=standing, barred="")
        barred = f"no priority of ComputeClass {name} fits it, and whenUnsatisfiable is {names.DO_NOT_SCALE_UP}"
        return replace(pool, standing=standing, barred=barred)

    def index_of(self, pool: Pool, of: ComputeClass) -> int | None:
        """The best priority that the nodes of a pool match."""
        node = pool.template.node
        common = of.spec.node_pool_config.node_labels
        if any(node.metadata.labels.get(key) != value for key, value in common.items()):
            return None
        order = ranks(of.spec.priorities)
        zones = of.spec.priority_defaults.location.zones
        found = [
            (order[index], index)
            for index, priority in enumerate(of.spec.priorities)
            if matches(priority, pool.name, node, zones)
        ]
        return min(found)[1] if found else None

    def problems(self, name: str, pools: Sequence[Pool], machines: Sequence[str] = ()) -> list[ClassProblem]:
        """The problems of a class; empty if each of its priorities has a pool. pools: all pools, ranked; machines: known types
        besides theirs."""
        found = self.by_name.get(name)
        if found is None:
            return [_no_class(name, self.by_name)]
        there = _pool_names(pools)
        own = [pool for pool in pools if pool.standing is not None and pool.standing.compute_class == name]
        served = {pool.standing.index for pool in own if pool.standing is not None}
        problems: list[ClassProblem] = []
        for index, priority in enumerate(found.spec.priorities):
            missing = [each for each in priority.nodepools if each not in there]
            problems += [_no_pool(index, each, there) for each in missing[:_PROBLEMS_MAX]]
            if index not in served and not missing:
                problems.append(_no_machine(index, priority, name, pools, machines))
        if all(pool.barred for pool in own):
            problems.insert(_PROBLEMS_MAX - 1, _NO_POOLS)
        return problems[:_PROBLEMS_MAX]

    # --- what holds for the nodes of a class ---

    def delay_s(self, pool: Pool) -> float | None:
        """How long a node must be unneeded before removal; None if its pool's class does not specify it."""
        found = self.by_name.get(self.class_name(pool))
        minutes = found.spec.autoscaling_policy.consolidation_delay_minutes if found is not None else None
        return minutes * 60.0 if minutes is not None else None

    def threshold(self, pool: Pool) -> Fraction | None:
        """The class's utilization threshold for removing a node: of its devices if it has any."""
        found = self.by_name.get(self.class_name(pool))
        if found is None:
            return None
        policy = found.spec.autoscaling_policy
        has_devices = bool(pool.template.slices)
        percent = policy.gpu_consolidation_threshold if has_devices else policy.consolidation_threshold
        # GKE: "100 or 0", so that every node that is not fully used is removed.
        return Fraction(percent or 100, 100) if percent is not None else None

    def migrates(self, pool: Pool) -> bool:
        """Whether pods of a pool are moved to a better priority."""
        found = self.by_name.get(self.class_name(pool))
        return found is not None and found.spec.active_migration.optimize_rule_priority


def _pool_names(pools: Sequence[Pool]) -> set[str]:
    gke = (pool.template.node.metadata.labels.get(names.NODE_POOL, "") for pool in pools)
    return {name for name in (*(pool.name for pool in pools), *gke) if name}


def _no_class(name: str, known: Iterable[str]) -> ClassProblem:
    text = f"ComputeClass {name} does not exist."
    return ClassProblem(index=None, reason="NotFound", text=text, value=name, known=tuple(sorted(known)))


def _no_pool(index: int, name: str, there: Iterable[str]) -> ClassProblem:
    return ClassProblem(
        index=index,
        reason="NodePoolNotExist",
        text=f"Nodepool {name} specified by name has autoscaling disabled or doesn't exist in the cluster.",
        value=name,
        known=tuple(sorted(there)),
    )


def _no_machine(
    index: int, priority: Priority, name: str, pools: Sequence[Pool], machines: Sequence[str]
) -> ClassProblem:
    """The problem of a priority without a pool: matching pools that lack the label, or that none matches."""
    unlabelled = [
        pool.name
        for pool in pools
        if matches(priority, pool.name, pool.template.node)
        and pool.template.node.metadata.labels.get(names.CLASS_LABEL) != name
    ]
    label = f"{names.CLASS_LABEL}={name}"
    if unlabelled:
        text = f"Crd label doesn't match Crd name for the nodepool {unlabelled[0]}: its nodes lack the label {label}."
        return ClassProblem(index=index, reason="CrdLabelNotMatching", text=text)
    value = priority.machine_type or priority.machine_family
    types = {*machines, *(machine_type(pool.template.node) for pool in pools)} - {""}
    known = sorted(types if priority.machine_type else {each.partition("-")[0] for each in types})
    text = f"no pool with the label {label} has nodes of {described(priority)}."
    # The machine exists; only its pool is missing.
    meant = "" if any(_is_type(each, value) for each in known) else value
    return ClassProblem(index=index, reason="NoRuleMatching", text=text, value=meant, known=tuple(known))


_NO_POOLS = ClassProblem(
    index=None,
    reason="NapDisabledAndNoMatchingNodegroups",
    text="Crd with NAP disabled should have at least one matching nodepool with autoscaling enabled.",
)
