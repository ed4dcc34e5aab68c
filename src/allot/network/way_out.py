"""External connectivity of pods, if slirp4netns is installed: a process beside each pod that relays external traffic.
Run by the `launcher`; imports next to nothing.

Never to the machine's loopback. It ends with the process that has the pod's namespaces.
"""

from __future__ import annotations

import os
import select
import signal

from allot.process.mounts import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PROGRAM = "slirp4netns"
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_LINK = "tap0"
_READY_MS = 10_000
_SAID_MAX = 2000
_DEATH_SIGNAL = 1


def find_way_out() -> str:
    """The path of the program; empty if it is not installed."""
    folders = dict.fromkeys((*os.environ.get("PATH", "").split(os.pathsep), *_FOLDERS))
    found = (f"{folder}/{PROGRAM}" for folder in folders if folder)
    return next((each for each in found if os.access(each, os.X_OK) and not os.path.isdir(each)), "")


def command(program: str, holder: int, ready: int) -> list[str]:
    """The command for the namespaces of a process. ready: a descriptor that it writes to once it works."""
    safe = ["--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"]
    return [program, "--configure", "--mtu=65520", *safe, f"--ready-fd={ready}", str(holder), _LINK]


def lead_out(program: str, holder: int, tell: int) -> NoReturn:
    """Serve a pod until it is gone. tell: where to report that the way is open, or why not."""
    gone = os.pidfd_open(holder)
    ready, theirs = os.pipe()
    errors, errors_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            os.set_inheritable(theirs, True)
            nothing = os.open("/dev/null", os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            os.dup2(errors_end, 2)
            os.execve(program, command(program, holder, theirs), {"PATH": os.pathsep.join(_FOLDERS)})
        finally:
            os._exit(127)
    os.close(theirs)
    os.close(errors_end)
    _report(tell, ready, errors)
    poll = select.poll()
    for each in (gone, os.pidfd_open(child), errors):
        poll.register(each, select.POLLIN)
    # No one reads its later output, but it must not block on that.
    while all(handle == errors for handle, _ in poll.poll()):
        if not os.read(errors, 4096):
            poll.unregister(errors)
    os.kill(child, signal.SIGKILL)
    os._exit(0)


def _report(tell: int, ready: int, errors: int) -> None:
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    poll.register(errors, select.POLLIN)
    said, is_ready = b"", False
    while (events := poll.poll(_READY_MS)) and len(said) < _SAID_MAX:
        handles = [handle for handle, _ in events]
        if errors in handles:
            said += os.read(errors, 4096)
        if ready in handles:
            # The pipe ends with the program.
            is_ready = bool(os.read(ready, 1))
            break
    os.write(tell, b"ok" if is_ready else b"error " + (said.strip()[-_SAID_MAX:] or b"it is not ready in time"))
    os.close(tell)
