"""Labels and annotations of KAI-Scheduler, through which users state what they want and its components communicate."""

from __future__ import annotations

SCHEDULER = "kai-scheduler"

# On pods: their group and subgroup.
POD_GROUP_NAME = "pod-group-name"
SUB_GROUP = "kai.scheduler/subgroup-name"
SKIP_GROUPER = "kai.scheduler/skip-podgrouper"

# On pods and their owners.
QUEUE = "kai.scheduler/queue"
PROJECT = "project"
DEFAULT_QUEUE = "default-queue"
PRIORITY_CLASS = "priorityClassName"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
STALENESS = "kai.scheduler/staleness-grace-period"
MIN_MEMBER = "kai.scheduler/batch-min-member"
SEGMENT_SIZE = "kai.scheduler/segment-size"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED_LEVEL = "kai.scheduler/topology-required-placement"
PREFERRED_LEVEL = "kai.scheduler/topology-preferred-placement"

# On groups.
TOP_OWNER = "kai.scheduler/top-owner-metadata"
LAST_EVICTION = "kai.scheduler/last-eviction-timestamp"
LAST_START = "kai.scheduler/last-start-timestamp"

# Parts of a device, on pods.
GPU_FRACTION = "gpu-fraction"
GPU_MEMORY = "gpu-memory"
GPU_DEVICES = "gpu-fraction-num-devices"
GPU_CONTAINER = "gpu-fraction-container-name"
