"""Which images pods get by the devices that they were given."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model.codec import decode_served
from allot.core.model.resource_v1 import ResourceClaim
from allot.devices.imageconfigurator.images import DRIVER, UPDATED, ConfigProblem, pending, wanted_images

RESULT = {
    "request": "image-config",
    "driver": DRIVER,
    "pool": "all-nodes",
    "device": "image-configurator",
    "shareID": "4f60ced4-7114-50ee-8950-301abb3a8720",
    "bindingConditions": [UPDATED],
}


def config(image: str, *requests: str, **changed: Any) -> dict[str, Any]:
    """The image of the container app, if a device was given for these requests."""
    parameters = {
        "apiVersion": f"{DRIVER}/v1alpha1",
        "kind": "ImageConfig",
        "containerName": "app",
        "image": image,
        **changed,
    }
    return {
        "source": "FromClaim",
        "requests": list(requests),
        "opaque": {"driver": DRIVER, "parameters": parameters},
    }


def claim(*configs: dict[str, Any], **status: Any) -> ResourceClaim:
    """A claim that holds our device, with what the allocator left of its configuration."""
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": [RESULT], "config": list(configs)}}, **status},
    }
    return decode_served(body, ResourceClaim)


def test_a_container_gets_the_image_of_the_device_that_was_chosen() -> None:
    others = {"source": "FromClaim", "requests": ["x"], "opaque": {"driver": "other.example.com", "parameters": {}}}
    assert wanted_images([claim(config("gpu:1", "device/gpu"), others)]) == {"app": "gpu:1"}
    same = claim(config("gpu:1", "device/gpu"), config("side:1", "device/gpu", containerName="sidecar"))
    assert wanted_images([same]) == {"app": "gpu:1", "sidecar": "side:1"}


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ((), "no ImageConfig for the devices that were chosen"),
        ((config("gpu:1"),), "no ImageConfig"),
        ((config("a:1", "x"), config("b:1", "y")), "claim default/c: container 'app' has two images: 'a:1' and 'b:1'"),
        ((config("a:1", "x", apiVersion="v9"),), "apiVersion 'v9', expected image-configurator.x-k8s.io/v1alpha1"),
        ((config("a:1", "x", kind="Other"),), "claim default/c: ImageConfig: Invalid value 'Other'"),
        ((config("a:1", "x", colour="red"),), "unknown field `colour`"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_named(configs: tuple[dict[str, Any], ...], problem: str) -> None:
    with pytest.raises(ConfigProblem) as caught:
        wanted_images([claim(*configs)])
    assert problem in str(caught.value)


def test_somebody_waits_until_the_condition_is_there() -> None:
    key = ("all-nodes", "image-configurator", RESULT["shareID"])
    assert pending(claim()) == (key,)
    condition = {
        "type": UPDATED,
        "status": "True",
        "reason": "ImagePatched",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    told = {name: RESULT[name] for name in ("driver", "pool", "device", "shareID")}
    assert pending(claim(devices=[{**told, "conditions": [condition]}])) == ()
