"""From chosen devices to the AllocationResult that is stored in a claim: results, configuration, node selector."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.plan import ClaimPlan, Leaf
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from allot.core.quantity import Quantity


class Choice(NamedTuple):
    """One device chosen for a request. A share has an id and what it takes of the device."""

    leaf: Leaf
    entry: DeviceEntry
    share_id: str | None = None
    consumed: dict[str, Quantity] | None = None


def build(
    plan: ClaimPlan,
    claim_name: str,
    choices: Sequence[Choice],
    leaves: Sequence[Leaf],
    node_name: str,
    with_binding: bool,
) -> api.AllocationResult:
    """The allocation of one claim. leaves: the alternative chosen for each request, in order."""
    try:
        node_selector = _node_selector(choices, node_name)
    except ValueError as error:
        raise AllocationError(f"create NodeSelector for claim {claim_name}: {error}") from error
    return api.AllocationResult(
        devices=api.DeviceAllocationResult(
            results=tuple([_result(choice, with_binding) for choice in choices]),
            config=_config(plan, leaves),
        ),
        node_selector=node_selector,
    )


def _result(choice: Choice, with_binding: bool) -> api.DeviceRequestAllocationResult:
    leaf, entry, share_id, consumed = choice
    id_ = entry.id
    device = entry.device
    return api.DeviceRequestAllocationResult(
        request=leaf.full_name,
        driver=id_.driver,
        pool=id_.pool,
        device=id_.device,
        admin_access=True if leaf.admin_access else None,
        tolerations=leaf.request.tolerations,
        binding_conditions=device.binding_conditions if with_binding else (),
        binding_failure_conditions=device.binding_failure_conditions if with_binding else (),
        share_id=share_id,
        consumed_capacity=consumed or {},
        skip_node_operations=entry.slice.spec.skip_node_operations,
    )


def _config(plan: ClaimPlan, leaves: Sequence[Leaf]) -> tuple[api.DeviceAllocationConfiguration, ...]:
    claimed = plan.spec.devices.config
    if not claimed and not any(leaf.device_class is not None and leaf.device_class.spec.config for leaf in leaves):
        return ()
    users: dict[str, list[str]] = {}
    classes: dict[str, api.DeviceClass] = {}
    for leaf in leaves:
        if leaf.device_class is not None:
            name = leaf.device_class.metadata.name
            classes.setdefault(name, leaf.device_class)
            users.setdefault(name, []).append(leaf.full_name)
    found = [
        api.DeviceAllocationConfiguration(source=api.FROM_CLASS, requests=tuple(users[name]), opaque=config.opaque)
        for name, device_class in classes.items()
        for config in device_class.spec.config
    ]
    names = [(leaf.parent or leaf.name, leaf.full_name) for leaf in leaves]
    for entry in claimed:
        if not entry.requests or any(name in entry.requests or full in entry.requests for name, full in names):
            found.append(
                api.DeviceAllocationConfiguration(source=api.FROM_CLAIM, requests=entry.requests, opaque=entry.opaque)
            )
    return tuple(_for_all_if_possible(config, names) for config in found)


def _for_all_if_possible(
    config: api.DeviceAllocationConfiguration, names: list[tuple[str, str]]
) -> api.DeviceAllocationConfiguration:
    """Omit the list of requests if it would name them all."""
    requests = config.requests
    if requests and all(name in requests or full in requests for name, full in names):
        return api.DeviceAllocationConfiguration(source=config.source, opaque=config.opaque)
    return config


@lru_cache(maxsize=65_536)
def on_node(name: str) -> NodeSelector:
    """The selector for one node. Shared: a node has many allocations, and this never changes."""
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))


def _node_selector(choices: Sequence[Choice], node_name: str) -> NodeSelector | None:
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for choice in choices:
        device, spec = choice.entry.device, choice.entry.slice.spec
        where = device if spec.per_device_node_selection else spec
        if where.node_name is not None or device.binds_to_node:
            return on_node(node_name)
        if where.node_selector is None:
            continue
        terms = where.node_selector.node_selector_terms
        if len(terms) > 1:
            raise ValueError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(expressions))
    return NodeSelector(node_selector_terms=(term,))


def _add_new(known: list[NodeSelectorRequirement], new: tuple[NodeSelectorRequirement, ...]) -> None:
    for requirement in new:
        if not any(
            requirement.key == other.key
            and requirement.operator == other.operator
            and set(requirement.values) == set(other.values)
            for other in known
        ):
            known.append(requirement)
