"""ImageLocality: nodes that have a pod's images are better, the more so the more nodes have them."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile

NAME = "ImageLocality"
_SMALLEST = 23 * 2**20
_LARGEST_PER_IMAGE = 1000 * 2**20


def score(profile: Profile, node: NodeInfo, spread: Mapping[str, int], nodes: int) -> int:
    """0 to 100. spread: how many of all nodes have an image."""
    if not node.images:
        return 0
    total = 0
    for image in profile.images:
        size = node.images.get(image)
        if size is not None:
            total += int(size * (spread.get(image, 0) / nodes))
    largest = _LARGEST_PER_IMAGE * profile.image_count
    total = max(_SMALLEST, min(largest, total))
    return 100 * (total - _SMALLEST) // (largest - _SMALLEST)
