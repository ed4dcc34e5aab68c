"""Settings of the interpreter for a process that serves."""

from __future__ import annotations

import gc
import sys

# The store's writer thread needs the interpreter briefly between waits for the disk; with the default of 5 ms, a busy
# event loop can delay it that long each time. Since writes reach that thread in groups, the gain is small.
SWITCH_INTERVAL_S = 0.0005
FILES_MAX = 65_536
# The collector runs after this many more objects than at its last run. Nearly all objects of a process
# are freed without it; a run costs a third of a microsecond for each new object in use.
GC_THRESHOLDS = (500_000, 20, 1000)


def tune() -> None:
    """Call once, at the start of the process."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_many_files()
    gc.set_threshold(*GC_THRESHOLDS)


def _allow_many_files() -> None:
    """Allow as many connections as the machine does; shells often start with 1,024."""
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
    """Call once, when the process is ready: objects from start-up stay, and the collector need not look at them again."""
    gc.collect()
    gc.freeze()
