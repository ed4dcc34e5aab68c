"""The disruption controller: PodDisruptionBudgets, and pods whose announced disruption did not happen."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from allot.client.discovery import Discovery
from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Resource
from allot.core.model.codec import DecodeError, decode
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import LabelSelector
from allot.core.model.policy_v1 import PodDisruptionBudget
from allot.core.selectors import Requirements, SelectorError, label_requirements
from allot.core.workloads.disruption_budget import Scalable, View, reconcile, reconcile_pod, stale_disruption_s
from allot.core.workloads.resources import POD_DISRUPTION_BUDGETS
from allot.core.workloads.whole import whole

Object = dict[str, Any]
# A budget or a pod.
_Key = tuple[str, str]

_log = logging.getLogger("allot.controllers")

_BUDGET = "budget"
_POD = "pod"
_BY_NAMESPACE = "namespace"
_DISCOVER_S = 30.0
# Counting costs in proportion to the pods of a budget: many pod changes are handled together.
_PAUSE_PER_POD_S = 1e-4
_PAUSE_MAX_S = 1.0
_FEW = 20


class Disruptions:
    """Maintains the status of budgets."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._client = services.client
        informers = services.informers
        self._budgets: Informer[Object] = informers.dynamic("policy", "v1", "poddisruptionbudgets", namespaced=True)
        self._owners: dict[str, Informer[Object]] = {
            "ReplicaSet": informers.dynamic("apps", "v1", "replicasets", namespaced=True),
            "Deployment": informers.dynamic("apps", "v1", "deployments", namespaced=True),
            "StatefulSet": informers.dynamic("apps", "v1", "statefulsets", namespaced=True),
            "ReplicationController": informers.dynamic("", "v1", "replicationcontrollers", namespaced=True),
        }
        self._pods: Informer[Pod] = informers.typed(Pod)
        self._discovery: Discovery | None = None
        # Namespace -> key of a budget -> its selector.
        self._selectors: dict[str, dict[str, Requirements]] = {}
        self._controller: Controller[_Key] = Controller(
            services,
            self._reconcile,
            queue_name="disruption",
            # kube-controller-manager's name for it.
            component="controllermanager",
            waits_for=(self._budgets, self._pods, *self._owners.values()),
            background=(self._discover,),
            tells_notes_apart=True,
        )
        self._budgets.add_handler(self._budget_changed)
        self._pods.add_handler(self._pod_changed)
        for kind, informer in self._owners.items():
            if kind != "ReplicaSet":
                informer.add_handler(self._owner_changed)

    async def run(self) -> None:
        """Control until cancelled."""
        await self._ask_for_kinds()
        await self._controller.run()

    # --- affected keys ---

    def _budget_changed(self, change: Change[Object]) -> None:
        namespace = change.object["metadata"].get("namespace", "")
        if not self._selectors:
            # The first use of a namespace's pods.
            self._pods.cache.add_index(_BY_NAMESPACE, _namespace_of)
        selectors = self._selectors.setdefault(namespace, {})
        selector = None if change.new is None else _selector(change.new)
        if selector is not None:
            selectors[change.key] = selector
        else:
            selectors.pop(change.key, None)
        if change.new is not None:
            self._controller.queue.add((_BUDGET, change.key))

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.object
        if self._selectors:
            self._look_at_budgets_of(pod)
        if change.new is not None and len(pod.status.conditions) > 0:
            wait = stale_disruption_s(pod, self._clock.seconds())
            if wait is not None:
                self._controller.queue.add_after((_POD, change.key), wait)

    def _look_at_budgets_of(self, pod: Pod) -> None:
        selectors = self._selectors.get(pod.metadata.namespace)
        if not selectors:
            return
        keys = [key for key, selector in selectors.items() if selector.matches(pod.metadata.labels)]
        if len(keys) > 1:
            name, chosen = pod.metadata.name, keys[0].rpartition("/")[2]
            note = (
                f'Pod "{pod.metadata.namespace}"/"{name}" matches multiple PodDisruptionBudgets.  '
                f'Chose "{chosen}" arbitrarily.'
            )
            reason = "MultiplePodDisruptionBudgets"
            self._controller.events.record(pod, "Warning", reason, reason, note)
        for key in keys:
            count = self._pods.cache.count(_BY_NAMESPACE, pod.metadata.namespace)
            pause = 0.0 if count <= _FEW else min(count * _PAUSE_PER_POD_S, _PAUSE_MAX_S)
            self._controller.queue.add_after((_BUDGET, key), pause)

    def _owner_changed(self, change: Change[Object]) -> None:
        """The expected number of pods may have changed."""
        old, new = change.old, change.new
        if old is not None and new is not None and _replicas(old) == _replicas(new):
            return
        for key in self._selectors.get(change.object["metadata"].get("namespace", ""), ()):
            self._controller.queue.add((_BUDGET, key))

    async def _discover(self) -> None:
        while True:
            await self._clock.sleep(_DISCOVER_S)
            if self._selectors:
                await self._ask_for_kinds()

    async def _ask_for_kinds(self) -> None:
        """Discover which kinds exist, and which of them have a scale."""
        try:
            self._discovery = await self._client.discovery(refresh=True)
        except ApiError as error:
            _log.warning("disruption controller: cannot discover which kinds have a scale: %s", error)

    # --- what to do ---

    def _reconcile(self, key: _Key, answers: Answers) -> Sequence[Action]:
        what, name = key
        now_s = self._clock.seconds()
        if what == _POD:
            pod = self._pods.cache.get(name)
            return () if pod is None else reconcile_pod(pod, now_s)
        found = self._budgets.cache.get(name)
        if found is None:
            return ()
        budget = whole(POD_DISRUPTION_BUDGETS, PodDisruptionBudget, found)
        namespace = budget.metadata.namespace
        selector = self._selectors.get(namespace, {}).get(name)

        def controller(kind: str, owner: str) -> Object | None:
            return self._owners[kind].cache.get(f"{namespace}/{owner}")

        pods = () if selector is None else self._pods.cache.by_index(_BY_NAMESPACE, namespace)
        view = View(
            pods=tuple(pod for pod in pods if selector is not None and selector.matches(pod.metadata.labels)),
            controller=controller,
            scalable=self._scalable,
        )
        return reconcile(budget, view, answers, now_s)

    def _scalable(self, api_version: str, kind: str) -> Scalable | None:
        group, _, version = api_version.rpartition("/")
        found = None if self._discovery is None else self._discovery.find_kind(group, version, kind)
        if found is None:
            return None
        resource = Resource(group=group, version=version, plural=found.plural, kind=kind, namespaced=found.namespaced)
        return Scalable(resource, "scale" in found.subresources)


def _namespace_of(pod: Pod) -> tuple[str, ...]:
    return (pod.metadata.namespace,)


def _replicas(owner: Object) -> Any:
    return (owner.get("spec") or {}).get("replicas")


def _selector(budget: Object) -> Requirements | None:
    given = (budget.get("spec") or {}).get("selector")
    if given is None:
        return None
    try:
        return label_requirements(decode(given, LabelSelector).object)
    except (DecodeError, SelectorError):
        return None


def make(services: Services) -> Disruptions:
    """The controller `disruption-controller`."""
    return Disruptions(services)
