"""Control groups of pods: their names, and what is written to them, as by the kubelet (pkg/kubelet/cm and pkg/kubelet/qos, 1.37).

The tree has the pods of class Guaranteed at its top, and a group each for those of the two other classes. Knows both versions' files, but writes
nothing; `node.control_groups` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from allot.core.lifecycle.pod_amounts import HUGE_PAGES, memory_share, pod_limits, pod_requests, together_requested
from allot.core.model.core_v1 import Container, Pod
from allot.core.quantity import Quantity, QuantityError

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
# The group of all pods, below the root; and those of classes, below it.
PODS_GROUP = "kubepods"
CLASS_GROUPS = {BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}
CGROUPFS, SYSTEMD = "cgroupfs", "systemd"

PERIOD_US = 100_000
UNLIMITED = -1
SHARES_MIN = 2
_SHARES_MAX, _SHARES_PER_CPU = 262_144, 1024
_QUOTA_MIN_US = 1000
_WEIGHT_MAX = 10_000
# The kernel has no larger number of pages; runc writes the same.
_HUGE_UNLIMITED = 2**62
_OOM_GUARANTEED, _OOM_BEST_EFFORT = -997, 1000
_NODE_CRITICAL = "system-node-critical"
# "_" stands for "-" in the names of slices.
_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,127}")
_PART = re.compile(r"[0-9A-Za-z.][0-9A-Za-z.:@-]{0,127}")


class BadGroupName(ValueError):
    """A name that cannot be that of a control group."""


# --- names ---

# From the top; each part is the name of a cgroupfs folder, or a part of a slice's name.
GroupName = tuple[str, ...]


def root_name(path: str) -> GroupName:
    """The option --cgroup-root as a name: a path, or a slice such as a-b.slice. BadGroupName."""
    if path.endswith(".slice") and "/" not in path.strip("/"):
        parts = [each.replace("_", "-") for each in path.strip("/").removesuffix(".slice").split("-") if each]
    else:
        parts = [each for each in path.split("/") if each]
    for part in parts:
        if part in (".", "..") or not _PART.fullmatch(part):
            raise BadGroupName(f"control group {path!r}: expected a path of names such as /machines/node-1")
    return tuple(parts)


def class_name(pods: GroupName, qos_class: str) -> GroupName:
    """The group of a class of pods. pods: the group of all pods."""
    below = CLASS_GROUPS.get(qos_class)
    return pods if below is None else (*pods, below)


def pod_group_part(uid: str) -> str:
    """The last part of the name of a pod's group. BadGroupName: it becomes a path in the kernel's tree."""
    if not _UID.fullmatch(uid):
        raise BadGroupName(f"pod: metadata.uid {uid!r}: expected letters, digits and '-' to name a control group")
    return f"pod{uid}"


def cgroupfs_path(name: GroupName) -> str:
    """The path in the kernel's tree, with the driver cgroupfs."""
    return "/" + "/".join(name)


def systemd_slice(name: GroupName) -> str:
    """The name of the slice that is a group, with the driver systemd."""
    return "-".join(part.replace("-", "_") for part in name) + ".slice" if name else "-.slice"


def systemd_path(name: GroupName) -> str:
    """The path of a slice in the kernel's tree: each slice is below the one that its name begins with."""
    return "/" + "/".join(systemd_slice(name[: count + 1]) for count in range(len(name)))


# --- values ---


