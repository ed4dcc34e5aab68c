"""The root of a sandboxed container: the machine's programs to read, a layer of its own to write to, and nothing else.

The layer is memory of a fixed size. The machine's folders are below it, so that a container can put files beside those of the machine
without changing it. Whatever the machine keeps elsewhere (homes, sockets, data) is not there at all. The agent decides what is shown
(`machine_view`); this only builds it, in a separate mount namespace. Imports next to nothing, as the shim uses it.
"""

from __future__ import annotations

import os
import stat

from allot.node.runtimes.container_mounts import SandboxMounts, StartFailure, open_sources
from allot.process.mounts import (
    BIND,
    NO_DEVICES,
    NO_PROGRAMS,
    NO_SUID,
    READ_ONLY,
    REMOUNT,
    at,
    copy_mount,
    enter_root,
    mount,
    mount_id,
    place_mount,
    seal_mount,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_PLACE = os.O_PATH | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ContainerRoot:
    """Creates a root and enters it. owner: user and group of the layer, as seen by this process."""

    def __init__(self, spec: dict[str, Any], users: int, owner: tuple[int, int]) -> None:
        self._spec = spec
        self._view: dict[str, Any] = spec["view"]
        self._users = users
        self._owner = owner

    def make(self) -> int:
        """Create the root; no process is in it yet."""
        # Before mounting anything, and in the pod's own view: its volumes may be mounts of the pod.
        sources = open_sources([each for each in self._spec["mounts"] if not each.get("memory")])
        self._layer = self._make_layer()
        self.root = self._make_root()
        for path, mode in self._view["folders"].items():
            self._make_folders(self.root, path, mode)
        for path, target in self._view["links"].items():
            os.symlink(target, path.lstrip("/"), dir_fd=self.root)
        proc = self._mount_kernel()
        spare = self._make_folder(self._layer, "spare")
        mounts = SandboxMounts(self.root, proc, spare, self._users)
        mounts.open_mounts.add(mount_id(self.root))
        self._make_devices()
        self._show_machine(mounts, sources)
        self._hide(mounts)
        for number, each in enumerate(each for each in self._spec["mounts"] if each.get("memory")):
            handle = self._make_folder(self._layer, f"memory-{number}", 0o1777)
            mounts.put(handle, each["container_path"])
            os.close(handle)
        mounts.attach_all(sources)
        if self._spec["read_only"]:
            self._seal()
        return self.root

    def enter(self) -> None:
        """Enter the root, and leave everything else."""
        os.close(self._layer)
        enter_root(self.root)
        os.close(self.root)

    # --- the layer ---

    def _make_layer(self) -> int:
        place, view = f"{self._spec['scratch']}/layer", self._view
        os.makedirs(place, mode=0o700, exist_ok=True)
        options = f"mode=711,size={self._spec['layer_bytes']},nr_inodes={view['inodes']}"
        mount("allot", place, NO_SUID | NO_DEVICES, "tmpfs", options)
        return os.open(place, _FOLDER)

    def _make_root(self) -> int:
        below = self._make_folder(self._layer, "root")
        # A root has to be a mount.
        copy = copy_mount(below)
        place_mount(copy, below)
        os.close(below)
        return copy

    def _make_folder(self, around: int, name: str, mode: int = 0o755) -> int:
        """Create a folder for the container unless it exists."""
        try:
            os.mkdir(name, 0o700, dir_fd=around)
        except FileExistsError:
            return os.open(name, _FOLDER, dir_fd=around)
        made = os.open(name, _FOLDER, dir_fd=around)
        os.chown(at(made), *self._owner)
        os.chmod(at(made), mode)
        return made

    def _make_folders(self, around: int, path: str, mode: int = 0o755) -> None:
        handle = os.dup(around)
        try:
            parts = path.strip("/").split("/")
            for part in parts:
                below = self._make_folder(handle, part, mode if part is parts[-1] else 0o755)
                os.close(handle)
                handle = below
        finally:
            os.close(handle)

    def _make_file(self, around: int, path: str, text: str = "") -> None:
        folder, _, _ = path.rpartition("/")
        if folder:
            self._make_folders(around, folder)
        flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path.lstrip("/"), flags, 0o644, dir_fd=around)
        try:
            os.write(handle, text.encode())
            os.fchown(handle, *self._owner)
        finally:
            os.close(handle)

    # --- kernel and devices ---

    def _mount_kernel(self) -> int:
        """Mount /proc of the container's processes, and /sys read-only; returns the device number of /proc."""
        flags = NO_SUID | NO_DEVICES | NO_PROGRAMS
        os.close(self._make_folder(self.root, "proc"))
        mount("proc", f"{at(self.root)}/proc", flags, "proc")
        os.close(self._make_folder(self.root, "sys"))
        handle, place = os.open("/sys", _FOLDER), os.open("sys", _FOLDER, dir_fd=self.root)
        copy = copy_mount(handle)
        seal_mount(copy)
        place_mount(copy, place)
        for each in (handle, place, copy):
            os.close(each)
        return os.stat("proc", dir_fd=self.root).st_dev

    def _make_devices(self) -> None:
        folder = self._make_folder(self.root, "dev")
        for name in _DEVICES:
            self._bind(os.open(f"/dev/{name}", _PLACE), folder, name)
        for name, target in _DEVICE_LINKS.items():
            os.symlink(target, name, dir_fd=folder)
        os.close(self._make_folder(folder, "pts"))
        mount("devpts", f"{at(folder)}/pts", NO_SUID | NO_PROGRAMS, "devpts", "newinstance,ptmxmode=0666,mode=0620")
        os.close(self._make_folder(folder, "shm", 0o1777))
        # A separate mount, so that it is writable even if the root is not.
        self._bind(self._make_folder(self._layer, "shm", 0o1777), folder, "shm")
        os.close(folder)

    def _bind(self, source: int, around: int, name: str) -> None:
        if not stat.S_ISDIR(os.fstat(source).st_mode):
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=around))
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=around)
        copy = copy_mount(source)
        place_mount(copy, place)
        for each in (source, place, copy):
            os.close(each)

    # --- the machine ---

    def _show_machine(self, mounts: SandboxMounts, sources: list[tuple[dict[str, Any], int]]) -> None:
        wanted = {
            os.path.realpath(each["container_path"]): stat.S_ISDIR(os.fstat(handle).st_mode) for each, handle in sources
        }
        for number, folder in enumerate(self._view["layers"]):
            os.close(self._make_folder(self.root, folder.lstrip("/")))
            upper = self._make_folder(self._layer, f"upper-{number}")
            self._fill_upper(upper, folder, wanted)
            os.mkdir(f"work-{number}", 0o700, dir_fd=self._layer)
            try:
                self._mount_over(folder, upper, f"{at(self._layer)}/work-{number}")
            except OSError:
                # No overlay over this folder (a kernel before 5.11, or a machine that is itself on an overlay): it is read-only.
                self._show(mounts, folder)
                self._put_files(mounts, folder)
            finally:
                os.close(upper)
        for path in self._view["submounts"]:
            self._show(mounts, path)

    def _mount_over(self, folder: str, upper: int, work: str) -> None:
        options = f"lowerdir={folder},upperdir={at(upper)},workdir={work}"
        target = f"{at(self.root)}{folder}"
        try:
            mount("overlay", target, NO_SUID | NO_DEVICES, "overlay", f"{options},userxattr")
        except OSError:
            # Kernels before 5.11 let only root do this.
            mount("overlay", target, NO_SUID | NO_DEVICES, "overlay", options)

    def _fill_upper(self, upper: int, folder: str, wanted: dict[str, bool]) -> None:
        """Create what the container finds on top of a folder of the machine: writable folders, mount points, files."""
        for path in self._view["own"]:
            if path.startswith(f"{folder}/"):
                self._make_upper(upper, folder, path)
        for path, is_folder in wanted.items():
            if path.startswith(f"{folder}/") and not os.path.lexists(path):
                self._make_upper(upper, folder, path if is_folder else os.path.dirname(path))
                if not is_folder:
                    self._make_file(upper, path[len(folder) + 1 :])
        for path, text in self._view["files"].items():
            if path.startswith(f"{folder}/"):
                self._make_upper(upper, folder, os.path.dirname(path))
                self._make_file(upper, path[len(folder) + 1 :], text)

    def _make_upper(self, upper: int, folder: str, path: str) -> None:
        """Create a folder on top of one of the machine, with the same mode; never on top of one that is not open to everyone."""
        handle, here = os.dup(upper), folder
        try:
            for part in filter(None, path[len(folder) :].split("/")):
                here = f"{here}/{part}"
                mode = 0o755
                try:
                    mode = stat.S_IMODE(os.stat(here).st_mode)
                except OSError:
                    pass  # not on this machine
                if mode & 0o005 != 0o005:
                    raise StartFailure(f"cannot mount below {here}: it is not for everybody on this machine")
                below = self._make_folder(handle, part, mode)
                os.close(handle)
                handle = below
        finally:
            os.close(handle)

    def _show(self, mounts: SandboxMounts, path: str) -> None:
        """Show a part of the machine in its place; the container does not see what this user may not see."""
        try:
            handle = os.open(path, _PLACE)
        except OSError:
            return
        try:
            mounts.show(handle, path)
        except OSError as error:
            raise StartFailure(f"{path} in the container: {(error.strerror or '').lower()}") from None
        finally:
            os.close(handle)

    def _put_files(self, mounts: SandboxMounts, folder: str) -> None:
        for number, (path, text) in enumerate(self._view["files"].items()):
            if path.startswith(f"{folder}/"):
                name = f"file-{number}"
                self._make_file(self._layer, name, text)
                handle = os.open(name, _PLACE, dir_fd=self._layer)
                mounts.put(handle, path)
                os.close(handle)

    def _hide(self, mounts: SandboxMounts) -> None:
        """Cover masked paths with empty folders and files, and show programs inside of them again; outermost first."""
        kinds = {**dict.fromkeys(self._view["shown"], True), **dict.fromkeys(self._view["masked"], False)}
        for number, path in enumerate(sorted(kinds, key=lambda one: one.count("/"))):
            if kinds[path]:
                self._show(mounts, path)
                continue
            try:
                found = os.lstat(f"{at(self.root)}{path}")
            except OSError:
                continue  # it is not in the container anyway
            if stat.S_ISLNK(found.st_mode):
                continue
            name = f"empty-{number}"
            if stat.S_ISDIR(found.st_mode):
                handle = self._make_folder(self._layer, name)
            else:
                self._make_file(self._layer, name)
                handle = os.open(name, _PLACE, dir_fd=self._layer)
            mounts.put(handle, path)
            os.close(handle)

    def _seal(self) -> None:
        for path in ("", *self._view["layers"]):
            mount("none", f"{at(self.root)}{path}", BIND | REMOUNT | READ_ONLY | NO_SUID | NO_DEVICES)
