"""Extended resources that are served by devices (DRAExtendedResource): which class stands for a name, which claim for a pod.

A container that asks for `example.com/gpu: 2` gets devices of the class that has this extended resource name, through a
claim that the scheduler creates. Per node and name it is all or nothing: a node whose device plugin offers the resource
serves it, any other node serves it with devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import ObjectMeta, OwnerReference

# The name of the claim while it exists only in memory; no claim in the API can have it.
SPECIAL_NAME = "<extended-resources>"
_ALWAYS = "Always"

Mappings = tuple[core_v1.ContainerExtendedResourceRequest, ...]
# By container: its requests for names that classes stand for, with the position of the name among all its requests.
Wanted = tuple[tuple[tuple[str, int, int], ...], ...]


class ExtendedResources:
    """Which class stands for an extended resource. The newest class of a name wins, then the smaller class name.

    Unlike upstream's cache, a class that lost comes back when the winner goes or changes its name.
    """

    def __init__(self) -> None:
        self._classes: dict[str, api.DeviceClass] = {}
        self._by_name: dict[str, dict[str, api.DeviceClass]] = {}
        self._winners: dict[str, str] = {}
        # Changes with every change of a winner.
        self.version = 0

    def put(self, device_class: api.DeviceClass) -> None:
        """A class was created or changed."""
        name = device_class.metadata.name
        before = self._classes.get(name)
        if (
            before is not None
            and before.spec.extended_resource_name == device_class.spec.extended_resource_name
            and before.metadata.creation_timestamp == device_class.metadata.creation_timestamp
        ):
            return
        self.delete(name)
        self._classes[name] = device_class
        self._winners[api.IMPLICIT_EXTENDED_RESOURCE_PREFIX + name] = name
        resource = device_class.spec.extended_resource_name
        if resource:
            self._by_name.setdefault(resource, {})[name] = device_class
            self._elect(resource)
        self.version += 1

    def delete(self, name: str) -> None:
        """A class is gone."""
        before = self._classes.pop(name, None)
        if before is None:
            return
        self._winners.pop(api.IMPLICIT_EXTENDED_RESOURCE_PREFIX + name, None)
        resource = before.spec.extended_resource_name
        if resource:
            del self._by_name[resource][name]
            self._elect(resource)
        self.version += 1

    def _elect(self, resource: str) -> None:
        candidates = self._by_name[resource]
        if not candidates:
            del self._by_name[resource]
            self._winners.pop(resource, None)
            return
        newest = max(found.metadata.creation_timestamp or "" for found in candidates.values())
        self._winners[resource] = min(
            name for name, found in candidates.items() if (found.metadata.creation_timestamp or "") == newest
        )

    def class_name(self, resource: str) -> str | None:
        """The class whose devices serve an extended resource."""
        return self._winners.get(resource)

    def wanted(self, pod: core_v1.Pod) -> Wanted | None:
        """What a pod requests of names that classes stand for; None if nothing. Fractions and zero do not count."""
        winners = self._winners
        if not winners:
            return None
        found: list[tuple[tuple[str, int, int], ...]] = []
        anything = False
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            requests = container.resources.requests
            mine: tuple[tuple[str, int, int], ...] = ()
            for name in requests:
                if name in winners:
                    mine = tuple(
                        (name, count, place)
                        for place, name in enumerate(sorted(requests))
                        if name in winners and (count := requests[name].as_int64() or 0) > 0
                    )
                    anything = anything or bool(mine)
                    break
            found.append(mine)
        return tuple(found) if anything else None


def names_of(wanted: Wanted) -> tuple[str, ...]:
    """The requested extended resources, sorted."""
    return tuple(sorted({name for container in wanted for name, _, _ in container}))


def special_claim(pod: core_v1.Pod, requests: tuple[api.DeviceRequest, ...] = ()) -> api.ResourceClaim:
    """The claim to create for a pod's extended resources, except for its name and uid.

    The uid only tells the claims of several pods apart: ids of shares are derived from it.
    """
    metadata = pod.metadata
    owner = OwnerReference(api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid, controller=True)
    return api.ResourceClaim(
        metadata=ObjectMeta(
            namespace=metadata.namespace,
            name=SPECIAL_NAME,
            uid=f"{metadata.uid}{SPECIAL_NAME}",
            generate_name=f"{metadata.name}-extended-resources-",
            owner_references=(owner,),
            annotations={api.EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        ),
        spec=api.ResourceClaimSpec(devices=api.DeviceClaim(requests=requests)),
    )


def owner_of_special(claim: api.ResourceClaim) -> str | None:
    """The uid of the pod for whose extended resources a claim was created; None if it is another kind of claim."""
    if claim.metadata.annotations.get(api.EXTENDED_RESOURCE_CLAIM_ANNOTATION) != "true":
        return None
    for owner in claim.metadata.owner_references:
        if owner.controller:
            return owner.uid
    return None


def requests_and_mappings(
    pod: core_v1.Pod, wanted: Wanted, names: Sequence[str], class_of: Callable[[str], str | None]
) -> tuple[tuple[api.DeviceRequest, ...], Mappings]:
    """The requests that stand for a pod's extended resources of these names (sorted), and which container uses which.

    Containers that run together have a request each. Init containers that end before others start use the devices of
    those that come later; anything beyond that is one more request, which they share.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    first_regular = len(pod.spec.init_containers)
    requests: list[api.DeviceRequest] = []
    mappings: list[core_v1.ContainerExtendedResourceRequest] = []
    for name in names:
        class_name = class_of(name)
        if class_name is None:
            continue
        lasting: list[_Request | None] = []
        for index, container in enumerate(containers):
            ends = index < first_regular and container.restart_policy != _ALWAYS
            lasting.append(None if ends else _request(index, wanted[index], name))
        passing = [
            (container, _request(index, wanted[index], name), [found for found in lasting[index:] if found is not None])
            for index, container in enumerate(containers)
            if index < first_regular and container.restart_policy != _ALWAYS
        ]
        extra = _largest_shortfall((need, later) for _, need, later in passing if need is not None)
        if extra is not None:
            requests.append(_device_request(extra, class_name))
        for container, request in zip(containers, lasting, strict=True):
            if request is not None:
                requests.append(_device_request(request, class_name))
                mappings.append(_mapping(container, name, request.name))
        for container, need, later in passing:
            if need is not None:
                mappings.extend(_mapping(container, name, used) for used in _used_by(need, later, extra))
    return tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings)


