"""Folders that are too deep for sockets have a short name while somebody needs it."""

from __future__ import annotations

import socket
from pathlib import Path

from allot.process.short_names import SOCKET_BYTES_MAX, short_name


def deep(folder: Path) -> Path:
    return folder / ("d" * 60) / ("e" * 60)


def test_a_folder_that_is_short_enough_keeps_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with short_name(folder, SOCKET_BYTES_MAX - len(bytes(folder))) as name:
        assert name == folder and folder.is_dir()


def test_sockets_in_a_deep_folder_are_made_and_found_under_its_short_name(tmp_path: Path) -> None:
    folder = deep(tmp_path)
    with short_name(folder, 50) as name:
        assert len(bytes(name)) + 50 <= SOCKET_BYTES_MAX
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(name / "s.sock"))
            assert (folder / "s.sock").is_socket()
    assert not name.exists() and not name.parent.exists()
    assert (folder / "s.sock").exists(), "what is in the folder stays"


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    folder = deep(tmp_path)
    killed = short_name(folder, 50)
    left = killed.__enter__()
    with short_name(folder, 50):
        assert not left.is_symlink()
    with short_name(deep(tmp_path / "other"), 50) as other, short_name(folder, 50):
        assert other.is_symlink(), "of another folder"
