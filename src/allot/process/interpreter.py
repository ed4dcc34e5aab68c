"""Settings of the interpreter for a process that serves."""

from __future__ import annotations

import gc
import sys

# The store's writer thread takes the interpreter for moments between waits for the disk; with the default of 5 ms a busy
# event loop can make it wait that long each time. Since writes reach that thread in groups the gain is small.
SWITCH_INTERVAL_S = 0.0005
FILES_MAX = 65_536
# The collector looks for garbage when there are so many more objects than at its last look. Nearly all that a process makes
# is freed without it; a look costs a third of a microsecond for each object that is new and in use.
GC_THRESHOLDS = (500_000, 20, 1000)


def tune() -> None:
    """Once, at the start of the process."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_many_files()
    gc.set_threshold(*GC_THRESHOLDS)


def _allow_many_files() -> None:
    """As many connections as the machine allows; shells often start with 1,024."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files_max() -> int:
    """How many files this process may have open."""
    if sys.platform == "win32":
        return FILES_MAX
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if soft == resource.RLIM_INFINITY else soft


def settle() -> None:
    """Once, when the process is ready: what start-up made stays, and the collector need not look at it again."""
    gc.collect()
    gc.freeze()
