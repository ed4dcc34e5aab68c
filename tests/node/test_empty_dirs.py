"""Empty folders of pods: what is in them counts, whatever containers do to hide it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from allot.node.empty_dirs import TooDeep, make_folder, make_memory, used_bytes
from allot.process.mounts import unmount

MANY = 2**40
KIB = 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    made.mkdir()
    return made


def test_what_files_take_counts_once_whatever_they_are_called(folder: Path) -> None:
    (folder / "below").mkdir()
    empty = used_bytes(folder, MANY)
    (folder / "below" / "file").write_bytes(os.urandom(64 * KIB))
    one = used_bytes(folder, MANY)
    assert empty + 64 * KIB <= one <= empty + 72 * KIB
    os.link(folder / "below" / "file", folder / "again")
    assert used_bytes(folder, MANY) == one
    with (folder / "sparse").open("wb") as file:
        file.truncate(2**30)
    assert used_bytes(folder, MANY) == one


def test_links_lead_nowhere(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(os.urandom(64 * KIB))
    empty = used_bytes(folder, MANY)
    (folder / "link").symlink_to(tmp_path / "other")
    assert used_bytes(folder, MANY) < empty + 8 * KIB


def test_nobody_counts_on_when_there_is_more_than_enough(folder: Path) -> None:
    for each in range(10):
        (folder / f"{each}").write_bytes(os.urandom(64 * KIB))
    assert 100 * KIB < used_bytes(folder, 100 * KIB) < 300 * KIB


def test_folders_in_folders_without_end_are_told(folder: Path) -> None:
    handles = [os.open(folder, os.O_RDONLY)]
    try:
        for _ in range(300):
            os.mkdir("d", dir_fd=handles[-1])
            handles.append(os.open("d", os.O_RDONLY, dir_fd=handles[-1]))
        with pytest.raises(TooDeep):
            used_bytes(folder, MANY)
    finally:
        for handle in handles:
            os.close(handle)


def test_a_folder_is_for_everybody_and_made_once(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        make_folder(handle, "data", None)
        assert (folder / "data").stat().st_mode & 0o7777 == 0o777
        (folder / "data" / "file").touch()
        make_folder(handle, "data", None)
        assert (folder / "data" / "file").exists()
    finally:
        os.close(handle)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_memory_is_mounted_once_and_again_after_the_machine_was_started_anew(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    place = folder / "data"
    try:
        try:
            make_memory(handle, "data", 2000, 2**20)
        except PermissionError as error:
            pytest.skip(f"this machine allows no mounts: {error}")
        found = place.stat()
        assert (found.st_mode & 0o7777, found.st_gid) == (0o2777, 2000)
        space = os.statvfs(place)
        assert space.f_blocks * space.f_frsize == 2**20
        (place / "file").touch()
        make_memory(handle, "data", 2000, 2**20)
        assert (place / "file").exists()
        assert unmount(str(place))
        make_memory(handle, "data", None, 2**20)
        assert not (place / "file").exists()
        assert unmount(str(place))
        assert not unmount(str(place))
    finally:
        os.close(handle)
