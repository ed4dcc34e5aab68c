"""Which images the containers of a pod get, from the parameters of its claims' devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from allot.core.model.meta import RawJSON
from allot.core.model.resource_v1 import ResourceClaim
from allot.driver import Device, Pool

DRIVER = "image-configurator.x-k8s.io"
API_VERSION = f"{DRIVER}/v1alpha1"
KIND = "ImageConfig"
UPDATED, FAILED = f"{DRIVER}/image-updated", f"{DRIVER}/image-update-failed"


class ConfigProblem(ValueError):
    """Invalid parameters."""


class ImageConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag=KIND, forbid_unknown_fields=True
):
    """The image of a container."""

    api_version: str
    container_name: str
    image: str


def published_pool() -> Pool:
    """One device for all pods."""
    device = Device(
        name="image-configurator",
        allow_multiple_allocations=True,
        binds_to_node=False,
        binding_conditions=(UPDATED,),
        binding_failure_conditions=(FAILED,),
    )
    return Pool(name="all-nodes", devices=(device,))


def pending(claim: ResourceClaim) -> tuple[tuple[str, str, str], ...]:
    """Pool, name and share of each of our devices in a claim that a pod waits for."""
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    done = {
        (status.pool, status.device, status.share_id or "")
        for status in claim.status.devices
        if status.driver == DRIVER and any(each.type in (UPDATED, FAILED) for each in status.conditions)
    }
    wanted = (
        (result.pool, result.device, result.share_id or "")
        for result in allocation.devices.results
        if result.driver == DRIVER and UPDATED in result.binding_conditions
    )
    return tuple(each for each in wanted if each not in done)


def wanted_images(claims: Iterable[ResourceClaim]) -> Mapping[str, str]:
    """Images by container, from all claims of a pod. A configuration must name its requests, so that its device is known:
    the allocation has only the configuration of the chosen alternatives. ConfigProblem."""
    found: dict[str, str] = {}
    for claim in claims:
        allocation = claim.status.allocation
        where = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
        for config in allocation.devices.config if allocation is not None else ():
            if config.opaque is None or config.opaque.driver != DRIVER or not config.requests:
                continue
            wanted = _decoded(config.opaque.parameters, where)
            if found.setdefault(wanted.container_name, wanted.image) != wanted.image:
                first = found[wanted.container_name]
                raise ConfigProblem(
                    f"{where}: container {wanted.container_name!r} has two images: {first!r} and {wanted.image!r}"
                )
    if not found:
        raise ConfigProblem(f"no {KIND} for the devices that were chosen")
    return found


def _decoded(parameters: RawJSON | None, where: str) -> ImageConfig:
    try:
        wanted = msgspec.json.decode(parameters.data if parameters is not None else b"null", type=ImageConfig)
    except msgspec.ValidationError as error:
        raise ConfigProblem(f"{where}: {KIND}: {error}") from None
    if wanted.api_version != API_VERSION:
        raise ConfigProblem(f"{where}: {KIND}: apiVersion {wanted.api_version!r}, expected {API_VERSION}")
    return wanted
