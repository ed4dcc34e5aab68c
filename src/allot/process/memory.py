"""The memory use of this process."""

from __future__ import annotations

import sys


def peak_resident_bytes() -> int:
    """The most that the process has had in memory at one time; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024
