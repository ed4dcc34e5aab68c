"""Safe file access below directories that others may write to concurrently: nothing outside the directory is ever touched.

Every step starts from the descriptor of the previous directory, and links are read, not followed by the kernel, so there is no
window between check and use. `openat2` would save the steps, but cannot create missing directories on the way, and is not
available everywhere; one way that works everywhere is better. Imports next to nothing: the shim beside each container uses it too.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opens a path of any kind; the descriptor itself gives no access.
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH_MAX = 256
_LINKS_MAX = 40
_NAME_BYTES_MAX = 255
# How often others may refill a folder while it is being removed.
_REFILLS_MAX = 100
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


class LeadsOut(OSError):
    """A path that is not below its folder."""


class BadName(ValueError):
    """A text from outside that cannot be the name of a file."""


def checked_name(name: str, what: str) -> str:
    """Validate a text that becomes one part of a path; BadName if it could be anything else. what: the object and the field."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > _NAME_BYTES_MAX:
        shown = name if len(name) <= 100 else f"{name[:100]}..."
        raise BadName(f"{what} {shown!r}: expected the name of a file: no '/', not '.' or '..', at most 255 bytes")
    return name


# --- finding ---


def open_beneath(folder: int, path: str, *, make_mode: int | None = None, follows: bool = True) -> int:
    """The place (O_PATH) at a path below a folder. Links must stay below it; LeadsOut if not.

    make_mode: create missing folders with this mode. follows: whether links are allowed at all.
    """
    steps = Steps(folder, follows=follows)
    try:
        for part in steps.parts(path):
            try:
                steps.enter(part)
            except FileNotFoundError:
                if make_mode is None:
                    raise
                make_folder(steps.last, part, make_mode)
                steps.enter(part)
        return steps.take_last()
    finally:
        steps.close()


class Steps:
    """A way down from a folder. All folders on it stay open, so the way back works even if they are moved."""

    def __init__(self, folder: int, *, root: int | None = None, follows: bool = True) -> None:
        """root: where absolute links start; without it, they lead out. follows: whether links are followed at all."""
        self._held = [os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)]
        self._root = root
        self._follows = follows
        self._left: list[str] = []
        self._links = 0

    @property
    def last(self) -> int:
        """The current place."""
        return self._held[-1]

    @property
    def is_at_start(self) -> bool:
        """Whether this is where the way began."""
        return len(self._held) == 1

    def parts(self, path: str) -> Iterator[str]:
        """The names to enter, in order. Links add to them."""
        self._left = path.split("/")[::-1]
        while self._left:
            part = self._left.pop()
            if part in ("", "."):
                continue
            if part != "..":
                yield part
            elif not self.is_at_start:
                os.close(self._held.pop())
            elif self._root is None:
                raise LeadsOut(errno.EXDEV, "leads out of its directory", path)

    def is_over(self) -> bool:
        """Whether the last name was the end of the path."""
        return all(part in ("", ".") for part in self._left)

    def enter(self, name: str) -> None:
        """Continue to an entry, or to where it points. FileNotFoundError if it does not exist."""
        handle = os.open(name, PLACE, dir_fd=self.last)
        if not stat.S_ISLNK(os.fstat(handle).st_mode):
            if len(self._held) > _DEPTH_MAX:
                os.close(handle)
                raise OSError(errno.ENAMETOOLONG, f"deeper than {_DEPTH_MAX} directories", name)
            self._held.append(handle)
            return
        try:
            target = os.readlink("", dir_fd=handle)
        finally:
            os.close(handle)
        self._links += 1
        if self._links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        if not self._follows:
            raise LeadsOut(errno.ELOOP, f"is a link, to {target}", name)
        if target.startswith("/"):
            if self._root is None:
                raise LeadsOut(errno.EXDEV, f"leads out of its directory, to {target}", name)
            self.restart(self._root)
        self._left.extend(target.split("/")[::-1])

    def restart(self, folder: int) -> None:
        """Continue from another folder."""
        self.close()
        self._held = [os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)]

    def replace_last(self, handle: int) -> None:
        """Continue from the replacement of the last folder."""
        os.close(self._held.pop())
        self._held.append(handle)

    def take_last(self) -> int:
        """The place; the caller closes it."""
        return self._held.pop()

    def close(self) -> None:
        """Close all folders."""
        while self._held:
            os.close(self._held.pop())


def make_folder(folder: int, name: str, mode: int) -> None:
    """Create a folder in another one with this mode, whatever the umask; an existing one stays as it is."""
    try:
        os.mkdir(name, mode & 0o755, dir_fd=folder)
    except FileExistsError:
        return
    if mode & ~0o755 == 0:
        return
    handle = os.open(name, FOLDER, dir_fd=folder)
    try:
        found = os.fstat(handle)
        # Someone may have replaced the folder: never give away one that differs from the one just created.
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            os.fchmod(handle, mode | found.st_mode & stat.S_ISGID)
    finally:
        os.close(handle)


def open_folder(folder: int, path: str, *, make_mode: int | None = None) -> int:
    """Open a folder below another one for listing and changing. Both are ours, so there are no links on the way."""
    place = open_beneath(folder, path, make_mode=make_mode, follows=False)
    try:
        return os.open(".", FOLDER, dir_fd=place)
    finally:
        os.close(place)