class _Request:
    """One request: its name and how many devices."""

    __slots__ = ("count", "name")

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count


def _request(index: int, wanted: tuple[tuple[str, int, int], ...], resource: str) -> _Request | None:
    for name, count, place in wanted:
        if name == resource:
            return _Request(f"container-{index}-request-{place}", count)
    return None


def _largest_shortfall(needs: Iterable[tuple[_Request, list[_Request]]]) -> _Request | None:
    extra: _Request | None = None
    for need, later in needs:
        short = need.count - sum(request.count for request in later)
        if short > 0 and (extra is None or short > extra.count):
            extra = _Request(need.name, short)
    return extra


def _used_by(need: _Request, later: list[_Request], extra: _Request | None) -> list[str]:
    """The requests whose devices an init container uses: of later containers as far as needed, then the extra one."""
    names = []
    total = 0
    for request in later:
        names.append(request.name)
        total += request.count
        if total >= need.count:
            return names
    assert extra is not None
    return [*names, extra.name]


def _device_request(request: _Request, class_name: str) -> api.DeviceRequest:
    exactly = api.ExactDeviceRequest(device_class_name=class_name, allocation_mode=api.EXACT_COUNT, count=request.count)
    return api.DeviceRequest(name=request.name, exactly=exactly)


def _mapping(container: core_v1.Container, resource: str, request: str) -> core_v1.ContainerExtendedResourceRequest:
    return core_v1.ContainerExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )
