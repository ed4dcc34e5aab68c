"""`python -m allot.devices.cpu.pin CPUS`: an OCI hook that binds a container's first process to its CPUs.

The runtime gives the container's state on stdin; children of the process inherit what it has.
"""

from __future__ import annotations

import json
import os
import sys

from allot.devices.sysfs import CpuListError, parse_cpu_list


def main() -> int:
    """0 if the process is pinned."""
    try:
        process = int(json.load(sys.stdin)["pid"])
        os.sched_setaffinity(process, parse_cpu_list(sys.argv[1]))
    except (IndexError, KeyError, TypeError, ValueError, CpuListError, OSError) as error:
        sys.stderr.write(f"error: pin: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
