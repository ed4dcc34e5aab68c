"""Access to queues: putting pods into a restricted queue requires permission to `use` it.

Controllers create a workload's pods, so the author of the workload, of any kind, is checked, and controllers of the
control plane are not. Workloads in a restricted queue belong to users who may use it: others may neither change what they
request nor enlarge them. Without restricted queues there is no check.
"""

from __future__ import annotations

from allot.apiserver.admission.attributes import Admission, Authorize, Lookup, Object, Operation
from allot.apiserver.admission.objects import metadata, sequence, text
from allot.apiserver.request import Attributes, User
from allot.apiserver.resources import Resource
from allot.core.access.attributes import refusal
from allot.core.model.foreign_groups import KAI
from allot.core.workloads.queue_use import QUEUE_GROUPS, Restriction, content_of, named_in, restrictions

_CORE_KINDS = ("pods", "podtemplates", "replicationcontrollers")
_WORKLOADS = ("apps", "batch", "autoscaling")
# Components that write on behalf of others. A user that can act as one of them may do anything anyway.
_COMPONENTS = ("system:kube-controller-manager", "system:kube-scheduler")
_COMPONENTS_GROUP = "system:serviceaccounts:kube-system"
_OWNERS_MAX = 8


class QueueUse:
    """The plugin."""

    idle_by = tuple(("queues", group) for group in QUEUE_GROUPS)

    def __init__(self, lookup: Lookup, authorize: Authorize) -> None:
        self._lookup = lookup
        self._authorize = authorize

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:  # noqa: ARG002 - all of them
        """Writes of pods, of what creates or scales them, and of custom resources. A status write may also set labels."""
        if operation not in (Operation.CREATE, Operation.UPDATE):
            return False
        if not resource.group:
            return resource.plural in _CORE_KINDS
        if resource.group in _WORKLOADS:
            return True
        return "." in resource.group and (not resource.group.endswith(".k8s.io") or ".x-k8s.io" in resource.group)

    def idle(self, namespace: str) -> bool:  # noqa: ARG002
        """Whether there are no queues."""
        return all(self._lookup.known_list(*kind) == [] for kind in self.idle_by)

    async def validate(self, admission: Admission) -> None:
        """Refuse users who may not use a queue that the object names."""
        object_, old = admission.object, admission.old
        if object_ is None or _is_component(admission.user):
            return
        restricted = restrictions({group: await self._lookup.list("queues", group) for group in QUEUE_GROUPS})
        if not restricted:
            return
        queues = await self._used(admission, object_)
        if old is not None and content_of(object_) == content_of(old):
            queues -= await self._used(admission, old)
        for name in sorted(queues & restricted.keys()):
            self._check(admission, name, restricted[name])

    def _check(self, admission: Admission, name: str, restriction: Restriction) -> None:
        why = "" if restriction.by == name else f' by queue "{restriction.by}"'
        for group in restriction.api_groups:
            asked = Attributes(user=admission.user, verb="use", group=group, version="*", resource="queues", name=name)
            if not self._authorize(asked).allowed:
                raise admission.forbidden(refusal(asked, f'queue "{name}" is restricted{why}'))

    async def _used(self, admission: Admission, object_: Object) -> set[str]:
        """The queues of an object, of the groups that it names, and of what it belongs to."""
        resource = admission.resource
        namespace = admission.namespace
        named = named_in(object_, resource.group, resource.kind)
        queues, groups, ahead = set(named.queues), set(named.groups), list(named.owners)
        seen: set[tuple[str, str, str]] = set()
        while ahead:
            reference = ahead.pop()
            if reference in seen:
                continue
            seen.add(reference)
            if len(seen) > _OWNERS_MAX:
                # What is not checked is refused: a chain could be made too long on purpose, to hide its end.
                raise admission.forbidden(f"it belongs to more than {_OWNERS_MAX} objects, and queues are restricted")
            group, plural, name = reference
            owner = await self._lookup.get(plural, group, namespace, name)
            if owner is None:
                continue
            its = named_in(owner, group, text(owner.get("kind")))
            queues |= its.queues
            groups |= its.groups | await self._made_for(owner, namespace)
            ahead += its.owners
        for group, name in sorted(groups):
            found = await self._lookup.get("podgroups", group, namespace, name)
            if found is not None:
                queues |= named_in(found, group, "PodGroup").queues
        return queues

    async def _made_for(self, owner: Object, namespace: str) -> set[tuple[str, str]]:
        """The groups that the pod grouper created for an owner: it puts everything with this owner into them."""
        uid = metadata(owner).get("uid")
        return {
            (KAI, text(metadata(group).get("name")))
            for group in await self._lookup.list("podgroups", KAI, namespace)
            if any(
                isinstance(each, dict) and each.get("uid") == uid
                for each in sequence(metadata(group).get("ownerReferences"))
            )
        }


def _is_component(user: User) -> bool:
    return user.name in _COMPONENTS or _COMPONENTS_GROUP in user.groups
