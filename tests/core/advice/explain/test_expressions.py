"""Selectors that select nothing: what is wrong with them, and what they should say."""

from __future__ import annotations

import pytest

from allot.core.advice.explain.expressions import Published
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.rewrites import rewrites
from allot.core.model import resource_v1 as api
from core.advice.explain.clusters import asks, device_class, explained, gpu, node, pool, snapshot, templated

DEVICE = 'device.attributes["gpu.nvidia.com"]'


def published(*devices: dict[str, object]) -> Published:
    return Published(snapshot(pool("n", list(devices))).of(api.ResourceSlice))


SIZED = gpu(attributes={"size": {"string": "141Gi"}, "slots": {"int": 4}, "release": {"string": "10.0"}})


@pytest.mark.parametrize(
    ("expression", "problem", "right"),
    [
        (
            f'{DEVICE}.size >= "16Gi"',
            'compares size as text, not as sizes: "141Gi" >= "16Gi" is false',
            f'quantity({DEVICE}.size).compareTo(quantity("16Gi")) >= 0',
        ),
        (
            f'{DEVICE}.memory >= "16Gi"',
            "memory is a capacity, which is a quantity",
            'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("16Gi")) >= 0',
        ),
        (
            f'{DEVICE}.release >= "8.0"',
            'compares release as text, not as versions: "10.0" >= "8.0" is false',
            f'semver({DEVICE}.release, true).compareTo(semver("8.0", true)) >= 0',
        ),
        (
            f'{DEVICE}.cudaComputeCapability >= "7.5"',
            "compares the version cudaComputeCapability with the text",
            f'{DEVICE}.cudaComputeCapability.compareTo(semver("7.5.0")) >= 0',
        ),
        (f'{DEVICE}.slots == "4"', "compares the number slots with the text", f"{DEVICE}.slots == 4"),
        (
            f'{DEVICE}.productName == "A100"',
            'asks for productName "A100", which no device has (devices have "NVIDIA A100")',
            f'{DEVICE}.productName == "NVIDIA A100"',
        ),
        (
            f'{DEVICE}.productname == "NVIDIA A100"',
            'reads attribute productname of "gpu.nvidia.com", which no device has',
            f'{DEVICE}.productName == "NVIDIA A100"',
        ),
        (
            'device.attributes["nvidia.com"].productName == "NVIDIA A100"',
            'reads attribute productName of "nvidia.com", which no device has',
            f'{DEVICE}.productName == "NVIDIA A100"',
        ),
        (
            'device.driver == "nvidia.com"',
            'selects driver "nvidia.com", but no driver of that name has published devices',
            'device.driver == "gpu.nvidia.com"',
        ),
        (
            'device.capacity["gpu.nvidia.com"].memory == quantity("41Gi")',
            "asks for memory of exactly 41Gi, which no device has (the nearest has 40Gi)",
            'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0',
        ),
    ],
)
def test_a_mistake_is_named_and_put_right(expression: str, problem: str, right: str) -> None:
    found = rewrites(expression, published(SIZED))
    assert problem in found[0].problem
    assert found[0].expression == right


@pytest.mark.parametrize(
    ("expression", "lower"),
    [
        (
            'device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("80Gi"))',
            'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0',
        ),
        (
            f'{DEVICE}.cudaComputeCapability.compareTo(semver("9.0.0")) >= 0',
            f'{DEVICE}.cudaComputeCapability.compareTo(semver("8.0.0")) >= 0',
        ),
        (f"{DEVICE}.slots > 7", f"{DEVICE}.slots >= 4"),
        (f"{DEVICE}.slots < 3", f"{DEVICE}.slots <= 4"),
        (f"7 < {DEVICE}.slots", f"{DEVICE}.slots >= 4"),
    ],
)
def test_a_threshold_that_no_device_reaches_is_lowered_to_what_there_is(expression: str, lower: str) -> None:
    found = [rewrite for rewrite in rewrites(expression, published(SIZED)) if not rewrite.problem]
    assert found[0].expression == lower


def test_conditions_can_be_left_out_one_at_a_time() -> None:
    expression = f'({DEVICE}.type == "x" || true) && {DEVICE}.slots > 0 && true'
    texts = [rewrite.expression for rewrite in rewrites(expression, published(SIZED))]
    assert f'({DEVICE}.type == "x" || true) && {DEVICE}.slots > 0' in texts
    assert f"{DEVICE}.slots > 0 && true" in texts


def test_an_expression_that_does_not_parse_has_no_rewrites() -> None:
    assert rewrites("device.(", published(SIZED)) == []


def test_an_attribute_that_one_device_lacks_is_asked_about_first() -> None:
    bare = {"name": "gpu-9", "attributes": {"type": {"string": "gpu"}}}
    found = explained(
        node("n"),
        pool("n", [bare, gpu(0)]),
        device_class(),
        templated("train", asks(f'{DEVICE}.productName.startsWith("NVIDIA")')),
    )
    assert found.reason is Reason.SELECTOR_ERROR
    assert "reads attribute productName, which device gpu.nvidia.com/n/gpu-9 does not have" in found.cause
    assert "reads attribute productName, which device gpu.nvidia.com/n/gpu-9 does not have" in found.cause
    assert found.changes[0].expression == (f'"productName" in {DEVICE} && {DEVICE}.productName.startsWith("NVIDIA")')


def test_every_suggested_expression_was_tried_and_lets_the_pod_run() -> None:
    found = explained(
        node("n"),
        pool("n", [SIZED]),
        device_class(),
        templated("train", asks(f'{DEVICE}.size >= "16Gi" && {DEVICE}.type == "gpu"')),
    )
    assert found.changes
    assert all(change.verified and change.node == "n" for change in found.changes)
