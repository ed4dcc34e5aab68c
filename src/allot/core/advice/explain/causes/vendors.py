"""Whose devices a node has, by its ResourceSlices, labels and extended resources: a driver is not missing where another vendor's devices are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set

from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model.resource_v1 import ResourceSlice

_WORD = re.compile(r"[^a-z0-9]+")
_ACCELERATORS = frozenset(("gpu", "gpus", "accelerator", "tpu", "npu", "neuron", "gaudi", "dcu", "mlu"))
# Of each vendor of accelerators: the words for it, and its number in PCI, with which node-feature-discovery labels nodes.
_VENDORS = {
    "nvidia": ("nvidia", "10de"),
    "amd": ("amd", "1002"),
    "intel": ("intel", "8086"),
    "habana": ("habana", "gaudi", "1da3"),
    "google": ("google", "tpu", "1ae0"),
    "aws": ("aws", "neuron", "1d0f"),
    "huawei": ("huawei", "ascend", "19e5"),
}
# Labels of clouds are on all of their nodes, with devices of any vendor.
_CLOUDS = frozenset(("google", "aws"))
_OF_WORD = {word: vendor for vendor, words in _VENDORS.items() for word in words}
_PCI = re.compile(r"/pci-(?:[0-9a-f]{4}_)?(?P<vendor>[0-9a-f]{4})\.present$")


def vendor_of(driver: str) -> str:
    """`nvidia` for gpu.nvidia.com."""
    labels = driver.split(".")
    return labels[-2] if len(labels) > 1 else driver


def drivers_by_node(what_if: WhatIfCluster) -> dict[str, set[str]]:
    """The drivers that publish devices of each node."""
    found: dict[str, set[str]] = {}
    for slice_ in what_if.all(ResourceSlice):
        if slice_.spec.devices and slice_.spec.node_name:
            found.setdefault(slice_.spec.node_name, set()).add(slice_.spec.driver)
    return found


def is_of_others(driver: str, node: core_v1.Node, there: Iterable[str]) -> bool:
    """Whether a node has devices of the kind of a driver's, but another vendor's, and nothing suggests that it has the driver's, too.
    there: the drivers that publish devices of it."""
    own = vendor_of(driver)
    own = _OF_WORD.get(own, own)
    told = set(_told(node))
    if own in told:
        return False
    kind = _kind(driver)
    if is_accelerator(driver) and told:
        return True
    return any(_kind(each) == kind and vendor_of(each) != vendor_of(driver) for each in there)


def is_labelled(driver: str, node: core_v1.Node) -> bool:
    """Whether a node's labels say that it has accelerators of a driver's vendor, and no device plugin offers them."""
    own = _OF_WORD.get(vendor_of(driver), vendor_of(driver))
    return is_accelerator(driver) and own in _labelled(node) and own not in _offered(node)


def is_accelerator(driver: str) -> bool:
    """Whether a driver's name speaks of accelerators, which cost more than what is beside them, such as network devices."""
    return bool(_ACCELERATORS & {*_WORD.split(driver.lower())})


def are_rivals(one: str, other: str) -> bool:
    """Whether two names, of drivers, classes or resources, speak of different vendors of accelerators."""
    ours, theirs = {*_vendors(one)}, {*_vendors(other)}
    return bool(ours and theirs) and not ours & theirs


def _kind(driver: str) -> str:
    """The kind of a driver's devices: accelerators of all kinds are one."""
    return "accelerator" if is_accelerator(driver) else _WORD.split(driver.lower())[0]


def _told(node: core_v1.Node) -> Iterator[str]:
    """The vendors of whose accelerators a node's labels and extended resources speak."""
    yield from _labelled(node)
    yield from _offered(node)


def _labelled(node: core_v1.Node) -> Iterator[str]:
    for key, value in node.metadata.labels.items():
        found = _PCI.search(key)
        if found is not None and value == "true" and found["vendor"] in _OF_WORD:
            yield _OF_WORD[found["vendor"]]
        elif value not in ("false", "0") and _ACCELERATORS & {*_WORD.split(f"{key} {value}".lower())}:
            # cloud.google.com/gke-accelerator=nvidia-l4: the value tells more than the key.
            yield from _vendors(value) or _vendors(key, but=_CLOUDS)


def _offered(node: core_v1.Node) -> Iterator[str]:
    for resource, amount in node.status.allocatable.items():
        if "/" in resource and amount.nano and _ACCELERATORS & {*_WORD.split(resource.lower())}:
            yield from _vendors(resource)


def _vendors(text: str, but: Set[str] = frozenset()) -> list[str]:
    return [_OF_WORD[word] for word in _WORD.split(text.lower()) if word in _OF_WORD and word not in but]
