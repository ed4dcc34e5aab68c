"""Files that are replaced whole, and what is found of writers that died at any step."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.driver.files import exchange_file, recover_files, remove_file, replace_file

BESIDE = ".claim.json.new"


@pytest.mark.parametrize("write", [replace_file, exchange_file])
def test_a_file_has_the_new_content_and_mode_and_nothing_is_left_beside_it(tmp_path: Path, write: object) -> None:
    assert callable(write)
    path = tmp_path / "claim.json"
    write(path, b"old")
    write(path, b"new", 0o644)
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["claim.json"]


@pytest.mark.parametrize(
    ("old", "beside", "expected"),
    [
        # Died before, while and after writing; before the exchange the old content counts.
        (b"old", None, b"old"),
        (b"old", b"", b"old"),
        (b"old", b"new", b"old"),
        # Between the end of the old and the name of the new.
        (None, b"new", b"new"),
        # A first content of which nothing was written.
        (None, b"", None),
    ],
)
def test_an_exchange_that_was_cut_short_leaves_the_old_or_the_new_content(
    tmp_path: Path, old: bytes | None, beside: bytes | None, expected: bytes | None
) -> None:
    path = tmp_path / "claim.json"
    if old is not None:
        path.write_bytes(old)
    if beside is not None:
        (tmp_path / BESIDE).write_bytes(beside)
    recover_files(tmp_path)
    assert (path.read_bytes() if path.exists() else None) == expected
    assert not (tmp_path / BESIDE).exists()


def test_removing_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_file(tmp_path / "claim.json")
