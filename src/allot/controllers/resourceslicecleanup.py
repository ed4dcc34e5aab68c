"""The ResourceSlice clean-up controller: wires `core.lifecycle.slices`. Remembers since when nodes are missing."""

from __future__ import annotations

from collections.abc import Iterator

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.lifecycle.orphaned_slices import is_candidate, reconcile_slice
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice

_NAME = "resourceslice-cleanup-controller"
_BY_NODE = "resourceslicecleanup: node"


def make(services: Services) -> Controller[str]:
    """The controller, with its handlers in place."""
    clock = services.clock
    slices: Informer[ResourceSlice] = services.informers.typed(ResourceSlice, indexers={_BY_NODE: _node_of})
    nodes: Informer[Node] = services.informers.typed(Node)
    absent_since: dict[str, float] = {}

    def reconcile(key: str, answers: Answers) -> tuple[Action, ...]:
        slice_ = slices.cache.get(key)
        if slice_ is None or not is_candidate(slice_):
            return ()
        node, now_s = slice_.spec.node_name or "", clock.seconds()
        if node in nodes.cache:
            return ()
        return reconcile_slice(slice_, absent_since.setdefault(node, now_s), answers, now_s)

    controller: Controller[str] = Controller(
        services, reconcile, queue_name=_NAME, component=_NAME, waits_for=(slices, nodes), concurrency=4
    )

    def slice_changed(change: Change[ResourceSlice]) -> None:
        new = change.new
        if new is None:
            node = change.object.spec.node_name or ""
            if not slices.cache.by_index(_BY_NODE, node):
                absent_since.pop(node, None)
        elif is_candidate(new) and (new.spec.node_name or "") not in nodes.cache:
            controller.queue.add(change.key)

    def node_changed(change: Change[Node]) -> None:
        if change.new is not None:
            absent_since.pop(change.key, None)
            return
        for slice_ in slices.cache.by_index(_BY_NODE, change.key):
            controller.queue.add(slice_.metadata.name)

    slices.add_handler(slice_changed)
    nodes.add_handler(node_changed)
    return controller


def _node_of(slice_: ResourceSlice) -> Iterator[str]:
    if is_candidate(slice_) and slice_.spec.node_name:
        yield slice_.spec.node_name
