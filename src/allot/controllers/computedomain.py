"""The controller of NVIDIA's ComputeDomains: wires `core.workloads.compute_domain`. Starts when the server has the kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.compute_domains import CLIQUE_LABEL, DOMAIN_LABEL, DRIVER_NAMESPACE, ComputeDomain
from allot.core.model.core_v1 import Namespace, Node, Pod
from allot.core.model.resource_v1 import ResourceClaimTemplate
from allot.core.workloads.compute_domain import COMPUTE_DOMAINS, View, reconcile
from allot.core.workloads.resources import DAEMON_SETS

Object = dict[str, Any]

_UID = "computedomain: uid"
_TEMPLATE = "computedomain: template"
_MEMBERS = "computedomain: domain"
_PAUSE_S = 30.0
_PODS_PAUSE_S = 0.1


class ComputeDomains:
    """Waits until the kind is served, then reconciles domains."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self) -> None:
        """Control until cancelled."""
        services, kind = self._services, COMPUTE_DOMAINS
        while (await services.client.discovery()).find_kind(kind.group, kind.version, kind.kind) is None:
            await services.clock.sleep(_PAUSE_S)
        await _Domains(services).controller.run()


def make(services: Services) -> ComputeDomains:
    """The controller `compute-domain-controller`."""
    return ComputeDomains(services)


def _labelled(object_: Object | Pod | Node | ResourceClaimTemplate) -> Iterator[str]:
    labels = object_["metadata"].get("labels", {}) if isinstance(object_, dict) else object_.metadata.labels
    uid = labels.get(DOMAIN_LABEL)
    if uid:
        yield uid


def _uid(domain: Object) -> Iterator[str]:
    yield domain["metadata"]["uid"]


def _template_of(domain: Object) -> Iterator[str]:
    channel = (domain.get("spec") or {}).get("channel") or {}
    yield f"{domain['metadata']['namespace']}/{(channel.get('resourceClaimTemplate') or {}).get('name')}"


class _Domains:
    """Keys are the uids of domains: leftovers are found by uid, whether or not the domain still exists."""

    def __init__(self, services: Services) -> None:
        informers, kind, sets = services.informers, COMPUTE_DOMAINS, DAEMON_SETS
        by_domain = {_MEMBERS: _labelled}
        self._domains: Informer[Object] = informers.dynamic(kind.group, kind.version, kind.plural, namespaced=True)
        self._domains.cache.add_index(_UID, _uid)
        self._domains.cache.add_index(_TEMPLATE, _template_of)
        self._sets: Informer[Object] = informers.dynamic(sets.group, sets.version, sets.plural, namespaced=True)
        self._sets.cache.add_index(_MEMBERS, _labelled)
        self._templates: Informer[ResourceClaimTemplate] = informers.typed(ResourceClaimTemplate, indexers=by_domain)
        self._pods: Informer[Pod] = informers.typed(Pod, indexers=by_domain)
        self._nodes: Informer[Node] = informers.typed(Node, indexers=by_domain)
        self._namespaces: Informer[Namespace] = informers.typed(Namespace)
        self.controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="computedomain",
            component="compute-domain-controller",
            waits_for=(self._domains, self._sets, self._templates, self._pods, self._nodes, self._namespaces),
        )
        self._domains.add_handler(self._domain_changed)
        self._sets.add_handler(self._member_changed)
        self._pods.add_handler(self._pod_changed)
        self._templates.add_handler(self._template_changed)
        self._nodes.add_handler(self._node_changed)

    # --- affected domains ---

    def _domain_changed(self, change: Change[Object]) -> None:
        self.controller.queue.add(change.object["metadata"]["uid"])

    def _member_changed(self, change: Change[Any]) -> None:
        for each in (change.old, change.new):
            if each is not None:
                for uid in _labelled(each):
                    self.controller.queue.add(uid)

    def _pod_changed(self, change: Change[Pod]) -> None:
        # Daemons start together, and each would cause another status write.
        for uid in _labelled(change.object):
            self.controller.queue.add_after(uid, _PODS_PAUSE_S)

    def _template_changed(self, change: Change[ResourceClaimTemplate]) -> None:
        self._member_changed(change)
        # It may have blocked a domain, or do so now.
        for domain in self._domains.cache.by_index(_TEMPLATE, change.key):
            self.controller.queue.add(domain["metadata"]["uid"])

    def _node_changed(self, change: Change[Node]) -> None:
        watched = [
            {name: each.metadata.labels.get(name) for name in (DOMAIN_LABEL, CLIQUE_LABEL)} if each is not None else {}
            for each in (change.old, change.new)
        ]
        if watched[0] != watched[1]:
            self._member_changed(change)

    # --- existing objects ---

    def _reconcile(self, uid: str, answers: Answers) -> tuple[Action, ...]:
        found = next(iter(self._domains.cache.by_index(_UID, uid)), None)
        try:
            domain = None if found is None else decode_served(without_managed_fields(found), ComputeDomain)
        except DecodeError:
            # An invalid object is ignored.
            return ()
        return reconcile(uid, self._view(uid, found, domain), answers)

    def _view(self, uid: str, found: Object | None, domain: ComputeDomain | None) -> View:
        pods = tuple(
            pod for pod in self._pods.cache.by_index(_MEMBERS, uid) if pod.metadata.namespace == DRIVER_NAMESPACE
        )
        cliques = {}
        for name in {pod.spec.node_name for pod in pods}:
            node = self._nodes.cache.get(name)
            if node is not None:
                cliques[name] = node.metadata.labels.get(CLIQUE_LABEL, "")
        named = None
        if domain is not None:
            name = domain.spec.channel.resource_claim_template.name
            named = self._templates.cache.get(f"{domain.metadata.namespace}/{name}")
        return View(
            domain=domain,
            object=found,
            templates=tuple(self._templates.cache.by_index(_MEMBERS, uid)),
            named_template=named,
            daemon_sets=tuple(
                decode_served(without_managed_fields(each), DaemonSet).metadata
                for each in self._sets.cache.by_index(_MEMBERS, uid)
                if each["metadata"]["namespace"] == DRIVER_NAMESPACE
            ),
            daemons=pods,
            nodes=tuple(self._nodes.cache.by_index(_MEMBERS, uid)),
            cliques=cliques,
            has_namespace=self._namespaces.cache.get(DRIVER_NAMESPACE) is not None,
        )
