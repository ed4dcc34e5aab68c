"""Which pods belong together: the selectors of services and controllers, for the default spreading of their pods."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model import apps_v1, core_v1
from allot.core.model.meta import LabelSelector
from allot.core.scheduling.podinfo import Profile
from allot.core.selectors import Operator, Requirement, Requirements, SelectorError, label_requirements

_KNOWN_MAX = 4096

Owner = core_v1.Service | core_v1.ReplicationController | apps_v1.ReplicaSet | apps_v1.StatefulSet
_KINDS: Mapping[type[Owner], tuple[str, str]] = {
    core_v1.ReplicationController: ("v1", "ReplicationController"),
    apps_v1.ReplicaSet: ("apps/v1", "ReplicaSet"),
    apps_v1.StatefulSet: ("apps/v1", "StatefulSet"),
}


class SpreadSelectors:
    """Services and controllers, by what they select."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Mapping[str, str]]] = {}
        self._controllers: dict[tuple[str, str, str, str], tuple[Requirement, ...]] = {}
        self._known: dict[bytes, Requirements | None] = {}

    def put(self, owner: Owner) -> None:
        """A service or controller was created or changed."""
        namespace, name = owner.metadata.namespace, owner.metadata.name
        if isinstance(owner, core_v1.Service):
            services = self._services.setdefault(namespace, {})
            if services.get(name) == owner.spec.selector:
                return
            services[name] = owner.spec.selector
        else:
            key = (namespace, *_KINDS[type(owner)], name)
            found = _requirements(owner.spec.selector)
            if self._controllers.get(key) == found:
                return
            self._controllers[key] = found
        self._known.clear()

    def delete(self, owner: Owner) -> None:
        """A service or controller is gone."""
        namespace, name = owner.metadata.namespace, owner.metadata.name
        if isinstance(owner, core_v1.Service):
            self._services.get(namespace, {}).pop(name, None)
        else:
            self._controllers.pop((namespace, *_KINDS[type(owner)], name), None)
        self._known.clear()

    def selector(self, profile: Profile) -> Requirements | None:
        """What the pod's services and its controller select, all together; None if there are none."""
        if not self._services and not self._controllers:
            return None
        if profile.key not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[profile.key] = self._selector(profile)
        return self._known[profile.key]

    def _selector(self, profile: Profile) -> Requirements | None:
        merged: dict[str, str] = {}
        labels = profile.labels
        for selector in self._services.get(profile.namespace, {}).values():
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                merged.update(selector)
        found = _equal(merged)
        if profile.owner is not None:
            found += self._controllers.get((profile.namespace, *profile.owner), ())
        return Requirements(found) if found else None


def _equal(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in sorted(labels.items()))


def _requirements(selector: LabelSelector | Mapping[str, str] | None) -> tuple[Requirement, ...]:
    if not isinstance(selector, LabelSelector):
        return _equal(selector or {})
    try:
        found = label_requirements(selector)
    except SelectorError:
        return ()
    return found.all if found is not None else ()
