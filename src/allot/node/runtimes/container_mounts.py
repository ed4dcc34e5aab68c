"""The mounts of a container: volumes and what devices bring, each in its place, whatever others do meanwhile.

Other containers of the pod may write to its volumes while this one is created, as users of the machine, and this is root: mounts
are made between descriptors, and entries are created only in what was mounted here. Imports next to nothing, as the shim uses it.
"""

from __future__ import annotations

import os
import stat

from allot.process.beneath import PLACE, LeadsOut, Steps, open_beneath
from allot.process.mounts import (
    BIND,
    MOVE,
    PRIVATE,
    RECURSIVE,
    at,
    copy_mount,
    make_read_only,
    mount,
    mount_id,
    place_mount,
    seal_mount,
    shift_owners,
)
from allot.process.namespaces import MOUNTS, become_owner_of_users, unshare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_MIRRORED_MAX = 4000


class StartFailure(Exception):
    """Why a container could not be started."""


def enter_namespace() -> None:
    """Enter a new mount namespace, inside a new user namespace if necessary."""
    try:
        if os.geteuid() != 0:
            become_owner_of_users()
        unshare(MOUNTS)
        mount("none", "/", RECURSIVE | PRIVATE)
    except OSError as error:
        raise StartFailure(f"new mount namespace: {error.strerror}") from None


class Mounts:
    """Puts mounts where they belong below a root."""

    def __init__(self, root: int, proc: int) -> None:
        """proc: the device number of /proc."""
        self._root = root
        self._proc = proc
        # Mounts in which entries can be created: folders that exist only here, and writable volumes.
        self.open_mounts: set[int] = set()

    def attach(self, source: int, target: str, *, read_only: bool) -> None:
        """Mount a source. It becomes visible only when complete."""
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        place = self._place(target, is_folder)
        try:
            made = self._mount(source, place, is_folder, read_only)
            if is_folder and not read_only:
                self.open_mounts.add(made)
        finally:
            os.close(place)

    def attach_all(self, sources: Iterable[tuple[dict[str, Any], int]]) -> None:
        """Mount opened sources, and close them."""
        for each, handle in sources:
            try:
                self.attach(handle, each["container_path"], read_only=each.get("read_only", False))
            except OSError as error:
                raise StartFailure(f"mount {each['container_path']}: {(error.strerror or '').lower()}") from None
            finally:
                os.close(handle)

    def _mount(self, source: int, place: int, is_folder: bool, read_only: bool) -> int:
        """Mount a source at a place; returns the mount's id."""
        raise NotImplementedError

    def _open_up(self, steps: Steps) -> None:
        """Make it possible to create entries in a folder of the machine without the machine noticing."""
        raise NotImplementedError

    def _place(self, target: str, is_folder: bool) -> int:
        """Open the place that a path means in the container, and create it if missing."""
        steps = Steps(self._root, root=self._root)
        try:
            for part in steps.parts(target):
                try:
                    steps.enter(part)
                except FileNotFoundError:
                    if mount_id(steps.last) not in self.open_mounts:
                        self._open_up(steps)
                    if is_folder or not steps.is_over():
                        os.mkdir(part, 0o755, dir_fd=steps.last)
                    else:
                        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
                        os.close(os.open(part, flags, 0o644, dir_fd=steps.last))
                    steps.enter(part)
            found = os.fstat(steps.last)
            if found.st_dev == self._proc:
                # Descriptors are found by their names there.
                raise StartFailure(f"mount {target}: nothing can be mounted in /proc")
            if stat.S_ISDIR(found.st_mode) != is_folder:
                raise StartFailure(f"mount {target}: not a {'directory' if is_folder else 'file'}")
            return steps.take_last()
        except NotADirectoryError as error:
            raise StartFailure(f"mount {target}: {error.filename} is not in a directory") from None
        finally:
            steps.close()


