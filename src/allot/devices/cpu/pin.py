"""`python -m allot.devices.cpu.pin CPUS`: an OCI hook that binds a container's processes to its CPUs.

The runtime passes the container's state on stdin. Its process may already have started others: in a sandbox it is the init of the
container's PID namespace, and the command is a child. Later processes inherit their parent's CPUs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from allot.devices.sysfs import CpuListError, parse_cpu_list

_PROC = Path("/proc")
# A process that is orphaned between two scans is found by the next one.
_LOOKS_MAX = 10


def pin(process: int, cpus: frozenset[int]) -> None:
    """Bind a process and its descendants, each before its children are listed; OSError if the process does not exist."""
    os.sched_setaffinity(process, cpus)
    for _ in range(_LOOKS_MAX):
        if not _pin_descendants(process, cpus):
            return


def _pin_descendants(process: int, cpus: frozenset[int]) -> bool:
    """Bind descendants; returns whether any was not bound yet."""
    found = False
    waiting = [process]
    while waiting:
        try:
            for folder in (_PROC / str(waiting.pop()) / "task").iterdir():
                if os.sched_getaffinity(int(folder.name)) != cpus:
                    os.sched_setaffinity(int(folder.name), cpus)
                    found = True
                waiting += map(int, (folder / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


def main() -> int:
    """0 if the container is pinned."""
    try:
        process = int(json.load(sys.stdin)["pid"])
        pin(process, frozenset(parse_cpu_list(sys.argv[1])))
    except (IndexError, KeyError, TypeError, ValueError, CpuListError, OSError) as error:
        sys.stderr.write(f"error: pin: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
