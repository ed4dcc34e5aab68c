"""The memory use of this process."""

from __future__ import annotations

import sys


def peak_resident_bytes() -> int:
    """The peak resident memory of the process; 0 where the system does not report it."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024