class MachineMounts(Mounts):
    """Mounts over the machine's own files, in a namespace of ours. scratch: a folder that is ours alone, to prepare mounts in."""

    def __init__(self, scratch: str) -> None:
        super().__init__(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), os.stat("/proc").st_dev)
        self._scratch = os.open(scratch, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in ("folder", "root"):
            os.makedirs(f"{scratch}/{name}", exist_ok=True)
        os.close(os.open(f"{scratch}/file", os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))

    def _mount(self, source: int, place: int, is_folder: bool, read_only: bool) -> int:
        spot = f"{at(self._scratch)}/{'folder' if is_folder else 'file'}"
        mount(at(source), spot, BIND | RECURSIVE)
        if read_only:
            make_read_only(spot)
        made = os.open(spot, PLACE)
        try:
            number = mount_id(made)
        finally:
            os.close(made)
        mount(spot, at(place), MOVE)
        return number

    def _open_up(self, steps: Steps) -> None:
        mode = stat.S_IMODE(os.fstat(steps.last).st_mode)
        spot = f"{at(self._scratch)}/{'root' if steps.is_at_start else 'folder'}"
        mount("allot", spot, 0, "tmpfs", f"mode={mode:o},size=16m")
        made = os.open(spot, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        mirror(steps.last, made)
        self.open_mounts.add(mount_id(made))
        if steps.is_at_start:
            os.fchdir(made)
            os.chroot(".")
            os.close(self._root)
            self._root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            mount(spot, at(steps.last), MOVE)
        steps.replace_last(made)


class SandboxMounts(Mounts):
    """Mounts below a root that no process is in yet. spare: a folder of the sandbox's own layer; users: the user namespace of the container."""

    def __init__(self, root: int, proc: int, spare: int, users: int) -> None:
        super().__init__(root, proc)
        self._spare = spare
        self._users = users
        self._opened = 0

    def _mount(self, source: int, place: int, is_folder: bool, read_only: bool) -> int:  # noqa: ARG002 - the port's signature
        copy = copy_mount(source)
        try:
            if read_only:
                seal_mount(copy)
            if os.geteuid() == 0:
                try:
                    shift_owners(copy, self._users)
                except OSError:
                    pass  # not every file system supports this; the container can still use what is open to everyone
            place_mount(copy, place)
            return mount_id(copy)
        finally:
            os.close(copy)

    def show(self, source: int, target: str) -> None:
        """Show a part of the machine, read-only."""
        self._put(source, target, is_ours=False)

    def put(self, source: int, target: str) -> None:
        """Mount a part of the sandbox's own layer, writable."""
        self._put(source, target, is_ours=True)

    def _put(self, source: int, target: str, is_ours: bool) -> None:
        place = self._place(target, stat.S_ISDIR(os.fstat(source).st_mode))
        copy = copy_mount(source)
        try:
            if not is_ours:
                seal_mount(copy)
            place_mount(copy, place)
            if is_ours:
                self.open_mounts.add(mount_id(copy))
        finally:
            os.close(copy)
            os.close(place)

    def _open_up(self, steps: Steps) -> None:
        self._opened += 1
        name = f"{self._opened}"
        os.mkdir(name, stat.S_IMODE(os.fstat(steps.last).st_mode), dir_fd=self._spare)
        made = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._spare)
        mirror(steps.last, made)
        copy = copy_mount(made)
        os.close(made)
        place_mount(copy, steps.last)
        self.open_mounts.add(mount_id(copy))
        steps.replace_last(copy)


def mirror(source: int, target: int) -> None:
    """Fill an empty folder of ours with the content of another one."""
    names = os.listdir(at(source))
    if len(names) > _MIRRORED_MAX:
        where = os.readlink(at(source))
        raise StartFailure(
            f"cannot mount below {where}: it has {len(names)} entries, at most {_MIRRORED_MAX} are possible"
        )
    for name in names:
        try:
            have = os.open(name, PLACE, dir_fd=source)
        except OSError:
            continue  # it has disappeared
        try:
            mode = os.fstat(have).st_mode
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink("", dir_fd=have), name, dir_fd=target)
                continue
            if stat.S_ISDIR(mode):
                os.mkdir(name, dir_fd=target)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600, dir_fd=target))
            mount(at(have), f"{at(target)}/{name}", BIND | RECURSIVE)
        except OSError:
            # We may not see it, so the container does not either.
            continue
        finally:
            os.close(have)


def open_sources(mounts: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Open all mount sources, in order of depth. Call this before mounting anything that could hide them."""
    return [(each, _source(each)) for each in sorted(mounts, key=lambda one: one["container_path"].count("/"))]


def make_mounts(mounts: list[dict[str, Any]], scratch: str) -> None:
    """Make all mounts, over the machine's own files."""
    sources = open_sources(mounts)
    MachineMounts(scratch).attach_all(sources)


def _source(wanted: dict[str, Any]) -> int:
    """Open the source of a mount."""
    path, below = wanted["host_path"], wanted.get("sub_path", "")
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not below:
            return handle
        try:
            return open_beneath(handle, below, make_mode=os.fstat(handle).st_mode & 0o777)
        finally:
            os.close(handle)
    except LeadsOut as error:
        raise StartFailure(f'mount {wanted["container_path"]}: subPath "{below}" {error.strerror}') from None
    except OSError as error:
        where = f"{path}/{below}" if below else path
        raise StartFailure(f"mount {where}: {(error.strerror or '').lower()}") from None