# --- reading and writing ---


def open_file(path: Path | str, dir_fd: int | None = None) -> int:
    """Open a regular file for reading. OSError for a link, anything but a file, and a file with another name."""
    # Without O_NONBLOCK, opening a pipe would block until someone writes.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=dir_fd)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(handle)
        raise OSError(errno.EINVAL, "not an ordinary file with one name", str(path))
    return handle


def read_file(path: Path | str, bytes_max: int, dir_fd: int | None = None) -> bytes:
    """The end of a regular file, up to this many bytes."""
    handle = open_file(path, dir_fd)
    try:
        start = max(os.fstat(handle).st_size - bytes_max, 0)
        return os.pread(handle, bytes_max, start)
    finally:
        os.close(handle)


def write_file(
    folder: int, name: str, data: bytes, mode: int, group: int | None = None, user: int | None = None
) -> None:
    """Create a file that must not exist yet. Its mode is set last."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if group is not None or user is not None:
            os.fchown(handle, -1 if user is None else user, -1 if group is None else group)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


# --- removing ---


def remove_entry(folder: int, name: str) -> None:
    """Remove an entry of a folder and everything in it; OSError names the first thing that stays.

    Mounts, at any depth, are not entered and stay.
    """
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if not _is_folder(folder, name, error):
            raise
    else:
        return
    try:
        os.rmdir(name, dir_fd=folder)
        return
    except OSError as error:
        if error.errno not in _NOT_EMPTY:
            raise
    top = _open_to_remove(folder, name)
    try:
        _Removal(top).run()
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=folder)


def _open_to_remove(folder: int, name: str) -> int:
    """Open a folder that from here on is closed to everyone else."""
    try:
        handle = os.open(name, FOLDER, dir_fd=folder)
    except PermissionError:
        _let_us_in(folder, name)
        handle = os.open(name, FOLDER, dir_fd=folder)
    try:
        if os.geteuid() == 0:
            os.fchown(handle, 0, 0)
        os.fchmod(handle, 0o700)
    except OSError:
        os.close(handle)
        raise
    return handle


def _let_us_in(folder: int, name: str) -> None:
    place = os.open(name, PLACE, dir_fd=folder)
    try:
        if stat.S_ISDIR(os.fstat(place).st_mode):
            os.chmod(f"/proc/self/fd/{place}", 0o700)
    finally:
        os.close(place)


def remove_tree(path: Path | str) -> None:
    """Like `remove_entry`, by a path whose folders are ours."""
    around, name = os.path.split(os.fspath(path))
    try:
        folder = os.open(around or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_entry(folder, name)
    finally:
        os.close(folder)


def _is_folder(folder: int, name: str, error: OSError) -> bool:
    if error.errno == errno.EISDIR:
        return True
    return error.errno == errno.EPERM and stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


class _Removal:
    """Empties a folder that only we can write to, while others write to the folders in it.

    A folder that is not empty is moved up into ours before it is opened. There no one can replace it, and it becomes ours too, so that
    no one refills it. Two descriptors are enough for any depth. Mounts cannot be moved and so are never entered.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._moved = 0
        self._first_problem: OSError | None = None

    def run(self) -> None:
        waiting = self._empty(self._top, is_top=True)
        while waiting:
            waiting += self._remove_folder(waiting.pop())
        if self._first_problem is not None:
            raise self._first_problem

    def _remove_folder(self, name: str) -> list[str]:
        """Remove a folder in ours; return the folders that were in it and are now in ours."""
        found: list[str] = []
        try:
            handle = _open_to_remove(self._top, name)
            try:
                for _ in range(_REFILLS_MAX):
                    found += self._empty(handle)
                    try:
                        os.rmdir(name, dir_fd=self._top)
                        break
                    except OSError as error:
                        if error.errno not in _NOT_EMPTY or self._first_problem is not None:
                            raise
                else:
                    raise OSError(errno.ENOTEMPTY, "is filled as fast as it is emptied", name)
            finally:
                os.close(handle)
        except OSError as error:
            self._note(error)
        return found

    def _empty(self, folder: int, *, is_top: bool = False) -> list[str]:
        """Remove what is in a folder; return the names, in ours, of folders to empty first."""
        found = []
        for name in os.listdir(folder):
            try:
                try:
                    os.unlink(name, dir_fd=folder)
                    continue
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if not _is_folder(folder, name, error):
                        raise
                try:
                    os.rmdir(name, dir_fd=folder)
                except OSError as error:
                    if error.errno not in _NOT_EMPTY:
                        raise
                    found.append(name if is_top else self._move_up(folder, name))
            except (FileNotFoundError, NotADirectoryError):
                continue  # someone was faster; the check for an empty folder finds what is there now
            except OSError as error:
                self._note(error)
        return found

    def _move_up(self, folder: int, name: str) -> str:
        while True:
            self._moved += 1
            into = f".removed-{self._moved}"
            try:
                os.stat(into, dir_fd=self._top, follow_symlinks=False)
            except FileNotFoundError:
                break
        try:
            os.rename(name, into, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:
            # Without root, only writable directories can be moved.
            _let_us_in(folder, name)
            os.rename(name, into, src_dir_fd=folder, dst_dir_fd=self._top)
        return into

    def _note(self, error: OSError) -> None:
        if self._first_problem is None:
            self._first_problem = error
