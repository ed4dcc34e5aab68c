"""Everything that allocation needs to know about a cluster, updated change by change.

Feed it classes, slices, claims and taint rules as they come and go; ask it for the view of a node, the plan of a claim, or
the nodes that are worth trying. A change costs what it touches: the slice's devices, the views of the nodes that see its
pool, the signatures that select them. Not thread-safe; decisions only read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from allot.core.allocation.accounting import published_counters
from allot.core.allocation.constraints import AttributeReader
from allot.core.allocation.devices import ClaimID, DeviceEntry, DeviceID, DeviceState
from allot.core.allocation.features import Features
from allot.core.allocation.index import AvailabilityIndex
from allot.core.allocation.ledger import Ledger
from allot.core.allocation.plan import ClaimPlan, ConstraintPlan, plan_claim
from allot.core.allocation.pools import NodeView, PoolID, SliceEntry, gather, is_relevant
from allot.core.allocation.signature import REJECTED, Signature, Verdict
from allot.core.features import DEFAULT_GATES
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node
from allot.core.quantity import Quantity
from allot.core.selectors import selects_device

# Bounds on caches; the oldest entry is dropped first.
SIGNATURES_MAX = 1024
PLANS_MAX = 8192

DEFAULT_FEATURES = Features.from_gates(DEFAULT_GATES)

# Only to tell specs apart, so any faithful text is fine for quantities and raw JSON.
_SPEC_ENCODER = msgspec.json.Encoder(enc_hook=str)


def claim_id(claim: api.ResourceClaim) -> ClaimID:
    """Namespace and name of a claim."""
    return ClaimID(claim.metadata.namespace, claim.metadata.name)


def node_of(entry: DeviceEntry) -> str | None:
    """The one node from which a device can be used; None if there may be several."""
    spec = entry.slice.spec
    return (entry.device.node_name if spec.per_device_node_selection else spec.node_name) or None


class Inventory:
    """Devices, classes and holders of a cluster."""

    def __init__(
        self, features: Features = DEFAULT_FEATURES, changed: Callable[[str | None], None] | None = None
    ) -> None:
        """changed: called with the node whose devices have changed in a way that may matter, None for all nodes."""
        self.features = features
        self._changed = changed
        self.ledger = Ledger(features.consumable_capacity, self._holder_changed)
        self._classes: dict[str, api.DeviceClass] = {}
        self._rules: dict[str, api.DeviceTaintRule] = {}
        self._slices: dict[str, SliceEntry] = {}
        self._by_pool: dict[PoolID, dict[str, SliceEntry]] = {}
        self._local: dict[str, dict[str, SliceEntry]] = {}
        self._shared: dict[str, SliceEntry] = {}
        self._views: dict[str, NodeView] = {}
        self._viewers: dict[PoolID, set[str]] = {}
        self._signatures: dict[object, Signature] = {}
        self._signature_count = 0
        self._indexes: dict[Signature, dict[ConstraintPlan | None, AvailabilityIndex]] = {}
        self.reader = AttributeReader(features)
        self._plans: dict[bytes, ClaimPlan] = {}
        # Of recently used specs, by identity: decisions ask about the same claims again and again.
        self._recent_plans: dict[int, tuple[api.ResourceClaimSpec, ClaimPlan]] = {}
        # What a claim of a plan needs of each index. This depends on whether devices are shareable, so a change
        # of the slices invalidates it.
        self._needs: dict[ClaimPlan, list[tuple[AvailabilityIndex, int]]] = {}

    def listen(self, changed: Callable[[str | None], None]) -> None:
        """From now on call this with the node whose devices have changed in a way that may matter, None for all nodes."""
        self._changed = changed

    # --- slices ---

    def put_slice(self, slice_: api.ResourceSlice, key: str | None = None) -> None:
        """A slice was published or changed. It is known by its name unless another key is given."""
        name = key if key is not None else slice_.metadata.name
        before = self._slices.get(name)
        if before is not None:
            if before.slice.spec == slice_.spec:
                return
            self.delete_slice(name)
        self._add_slice(name, slice_)

    def _add_slice(self, name: str, slice_: api.ResourceSlice) -> None:
        spec = slice_.spec
        entries = []
        for device in spec.devices or ():
            state = self.ledger.state(DeviceID(spec.driver, spec.pool.name, device.name))
            taints = device.taints
            if self._rules:
                taints += self._rule_taints(state.id)
            shareable = self.features.consumable_capacity and bool(device.allow_multiple_allocations)
            entry = DeviceEntry(slice_, device, state, taints, shareable)
            state.entries.append(entry)
            entries.append(entry)
        slice_entry = SliceEntry(slice_, tuple(entries))
        self._slices[name] = slice_entry
        self._by_pool.setdefault(slice_entry.pool, {})[name] = slice_entry
        if spec.node_name:
            self._local.setdefault(spec.node_name, {})[name] = slice_entry
        else:
            self._shared[name] = slice_entry
        self._outdate(slice_entry)
        self._needs.clear()
        for index in self._all_indexes():
            index.add(slice_entry)
        self._tell_pool(slice_entry)

    def delete_slice(self, name: str) -> None:
        """A slice is gone."""
        slice_entry = self._slices.pop(name, None)
        if slice_entry is None:
            return
        self._outdate(slice_entry)
        for index in self._all_indexes():
            index.remove(slice_entry)
        pool = self._by_pool[slice_entry.pool]
        del pool[name]
        if not pool:
            del self._by_pool[slice_entry.pool]
        node = slice_entry.slice.spec.node_name
        if node:
            del self._local[node][name]
            if not self._local[node]:
                del self._local[node]
        else:
            del self._shared[name]
        for entry in slice_entry.devices:
            entry.state.entries.remove(entry)
            self.ledger.forget_if_unused(entry.state)
        self._needs.clear()
        self._tell_pool(slice_entry)

    def _tell_pool(self, slice_entry: SliceEntry) -> None:
        """Whether a pool is complete depends on all of its slices, wherever their devices are."""
        if self._changed is None:
            return
        nodes = {entry.slice.spec.node_name for entry in self._by_pool.get(slice_entry.pool, {}).values()}
        nodes.add(slice_entry.slice.spec.node_name)
        if not all(nodes):
            self._changed(None)
            return
        for node in nodes:
            self._changed(node)

    def _outdate(self, slice_entry: SliceEntry) -> None:
        """Drop the views that a change of the slice can affect."""
        node = slice_entry.slice.spec.node_name
        if not node:
            for name in list(self._views):
                self._drop_view(name)
            return
        self._drop_view(node)
        for name in list(self._viewers.get(slice_entry.pool, ())):
            self._drop_view(name)

    def _drop_view(self, node: str) -> None:
        view = self._views.pop(node, None)
        if view is None:
            return
        view.detach()
        for pool in view.pools:
            if pool.counters is not None:
                # What kept these devices from being free is no longer followed.
                self._refresh(pool.counters.devices)
            viewers = self._viewers.get(pool.id)
            if viewers is not None:
                viewers.discard(node)
                if not viewers:
                    del self._viewers[pool.id]

    # --- classes and taint rules ---

    def put_class(self, device_class: api.DeviceClass) -> None:
        """A class was made or changed."""
        name = device_class.metadata.name
        before = self._classes.get(name)
        self._classes[name] = device_class
        if before is None or before.spec != device_class.spec:
            self._class_changed(name)

    def delete_class(self, name: str) -> None:
        """A class is gone."""
        if self._classes.pop(name, None) is not None:
            self._class_changed(name)

    def _class_changed(self, name: str) -> None:
        self._forget_plans()
        self._forget_signatures(name)
        # Devices may now stand for different extended resources, on every node.
        if self._changed is not None:
            self._changed(None)

    @property
    def classes(self) -> Mapping[str, api.DeviceClass]:
        """Classes by name."""
        return self._classes

    def put_taint_rule(self, rule: api.DeviceTaintRule) -> None:
        """A taint rule was made or changed."""
        before = self._rules.get(rule.metadata.name)
        self._rules[rule.metadata.name] = rule
        if before is None or before.spec != rule.spec:
            self._retaint((before, rule))

    def delete_taint_rule(self, name: str) -> None:
        """A taint rule is gone."""
        before = self._rules.pop(name, None)
        if before is not None:
            self._retaint((before,))

    def _retaint(self, rules: tuple[api.DeviceTaintRule | None, ...]) -> None:
        for name, slice_entry in list(self._slices.items()):
            if any(
                rule is not None and selects_device(rule.spec.device_selector, *entry.id)
                for rule in rules
                for entry in slice_entry.devices
            ):
                self.delete_slice(name)
                self._add_slice(name, slice_entry.slice)

    def _rule_taints(self, id_: DeviceID) -> tuple[api.DeviceTaint, ...]:
        return tuple(
            rule.spec.taint
            for _, rule in sorted(self._rules.items())
            if selects_device(rule.spec.device_selector, *id_)
        )

    # --- claims ---

    def put_claim(self, claim: api.ResourceClaim) -> None:
        """A claim as stored: what it holds is what its status says."""
        if claim.status.allocation is not None:
            self.ledger.hold(claim_id(claim), claim.status.allocation)
        else:
            self.ledger.release(claim_id(claim))

    def hold(self, claim: ClaimID, allocation: api.AllocationResult) -> None:
        """A claim got an allocation (which may not have been stored yet)."""
        self.ledger.hold(claim, allocation)

    def release(self, claim: ClaimID) -> None:
        """A claim no longer holds anything."""
        self.ledger.release(claim)

    def _holder_changed(self, state: DeviceState) -> None:
        touched = [*state.entries, *(found for pool, entry in state.counters for found in pool.touched(entry))]
        self._refresh(touched)
        if self._changed is None:
            return
        if len(state.entries) == 1 and not state.counters:
            entry = state.entries[0]
            node = node_of(entry)
            if node is not None or any(index.notices(entry) for index in entry.indexes):
                self._changed(node)
            return
        nodes = {node_of(entry) for entry in touched}
        for node in (None,) if None in nodes else nodes:
            self._changed(node)

    # --- questions ---

    def view(self, node: Node) -> NodeView:
        """What can be allocated from a node, whether free or not."""
        name = node.metadata.name
        view = self._views.get(name)
        if view is not None:
            if view.node is node or (
                view.node.metadata.labels == node.metadata.labels
                and view.node.status.declared_features == node.status.declared_features
            ):
                return view
            self._drop_view(name)
        slices = (*self._local.get(name, {}).values(), *self._shared.values())
        view = gather(node, slices, lambda pool: self._by_pool[pool].values(), self.features)
        self._views[name] = view
        for pool in view.pools:
            self._viewers.setdefault(pool.id, set()).add(name)
            if pool.counters is not None:
                self._refresh(pool.counters.devices)
        return view

    @staticmethod
    def _refresh(devices: Iterable[DeviceEntry]) -> None:
        for entry in devices:
            for index in entry.indexes:
                index.refresh(entry)

    def plan(self, spec: api.ResourceClaimSpec) -> ClaimPlan:
        """A claim spec, digested."""
        known = self._recent_plans.get(id(spec))
        if known is not None:
            # Its spec is kept with it, so no other object can have that identity.
            return known[1]
        key = _SPEC_ENCODER.encode(spec)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._forget_plans()
            plan = self._plans[key] = plan_claim(spec, self.features, self._classes, self._signature)
        if len(self._recent_plans) >= PLANS_MAX:
            self._recent_plans.clear()
        self._recent_plans[id(spec)] = (spec, plan)
        return plan

    def published(self, pool: PoolID, node: Node) -> Iterator[DeviceEntry]:
        """Devices of a pool that the node can see, whatever the state of the pool."""
        for slice_entry in self._by_pool.get(pool, {}).values():
            if is_relevant(slice_entry, node):
                yield from slice_entry.devices

    def judged(self, signature: Signature) -> Iterator[tuple[DeviceEntry, Verdict]]:
        """Published devices that a signature does not reject, with the verdict on each."""
        for slice_entry in self._slices.values():
            for entry, verdict in zip(slice_entry.devices, slice_entry.judge(signature) or (), strict=False):
                if verdict != REJECTED:
                    yield entry, verdict

    def shared_counters(self, entry: DeviceEntry) -> dict[tuple[str, str], int]:
        """What the pool of a device shares, whichever slice publishes it."""
        spec = entry.slice.spec
        slices = self._by_pool.get(PoolID(spec.driver, spec.pool.name), {})
        return published_counters(set_ for found in slices.values() for set_ in found.slice.spec.shared_counters or ())

    def devices_of(self, slice_name: str) -> Sequence[DeviceEntry]:
        """The devices that a slice publishes."""
        slice_entry = self._slices.get(slice_name)
        return slice_entry.devices if slice_entry is not None else ()

    def devices_named(self, id_: DeviceID) -> Sequence[DeviceEntry]:
        """Published devices with this id: one, unless a pool is invalid or being replaced."""
        state = self.ledger.find(id_)
        return state.entries if state is not None else ()

    @property
    def has_shared_devices(self) -> bool:
        """Whether there are devices that several nodes may reach."""
        return bool(self._shared)

    def is_shared(self, allocation: api.AllocationResult) -> bool:
        """Whether an allocation holds a device that several nodes may reach."""
        for result in allocation.devices.results:
            state = self.ledger.find(DeviceID(result.driver, result.pool, result.device))
            if state is not None and any(not entry.slice.spec.node_name for entry in state.entries):
                return True
        return False

    def nodes(self) -> tuple[str, ...]:
        """Nodes that have their own slices, sorted."""
        return tuple(sorted(self._local))

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._recent_plans.clear()
        self._needs.clear()

    def nodes_worth_trying(self, claims: Sequence[api.ResourceClaim]) -> Iterator[str]:
        """Nodes that may have enough free devices for the claims; all others cannot.

        Only nodes that have their own slices are named. Fullest first, so that free nodes stay free. Nothing may
        be changed before the last name has been taken.
        """
        lists = self.needs([self.plan(claim.spec) for claim in claims])
        own = [(index, needed - index.shared) for index, needed in lists if needed > index.shared]
        if not own:
            yield from self.nodes()
            return
        first = own[0] if len(own) == 1 else min(own, key=lambda item: item[0].size(item[1]))
        others = [(index, needed) for index, needed in lists if index is not first[0]]
        for node in first[0].nodes(first[1]):
            if all(index.count(node) >= needed for index, needed in others):
                yield node

    def needs(self, plans: Sequence[ClaimPlan]) -> list[tuple[AvailabilityIndex, int]]:
        """The minimum number of devices of each index that claims of these plans need. Valid until a slice or class changes."""
        if len(plans) != 1:
            return self._needed(plans)
        needs = self._needs.get(plans[0])
        if needs is None:
            needs = self._needs[plans[0]] = self._needed(plans)
        return needs

    def _needed(self, plans: Sequence[ClaimPlan]) -> list[tuple[AvailabilityIndex, int]]:
        """The minimum number of devices that unconditional requests need, by index."""
        needs: dict[AvailabilityIndex, int] = {}
        for plan in plans:
            for request in plan.requests:
                leaf = request.leaves[0]
                if request.prioritized or leaf.signature is None or leaf.all_devices:
                    continue
                indexes = [self.index(leaf.signature)]
                if len(plans) == 1:
                    indexes += [
                        self.index(leaf.signature, plan.constraints[index])
                        for index in leaf.constraints
                        if plan.constraints[index].attribute not in leaf.derived
                    ]
                # Requests for shares can be served by one device, others add up.
                add = not leaf.signature.admin_access and not indexes[0].has_shareable
                for index in indexes:
                    before = needs.get(index, 0)
                    needs[index] = before + leaf.count if add else max(before, leaf.count)
        for index, needed in needs.items():
            index.most_needed = max(index.most_needed, needed)
        return list(needs.items())

    def watch(self, signature: Signature) -> AvailabilityIndex:
        """Free devices per node for a signature; from now on every change of them matters, not just their number."""
        index = self.index(signature)
        index.is_watched = True
        return index

    def index(self, signature: Signature, constraint: ConstraintPlan | None = None) -> AvailabilityIndex:
        """Free devices per node for a signature, created on first use."""
        indexes = self._indexes.setdefault(signature, {})
        index = indexes.get(constraint)
        if index is None:
            index = indexes[constraint] = AvailabilityIndex(signature, constraint, self.reader)
            for slice_entry in self._slices.values():
                index.add(slice_entry)
        return index

    def _all_indexes(self) -> Iterator[AvailabilityIndex]:
        for indexes in self._indexes.values():
            yield from indexes.values()

    def _signature(
        self,
        device_class: api.DeviceClass,
        selectors: tuple[api.DeviceSelector, ...],
        requested: Mapping[str, Quantity],
        tolerations: tuple[api.DeviceToleration, ...],
        admin_access: bool,
    ) -> Signature:
        key = (
            device_class.metadata.name,
            selectors,
            tuple(sorted((name, amount.nano, str(amount)) for name, amount in requested.items())),
            tolerations,
            admin_access,
        )
        signature = self._signatures.get(key)
        if signature is None:
            if len(self._signatures) >= SIGNATURES_MAX:
                self._forget(next(iter(self._signatures)))
            self._signature_count += 1
            signature = self._signatures[key] = Signature(
                self._signature_count, device_class, selectors, requested, tolerations, admin_access, self.features
            )
        return signature

    def _forget_signatures(self, class_name: str) -> None:
        for key, signature in list(self._signatures.items()):
            if signature.device_class.metadata.name == class_name:
                self._forget(key)

    def _forget(self, key: object) -> None:
        signature = self._signatures.pop(key)
        self._forget_plans()
        indexes = self._indexes.pop(signature, {}).values()
        for slice_entry in self._slices.values():
            for index in indexes:
                index.remove(slice_entry)
            slice_entry.forget(signature)
