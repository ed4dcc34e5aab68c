"""Parts of a GPU in KAI's notation, as claims: `gpu-fraction: "0.5"` or `gpu-memory: "2000"` (MiB) on a pod becomes a request for
part of the capacity of devices that several claims may share.

The cluster defines which devices are shared: a DeviceClass with the label `allot.dev/gpu-shares`, whose value is the name of the
divided capacity. The amount for a fraction depends on the device, so the request has an alternative for each device size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Any

import msgspec

from allot.core.lifecycle.actions import WARNING, Action, Create, Delete, Emit, RequeueAfter, resource_of
from allot.core.model import kai_words as words
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import DeviceClass, ResourceClaimTemplate, ResourceSlice

Object = Mapping[str, Any]

SHARES_LABEL = "allot.dev/gpu-shares"
CLAIM = "gpu-share"
_PREFIX = "gpu-share-"
# What a template was created for: it is recreated when devices of other sizes appear.
_DIGEST = "allot.dev/gpu-shares-of"
_TEMPLATES = resource_of(ResourceClaimTemplate)
_MEBIBYTE = 2**20
# The maximum number of alternatives in firstAvailable.
_SIZES_MAX = 8
_LOOK_AGAIN_S = 10.0
_WHOLE = ("nvidia.com/gpu", "amd.com/gpu")


class BadShare(ValueError):
    """A pod's request for part of a GPU is invalid."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod requests: a fraction of each device, or an amount of its memory. container: the one that uses it; empty: the
    first.
    """

    fraction: Fraction | None = None
    memory_mib: int = 0
    devices: int = 1
    container: str = ""

    @property
    def template(self) -> str:
        """The name of the template for such a share."""
        text = f"{self.fraction}/{self.memory_mib}/{self.devices}"
        return f"{_PREFIX}{sha256(text.encode()).hexdigest()[:10]}"


def share_in(annotations: Mapping[str, Any], containers: Sequence[Object]) -> Share | None:
    """What the annotations of a pod request; None if nothing. BadShare with KAI's message."""
    fraction, memory = annotations.get(words.GPU_FRACTION), annotations.get(words.GPU_MEMORY)
    devices = annotations.get(words.GPU_DEVICES)
    if fraction is None and memory is None:
        if devices is not None:
            raise BadShare(f"{words.GPU_DEVICES} needs {words.GPU_FRACTION} or {words.GPU_MEMORY}")
        return None
    if fraction is not None and memory is not None:
        raise BadShare("cannot request both GPU and GPU memory")
    for container in containers:
        resources = container.get("resources")
        limits = resources.get("limits") if isinstance(resources, Mapping) else None
        if isinstance(limits, Mapping) and any(name in limits for name in _WHOLE):
            raise BadShare("cannot have both GPU fraction request and whole GPU resource request/limit")
    name = str(annotations.get(words.GPU_CONTAINER, ""))
    if name and all(container.get("name") != name for container in containers):
        raise BadShare(f"{words.GPU_CONTAINER} is {name!r}, but the pod has no such container")
    count = _whole(devices, words.GPU_DEVICES) if devices is not None else 1
    if memory is not None:
        return Share(memory_mib=_whole(memory, words.GPU_MEMORY), devices=count, container=name)
    return Share(fraction=_fraction(fraction), devices=count, container=name)


def _whole(text: Any, what: str) -> int:
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise BadShare(f"{what} is {text!r}, expected a whole number above 0")
    return int(text)


def _fraction(text: Any) -> Fraction:
    parts = text.split(".") if isinstance(text, str) and len(text) < 20 else ()
    if len(parts) in (1, 2) and all(part.isascii() and part.isdigit() for part in parts) and 0 < Fraction(text) < 1:
        return Fraction(text)
    raise BadShare(f"{words.GPU_FRACTION} is {text!r}, expected a decimal number above 0 and below 1")


def with_claim(pod: Object, share: Share) -> dict[str, Any]:
    """A pod that requests its share by a claim."""
    spec = dict(pod["spec"])
    containers = list(spec["containers"])
    number = next((index for index, each in enumerate(containers) if each.get("name") == share.container), 0)
    container = dict(containers[number])
    resources = dict(container.get("resources") or {})
    container["resources"] = {**resources, "claims": [*(resources.get("claims") or ()), {"name": CLAIM}]}
    containers[number] = container
    claims = [*(spec.get("resourceClaims") or ()), {"name": CLAIM, "resourceClaimTemplateName": share.template}]
    return {**pod, "spec": {**spec, "containers": containers, "resourceClaims": claims}}


