"""Why a node is cordoned: labels and annotations of those who cordon nodes for their work and uncordon them afterwards."""

from __future__ import annotations

from allot.core.model import core_v1

# Each with the values that it has when no work is under way.
_LABELS = {
    "nvidia.com/gpu-driver-upgrade-state": ("", "upgrade-done", "unknown"),
    "nvidia.com/ofed-driver-upgrade-state": ("", "upgrade-done", "unknown"),
}
_ANNOTATIONS = {
    "machineconfiguration.openshift.io/state": ("", "Done"),
    "sriovnetwork.openshift.io/state": ("", "Idle"),
    "weave.works/kured-reboot-in-progress": ("",),
}


def upkeep(node: core_v1.Node) -> str:
    """`label a/b is upgrade-failed`: who has cordoned a node, and how far they are; empty if that is not known."""
    for word, known, there in (
        ("label", _LABELS, node.metadata.labels),
        ("annotation", _ANNOTATIONS, node.metadata.annotations),
    ):
        for key, idle in known.items():
            value = there.get(key, "")
            if value not in idle:
                return f"{word} {key} is {value}"
    return ""
