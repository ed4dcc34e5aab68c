"""Resource usage of a container's processes, from the kernel's process table."""

from __future__ import annotations

import os
from pathlib import Path

from allot.node.runtimes.port import ContainerUsage

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PROCESSES_MAX = 10_000


def usage_of(container_id: str, pid: int, shim_pid: int, started_at: float, *, is_sandboxed: bool) -> ContainerUsage:
    """Processor time and memory of a container and all that it started. Excludes the shim and, in a sandbox, its first process."""
    processor = memory = 0.0
    left = _children(pid) if is_sandboxed else [pid, *(each for each in _children(shim_pid) if each != pid)]
    seen = 0
    while left and seen < _PROCESSES_MAX:
        seen += 1
        each = left.pop()
        left += _children(each)
        try:
            fields = Path(f"/proc/{each}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        # utime, stime, and those of ended children.
        processor += sum(int(value) for value in fields[11:15]) / _TICKS
        memory += int(fields[21]) * _PAGE
    return ContainerUsage(id=container_id, processor_seconds=processor, memory_bytes=int(memory), started_at=started_at)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []
