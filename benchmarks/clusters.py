"""Clusters and claims for the benchmarks."""

from __future__ import annotations

from allot.core.allocation import DEFAULT_FEATURES, Features, Inventory
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta
from allot.core.quantity import Quantity

DRIVER = "gpu.example.com"
MODELS = ("a100", "h100", "h200", "l40s")
MEMORY = {"a100": "40Gi", "h100": "80Gi", "h200": "141Gi", "l40s": "48Gi"}


def device(number: int, model: str) -> api.Device:
    """A GPU with about a dozen attributes, of which some differ from device to device."""
    return api.Device(
        name=f"gpu-{number}",
        attributes={
            "model": api.DeviceAttribute(string=model),
            "index": api.DeviceAttribute(int_=number),
            "uuid": api.DeviceAttribute(string=f"GPU-{number:08x}-{hash_of(model, number):08x}"),
            "productName": api.DeviceAttribute(string=f"NVIDIA {model.upper()}"),
            "architecture": api.DeviceAttribute(string="Hopper" if model.startswith("h") else "Ampere"),
            "cudaComputeCapability": api.DeviceAttribute(version="9.0.0" if model.startswith("h") else "8.0.0"),
            "driverVersion": api.DeviceAttribute(version="570.86.15"),
            "healthy": api.DeviceAttribute(bool_=True),
            "numa": api.DeviceAttribute(int_=number // 8),
            "resource.kubernetes.io/pcieRoot": api.DeviceAttribute(string=f"pci0000:{number // 8:02x}"),
        },
        capacity={"memory": api.DeviceCapacity(value=Quantity.parse(MEMORY[model]))},
    )


def hash_of(model: str, number: int) -> int:
    """A number that looks random and is the same on every run."""
    return (sum(model.encode()) * 2654435761 + number * 40503) & 0xFFFFFFFF


def slice_of(node: str, devices: int, model: str) -> api.ResourceSlice:
    """All devices of a node."""
    return api.ResourceSlice(
        metadata=ObjectMeta(name=f"{node}-{DRIVER}"),
        spec=api.ResourceSliceSpec(
            driver=DRIVER,
            pool=api.ResourcePool(name=node, generation=1, resource_slice_count=1),
            node_name=node,
            devices=tuple(device(number, model) for number in range(devices)),
        ),
    )


def cluster(
    nodes: int, devices: int, *, selectors: bool, features: Features = DEFAULT_FEATURES
) -> tuple[Inventory, dict[str, Node]]:
    """A cluster with one model per node and a class with or without a selector."""
    inventory = Inventory(features)
    chosen = (selector(f'device.driver == "{DRIVER}"'),) if selectors else ()
    inventory.put_class(api.DeviceClass(metadata=ObjectMeta(name="gpu"), spec=api.DeviceClassSpec(selectors=chosen)))
    names = {}
    for number in range(nodes):
        name = f"node-{number:05d}"
        names[name] = Node(metadata=ObjectMeta(name=name))
        inventory.put_slice(slice_of(name, devices, MODELS[number % len(MODELS)]))
    return inventory, names


def selector(expression: str) -> api.DeviceSelector:
    """A CEL selector."""
    return api.DeviceSelector(cel=api.CELDeviceSelector(expression=expression))


def request(name: str, count: int = 1, selectors: tuple[str, ...] = ()) -> api.DeviceRequest:
    """A request for devices of the class gpu."""
    return api.DeviceRequest(
        name=name,
        exactly=api.ExactDeviceRequest(
            device_class_name="gpu",
            allocation_mode=api.EXACT_COUNT,
            count=count,
            selectors=tuple(selector(expression) for expression in selectors),
        ),
    )


def claim(
    number: int, requests: tuple[api.DeviceRequest, ...], constraints: tuple[api.DeviceConstraint, ...] = ()
) -> api.ResourceClaim:
    """A claim of its own for each number, as claims made from one template are."""
    return api.ResourceClaim(
        metadata=ObjectMeta(namespace="default", name=f"claim-{number}", uid=f"uid-{number}"),
        spec=api.ResourceClaimSpec(devices=api.DeviceClaim(requests=requests, constraints=constraints)),
    )