def reconcile_template(
    pod: Pod, known: ResourceClaimTemplate | None, classes: Iterable[DeviceClass], slices: Iterable[ResourceSlice]
) -> tuple[Action, ...]:
    """Ensure that a template for the pod's share exists and matches the devices. known: the template of that name."""
    reference = next((each for each in pod.spec.resource_claims if each.name == CLAIM), None)
    try:
        share = share_in(pod.metadata.annotations, ())
    except BadShare:
        return ()
    if reference is None or share is None or reference.resource_claim_template_name != share.template:
        return ()
    made = _request(share, classes, slices)
    if isinstance(made, str):
        told = Emit(regarding=pod, type=WARNING, reason="NoGpuShares", action="Claiming", note=made)
        return (told, RequeueAfter(seconds=_LOOK_AGAIN_S))
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", **made}]}}}
    body = {
        "apiVersion": _TEMPLATES.api_version,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": share.template,
            "namespace": pod.metadata.namespace,
            "annotations": {_DIGEST: _digest_of(made)},
        },
        "spec": spec,
    }
    namespace = pod.metadata.namespace
    create = Create(resource=_TEMPLATES, namespace=namespace, object=body, may_exist=True)
    if known is None:
        return (create,)
    if known.metadata.annotations.get(_DIGEST) == _digest_of(made):
        return ()
    drop = Delete(resource=_TEMPLATES, name=share.template, namespace=namespace, uid=known.metadata.uid)
    return (drop, create)


def _digest_of(request: Object) -> str:
    return sha256(msgspec.json.encode(request, order="sorted")).hexdigest()[:16]


def _request(share: Share, classes: Iterable[DeviceClass], slices: Iterable[ResourceSlice]) -> dict[str, Any] | str:
    named = sorted(
        (each for each in classes if SHARES_LABEL in each.metadata.labels), key=lambda each: each.metadata.name
    )
    if not named:
        return f"no DeviceClass has the label {SHARES_LABEL}, so the shared devices are unknown"
    class_ = named[0]
    capacity = class_.metadata.labels[SHARES_LABEL] or "memory"
    exactly: dict[str, Any] = {"deviceClassName": class_.metadata.name}
    if share.devices > 1:
        exactly["count"] = share.devices
    if share.fraction is None:
        amount = f"{share.memory_mib}Mi"
        return {"exactly": {**exactly, "capacity": {"requests": {capacity: amount}}}}
    sizes = sorted(_sizes(capacity, slices))
    if not sizes:
        return f"no device that several claims may share has a capacity {capacity}"
    if len(sizes) > _SIZES_MAX:
        return f"devices that are shared have {len(sizes)} sizes of {capacity}: at most {_SIZES_MAX} are allowed"
    alternatives = [{**exactly, **_of_size(share.fraction, capacity, driver, size)} for driver, size in sizes]
    if len(alternatives) == 1:
        return {"exactly": alternatives[0]}
    return {"firstAvailable": [{"name": f"size-{number}", **each} for number, each in enumerate(alternatives)]}


def _sizes(capacity: str, slices: Iterable[ResourceSlice]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for slice_ in slices:
        for device in slice_.spec.devices or ():
            if device.allow_multiple_allocations and capacity in device.capacity:
                found.add((slice_.spec.driver, device.capacity[capacity].value.nano // 10**9))
    return found


def _of_size(fraction: Fraction, capacity: str, driver: str, size: int) -> dict[str, Any]:
    domain, _, name = capacity.rpartition("/")
    path = f'device.capacity["{domain or driver}"]["{name}"]'
    expression = f'device.driver == "{driver}" && "{name}" in device.capacity["{domain or driver}"] && {path}.compareTo(quantity("{size}")) == 0'
    # Rounded down, so that three of 0.33 fit.
    amount = str(int(fraction * size))
    return {"selectors": [{"cel": {"expression": expression}}], "capacity": {"requests": {capacity: amount}}}