def shares_of(milli: int) -> int:
    """Thousandths of a processor as shares of version 1."""
    return min(max(milli * _SHARES_PER_CPU // 1000, SHARES_MIN), _SHARES_MAX)


def weight_of(shares: int) -> int:
    """Shares of version 1 as a weight of version 2, in the kubelet's conversion."""
    return 1 + (min(shares, _SHARES_MAX) - SHARES_MIN) * (_WEIGHT_MAX - 1) // (_SHARES_MAX - SHARES_MIN)


def quota_of(milli: int) -> int:
    """A limit in thousandths of a processor as microseconds of each period."""
    return max(milli * PERIOD_US // 1000, _QUOTA_MIN_US)


class GroupValues(msgspec.Struct, frozen=True, kw_only=True):
    """What a group is given; None: left as it is. UNLIMITED: no limit."""

    cpu_shares: int | None = None
    cpu_quota_us: int | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    # Bytes by page size in bytes; None as above, but a size that is missing is not allowed at all.
    huge_pages: Mapping[int, int] | None = None

    def growth_to(self, wanted: GroupValues) -> GroupValues:
        """The limits that are higher in `wanted`: these are raised before anything inside the group grows."""
        return GroupValues(
            cpu_quota_us=_if_more(self.cpu_quota_us, wanted.cpu_quota_us),
            memory_bytes=_if_more(self.memory_bytes, wanted.memory_bytes),
        )

    def is_lowered_to(self, memory_bytes: int) -> bool:
        """Whether the limit of memory becomes lower."""
        if memory_bytes == UNLIMITED:
            return False
        return self.memory_bytes in (None, UNLIMITED) or memory_bytes < (self.memory_bytes or 0)


def _if_more(limit: int | None, wanted: int | None) -> int | None:
    if wanted is None or limit in (None, UNLIMITED):
        return None
    return wanted if wanted == UNLIMITED or wanted > limit else None


def pod_values(pod: Pod, pids_max: int | None = None) -> GroupValues:
    """The values of a pod's group (ResourceConfigForPod in pkg/kubelet/cm)."""
    requests, limits = pod_requests(pod), pod_limits(pod)
    huge = {size_of(name): each.value() for name, each in requests.items() if name.startswith(HUGE_PAGES)}
    if qos_of(pod) == BEST_EFFORT:
        return GroupValues(cpu_shares=SHARES_MIN, pids=pids_max, huge_pages=huge)
    processors = limits["cpu"].milli_value() if _is_limited(pod, "cpu") else 0
    memory = limits["memory"].value() if _is_limited(pod, "memory") else 0
    return GroupValues(
        cpu_shares=shares_of(cpu_request(requests)),
        cpu_quota_us=quota_of(processors) if processors else UNLIMITED,
        memory_bytes=memory or UNLIMITED,
        pids=pids_max,
        huge_pages=huge,
    )


def qos_of(pod: Pod) -> str:
    """The class of a pod."""
    return pod.status.qos_class or BEST_EFFORT


def cpu_request(requests: Mapping[str, Quantity]) -> int:
    """Thousandths of a processor."""
    return requests["cpu"].milli_value() if "cpu" in requests else 0


def _is_limited(pod: Pod, resource: str) -> bool:
    """Whether the pod, or else each of its containers, has a limit."""
    if pod.spec.resources is not None and _has(pod.spec.resources.limits, resource):
        return True
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return all(_has(each.resources.limits, resource) for each in containers)


def _has(amounts: Mapping[str, Quantity], resource: str) -> bool:
    return resource in amounts and amounts[resource].sign() > 0


def class_values(pods: Iterable[Pod]) -> dict[str, GroupValues]:
    """The values of the groups of classes: burstable pods together count as much as they request."""
    milli = sum(cpu_request(pod_requests(each)) for each in pods if qos_of(each) == BURSTABLE)
    return {
        BURSTABLE: GroupValues(cpu_shares=shares_of(milli)),
        BEST_EFFORT: GroupValues(cpu_shares=SHARES_MIN),
    }


def node_values(allocatable: Mapping[str, Quantity]) -> GroupValues:
    """The values of the group of all pods: what the node can allocate (--enforce-node-allocatable pods)."""
    return GroupValues(cpu_shares=shares_of(cpu_request(allocatable)), memory_bytes=allocatable["memory"].value())


# --- huge pages ---


def size_of(resource: str) -> int:
    """The page size in the name of a resource, in bytes: hugepages-2Mi. 0 if it has none."""
    try:
        return Quantity.parse(resource.removeprefix(HUGE_PAGES)).value()
    except QuantityError:
        return 0


def spelled_size(size: int) -> str:
    """A page size as in the kernel's file names: 2MB."""
    for unit, name in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


# --- files ---


def old_files(values: GroupValues, page_sizes: Iterable[int]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Controller -> its files of version 1 and what they get. page_sizes: those of the machine."""
    found: dict[str, list[tuple[str, str]]] = {}
    if values.cpu_shares is not None:
        found.setdefault("cpu", []).append(("cpu.shares", str(values.cpu_shares)))
    if values.cpu_quota_us is not None:
        found.setdefault("cpu", []).append(("cpu.cfs_period_us", str(PERIOD_US)))
        found["cpu"].append(("cpu.cfs_quota_us", str(values.cpu_quota_us)))
    if values.memory_bytes is not None:
        found["memory"] = [("memory.limit_in_bytes", str(values.memory_bytes))]
    if values.pids is not None:
        found["pids"] = [("pids.max", _or_max(values.pids))]
    if values.huge_pages is not None:
        found["hugetlb"] = [
            (f"hugetlb.{spelled_size(size)}.limit_in_bytes", str(values.huge_pages.get(size, 0))) for size in page_sizes
        ]
    return {name: tuple(files) for name, files in found.items()}


def new_files(values: GroupValues, page_sizes: Iterable[int]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Controller -> its files of version 2 and what they get."""
    found: dict[str, list[tuple[str, str]]] = {}
    if values.cpu_shares is not None:
        found.setdefault("cpu", []).append(("cpu.weight", str(weight_of(values.cpu_shares))))
    if values.cpu_quota_us is not None:
        found.setdefault("cpu", []).append(("cpu.max", f"{_or_max(values.cpu_quota_us)} {PERIOD_US}"))
    if values.memory_bytes is not None:
        found["memory"] = [("memory.max", _or_max(values.memory_bytes))]
    if values.pids is not None:
        found["pids"] = [("pids.max", _or_max(values.pids))]
    if values.huge_pages is not None:
        found["hugetlb"] = [
            (f"hugetlb.{spelled_size(size)}.max", str(values.huge_pages.get(size, 0))) for size in page_sizes
        ]
    return {name: tuple(files) for name, files in found.items()}


def _or_max(value: int) -> str:
    return "max" if value == UNLIMITED else str(value)


def any_huge_pages(page_sizes: Iterable[int]) -> Mapping[int, int]:
    """Without a limit: groups of classes do not limit huge pages, those of pods do."""
    return dict.fromkeys(page_sizes, _HUGE_UNLIMITED)


# --- who is killed first when memory runs out ---


def oom_score(pod: Pod, container: Container, capacity: int) -> int:
    """The adjustment of a container's score (GetContainerOOMScoreAdjust in pkg/kubelet/qos). capacity: bytes of the machine."""
    if pod.spec.priority_class_name == _NODE_CRITICAL or qos_of(pod) == GUARANTEED:
        return _OOM_GUARANTEED
    if qos_of(pod) == BEST_EFFORT or capacity <= 0:
        return _OOM_BEST_EFFORT
    spare = _spare_memory(pod)
    score = 1000 - 1000 * (memory_share(pod, container) + spare) // capacity
    if container.is_sidecar and any(each.name == container.name for each in pod.spec.init_containers):
        # Never killed before the containers that it serves.
        least = min(memory_share(pod, each) for each in pod.spec.containers)
        score = min(score, 1000 - 1000 * (least + spare) // capacity)
    return max(1000 + _OOM_GUARANTEED, min(_OOM_BEST_EFFORT - 1, score))


def _spare_memory(pod: Pod) -> int:
    """What a pod requests beyond its containers, divided among them."""
    whole = pod.spec.resources.requests.get("memory") if pod.spec.resources is not None else None
    if whole is None or not whole.sign():
        return 0
    used = together_requested(pod).get("memory", Quantity.ZERO).value()
    return max(whole.value() - used, 0) // (len(pod.spec.containers) + len(pod.spec.init_containers))
