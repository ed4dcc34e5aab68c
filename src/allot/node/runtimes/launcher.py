"""Starts what outlives the agent: the holders of pods' sandboxes, their ways out and the shims of containers, as forks of one small process.

Without it, each of them would have to start an interpreter, which takes longer than all the rest. The agent's request on a socket
includes the pipe on which the new process reports. Ends with the agent; what it started does not. Imports next to nothing, as the shim.

A holder keeps the namespaces that the containers of a pod share, as long as the pod exists: host name, interprocess communication,
network, and mounts (volumes that exist only in memory). It does nothing else. It ends with the agent until the agent has written it down:
afterwards nobody would know of it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import sys

from allot.network.way_out import lead_out
from allot.node.runtimes import shim
from allot.node.runtimes.container_mounts import StartFailure
from allot.process.mounts import NO_DEVICES, NO_SUID, PRIVATE, RECURSIVE, libc, mount
from allot.process.namespaces import (
    HOST_NAMES,
    IPC,
    MOUNTS,
    NETWORK,
    USERS,
    become_owner_of_users,
    enter,
    is_ours,
    unshare,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

REQUEST_BYTES_MAX = 1024 * 1024


def main() -> None:
    """Run until the agent closes its side. The argument: the socket."""
    asked = socket.socket(fileno=int(sys.argv[2]))
    # No one waits for what is started here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, handles, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 3)
        if not data:
            return
        for handle in handles:
            os.set_inheritable(handle, False)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            _start(json.loads(data), *handles)
        for handle in handles:
            os.close(handle)


def _start(wanted: dict[str, Any], tell: int, kept: int = -1, users: int = -1) -> NoReturn:
    code = 1
    try:
        os.setsid()
        os.write(tell, f"{os.getpid()} ".encode())
        if wanted["do"] == "run":
            log = os.open(f"{wanted['folder']}/shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = shim.run(wanted["folder"], tell)
        elif wanted["do"] == "lead out":
            lead_out(wanted["program"], wanted["holder"], tell)
        else:
            _hold(wanted, tell, kept, users)
    except (StartFailure, OSError) as error:
        os.write(tell, f"error {getattr(error, 'strerror', None) or error}".encode()[:4000])
    finally:
        os._exit(code)


def _hold(wanted: dict[str, Any], tell: int, kept: int, users: int) -> None:
    """kept: the agent says there that it has written the holder down; without that, the holder ends (`process_launcher.Lease`).
    users: the user namespace in which to create those of the pod; without it, they get their own."""
    if users >= 0:
        if not is_ours(users, "user"):
            enter(users, USERS)
    elif os.geteuid() != 0:
        become_owner_of_users()
    unshare(MOUNTS | IPC | HOST_NAMES | (NETWORK if wanted.get("network") else 0))
    mount("none", "/", RECURSIVE | PRIVATE)
    name = wanted["hostname"].encode()
    if libc.sethostname(name, ctypes.c_size_t(len(name))) != 0:
        raise StartFailure(f"host name {wanted['hostname']}: {os.strerror(ctypes.get_errno()).lower()}")
    for setting, value in wanted["sysctls"].items():
        _set(setting, value)
    for path, size in wanted["volumes"]:
        found = os.stat(path)
        options = f"size={size},mode={stat.S_IMODE(found.st_mode):o},uid={found.st_uid},gid={found.st_gid}"
        mount("allot", path, NO_SUID | NO_DEVICES, "tmpfs", options)
    os.write(tell, b"ok")
    os.chdir("/")
    os.closerange(0, kept)
    os.closerange(kept + 1, 1024)
    if os.read(kept, 1):
        os.close(kept)
        while True:
            signal.pause()


def _set(setting: str, value: str) -> None:
    """Change a kernel setting, in our own namespaces: the agent has validated its name."""
    path = "/proc/sys/" + setting.translate(str.maketrans("./", "/."))
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(value)
    except OSError as error:
        raise StartFailure(f"sysctl {setting}={value}: {(error.strerror or '').lower()}") from None
