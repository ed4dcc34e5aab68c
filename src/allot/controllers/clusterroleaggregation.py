"""The cluster role aggregation controller: stores the rules of aggregated ClusterRoles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Runnable, Services
from allot.core.access.rbac import GROUP, Policy
from allot.core.lifecycle.actions import Action, Answers
from allot.core.lifecycle.aggregation import aggregate

Object = dict[str, Any]


class Aggregation:
    """Checks all aggregated roles whenever a ClusterRole changes; there are few."""

    def __init__(self, services: Services) -> None:
        self._policy = Policy()
        self._roles: Informer[Object] = services.informers.dynamic(GROUP, "v1", "clusterroles", namespaced=False)
        self._roles.cache.add_index("aggregated", _aggregated)
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="ClusterRoleAggregator",
            component="clusterrole-aggregation-controller",
            waits_for=(self._roles,),
            concurrency=5,
        )
        self._roles.add_handler(self._notice)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _notice(self, change: Change[Object]) -> None:
        self._policy.apply("clusterroles", "", change.key, change.new)
        for role in self._roles.cache.by_index("aggregated", "true"):
            self._controller.queue.add(role["metadata"]["name"])

    def _reconcile(self, name: str, answers: Answers) -> Sequence[Action]:  # noqa: ARG002 - it asks nothing
        return aggregate(self._policy, self._roles.cache.get(name))


def _aggregated(role: Object) -> tuple[str, ...]:
    return ("true",) if role.get("aggregationRule") is not None else ()


def make(services: Services) -> Runnable:
    """The controller `clusterrole-aggregation-controller`."""
    return Aggregation(services)
